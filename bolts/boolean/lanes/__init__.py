"""The lanes index: postings of rectangles in 16 bits, 16 at a time, under the rarest keyword."""

from dskype.bolts.boolean.lanes.index import LanesIndex

__all__ = ["LanesIndex"]
