"""The policy service: judges request bodies for the gateway, and holds no more than its memory allows."""
