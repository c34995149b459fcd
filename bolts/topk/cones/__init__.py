"""The cone index: every match is found in the list of its first common keyword."""

from dskype.bolts.topk.cones.index import ConeIndex

__all__ = ["ConeIndex"]
