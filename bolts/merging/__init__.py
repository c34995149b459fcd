"""Merging of what replicas have found; see :mod:`dskype.bolts.merging.merger`."""

from dskype.bolts.merging.merger import PART, Delta, Event, Merger, Removed, Taken, Whole
from dskype.bolts.merging.steady import DeltaColumns, ListColumns

__all__ = ["Delta", "DeltaColumns", "Event", "ListColumns", "Merger", "PART", "Removed", "Taken", "Whole"]
