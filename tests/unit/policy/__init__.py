"""The judge of request bodies, under each of the shipped policies."""
