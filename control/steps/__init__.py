"""What several commands and daemons do in the same way. Steps use adapters and core; commands string steps together."""
