"""Workloads for boolean indexes, drawn from seeds, and a comparison of all indexes on them."""
