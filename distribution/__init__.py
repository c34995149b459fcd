"""Distributors: which subscription bolts a subscription lives on, and which of them need a message."""
