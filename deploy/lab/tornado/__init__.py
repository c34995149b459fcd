"""Tornado: the index FAST and those it is compared with, other ways to route, and its experiments."""
