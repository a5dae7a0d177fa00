"""Tests against real vLLM on a CPU: `make test-engine`. They need an image of 1.9 GB; `make test` leaves them out."""
