"""LAPS: the Rt-tree family, and the indexes that it is compared with."""
