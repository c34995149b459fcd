"""PS2Stream: the partitioners that its hybrid partitioning is compared with, and its experiments."""
