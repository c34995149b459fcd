"""Boolean indexes that LAPS compares itself with."""
