"""PS2Stream's hybrid partitioning: a kdt-tree learned from a sample, the gridt index that routes by it, and local load adjustment."""
