"""Routing: routing terms, interest, and the kernels that say where messages and subscriptions go."""
