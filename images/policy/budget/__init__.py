"""The counting service: token budgets, running streams and usage of every API key. One process owns the counts."""
