"""The keyword-first method: inverted lists, then rectangles."""

from __future__ import annotations

import numpy as np

from dskype.deploy.lab.laps import keyword_first_kernels as kernels
from dskype.deploy.lab.laps import parts_kernels
from dskype.deploy.lab.laps.match_kernels import Messages, Scratch
from dskype.deploy.lab.laps.parts import PartsIndex

__all__ = ["KeywordFirstIndex"]


class KeywordFirstIndex(PartsIndex):
    """Finds all subscriptions whose keywords a message has, and verifies their rectangles (LAPS, section 2.2).

    A subscription stands in the inverted list of its rarest keyword (the ranked key method of Yan and Garcia-Molina 1994); those in the lists of the
    message's keywords are asked for their other ones. Nothing is said about space before.

    Insertion, removal: O(keywords). Memory beside that of the parts: 4 to 8 bytes per part, 16 to 43 per distinct keyword.
    """

    name = "keyword-first"

    def _insert_parts(self, index: parts_kernels.Index, batch: parts_kernels.Batch, done: int) -> tuple[int, int, int]:
        return kernels.insert(index, batch, done)

    def _remove_slots(self, index: parts_kernels.Index, slots: np.ndarray, done: int) -> tuple[int, int, int]:
        return kernels.remove(index, slots, done)

    def _match(self, index: parts_kernels.Index, scratch: Scratch, messages: Messages) -> tuple[np.ndarray, np.ndarray]:
        return kernels.match(index, scratch, messages)

    def _list_blocks(self) -> list[tuple[int, int]]:
        values = self._index.value[self._index.key != parts_kernels.EMPTY].tolist()
        return [(value >> 32, 1 << (value & 31)) for value in values]

    def _check(self) -> None:
        """Verify the parts, and that each stands in the list of its first term."""
        super()._check()
        a = self._index
        found = {}
        for place in np.flatnonzero(a.key != parts_kernels.EMPTY).tolist():
            for position, part in enumerate(self._postings(place)):
                found[part] = int(a.key[place]), position
        assert found == {part: (self._terms_of(part)[0], int(a.part[part, parts_kernels.PLACE])) for part in self._live_parts()}
