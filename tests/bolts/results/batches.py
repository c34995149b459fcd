"""Batches of deltas in few words."""

from dskype.spouts.streams import Results


def batch(*columns, **others):
    """Return a batch with the first columns in the order of the stream's fields, and others by their names."""
    return Results(**dict(zip(Results.fields.names, columns)), **others)
