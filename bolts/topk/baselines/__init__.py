"""Subscription indexes and skyband buffers from the literature, against which the defaults are measured."""
