"""Tornado's A-Grid: rectangular partitions of a fine grid, their learning, and their balancing."""
