"""Runs Envoy for the gateway's PID 1: its files, its admin interface, its processes (standard library only)."""
