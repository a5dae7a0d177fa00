"""The policy service as a real process, spoken to as Envoy speaks to it."""
