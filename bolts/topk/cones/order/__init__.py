"""The order of cones in their lists."""
