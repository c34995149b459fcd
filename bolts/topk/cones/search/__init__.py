"""Search of the cone index."""
