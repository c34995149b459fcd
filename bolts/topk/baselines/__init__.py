"""Subscription indexes and skyband buffers of the literature, which the defaults are measured against."""
