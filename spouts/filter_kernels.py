"""The numbers of the instructions of programs (:mod:`dskype.spouts.filters`), for what writes programs and for the kernels that run them."""

from __future__ import annotations

__all__ = ["COUNT", "EXISTS", "IF", "NOT", "NUMBER", "PHRASE", "TALLY", "TERM", "UNLESS", "VALUE"]

TERM, NUMBER, VALUE, EXISTS, PHRASE, NOT, UNLESS, IF, COUNT, TALLY = range(1, 11)
