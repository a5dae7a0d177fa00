"""How many replicas a host can carry, on which GPUs, and the sum that shows it."""
