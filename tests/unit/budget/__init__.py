"""The pure parts of the counting service, and its files."""
