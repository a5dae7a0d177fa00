"""The counting service as a process, alone and behind Envoy."""
