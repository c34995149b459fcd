"""What the results of authors may cost beyond what is exact: ``meta`` within a budget of bytes, and events that tell authors of budgets that were met.

A result itself is never left out. Its ``meta`` can be, because the subscription's record has it as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import numpy as np

from dskype.bolts.results.events import METAS, OMITTED
from dskype.spouts.columns import to_strings
from dskype.spouts.settings import Settings

__all__ = ["Allowance", "share"]

_TOLD_MS, _TOLD = 3_600_000, 10_000
"""A registration is told of a setting once in this time, and so many of a task are."""


def share(total: int | None, context: Any) -> int | None:
    """Return how much a task may write of what its topology may; all tasks of its component may write the same.

    :param context: of the bolt.
    """
    return None if total is None else max(1, total // len(context.get_component_tasks(context.get_this_component_id())))


class Allowance:
    """Counts bytes of ``meta`` by subscription within each second of the topology's clock, and remembers which authors have been told.

    :param settings: of the topology.
    :param context: of the bolt.
    """

    def __init__(self, settings: Settings, context: Any) -> None:
        self._each, self._all = (
            np.iinfo(np.int64).max if bound is None else bound for bound in (settings.meta_bytes_per_s, share(settings.meta_total_bytes_per_s, context))
        )
        self._context = context
        self._omitted = context.register_counter("omitted_metas")
        self._second, self._spent_of_all = -1, 0
        self._spent: dict[str, int] = {}
        self._told: dict[tuple[str, str], int] = {}  # (registration, setting) -> when, oldest first

    def metas(self, subscriptions: Any, metas: Any) -> tuple[Any, list[tuple[int, str]]]:
        """Return metas with :data:`~dskype.bolts.results.events.OMITTED` in place of those beyond the budget, and for each subscription that lacks some the first row and the setting.

        A subscription gets one ``meta`` a second in any case that its task allows.

        :param subscriptions: ids; a list, or a numpy or pyarrow array.
        :param metas: JSON texts or None, likewise.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        metas = to_strings(metas)
        sizes = pc.fill_null(pc.binary_length(metas), 0).to_numpy().astype(np.int64)
        if not sizes.any():
            return metas, []
        if (second := self._context.clock_ms() // 1000) != self._second:
            self._second, self._spent_of_all, self._spent = second, 0, {}
        encoded = to_strings(subscriptions).dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        before = np.fromiter((self._spent.get(name, 0) for name in names), np.int64, len(names))
        fits = self._within(codes, sizes, before)
        kept = fits & (self._spent_of_all + np.cumsum(np.where(fits, sizes, 0)) <= self._all)
        spent = np.bincount(codes, np.where(kept, sizes, 0), len(names)).astype(np.int64)
        self._spent.update((names[code], int(before[code] + spent[code])) for code in np.flatnonzero(spent).tolist())
        self._spent_of_all += int(spent.sum())
        omitted = ~kept & (sizes > 0)
        if not omitted.any():
            return metas, []
        self._omitted.inc(int(omitted.sum()))
        rows = np.flatnonzero(omitted)
        first = rows[np.unique(codes[rows], return_index=True)[1]]
        return pc.if_else(pa.array(omitted), OMITTED, metas), [(row, METAS[int(fits[row])]) for row in first.tolist()]

    def _within(self, codes: np.ndarray, sizes: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return which rows are within the budgets of their subscriptions, bool[n].

        :param before: bytes that each subscription has spent in this second.
        """
        if int(before.max()) + int(sizes.sum()) <= self._each:
            return np.ones(len(codes), np.bool_)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(sizes[order])
        counts = np.bincount(codes, minlength=len(before))
        begins = np.concatenate(([0], ends))[np.cumsum(counts) - counts]
        until = np.empty(len(codes), np.int64)
        until[order] = ends - begins[codes[order]]  # with the row itself
        return (before[codes] + until <= self._each) | (before[codes] + until == sizes)

    def untold(self, registrations: Iterable[str], setting: str) -> list[int]:
        """Return the places of registrations that have to be told that a setting has cut in, and note that they are told now."""
        now_ms, found = self._context.clock_ms(), []
        for key in list(takewhile(lambda key: now_ms - self._told[key] >= _TOLD_MS, self._told)):
            del self._told[key]
        for place, registration in enumerate(registrations):
            if len(self._told) >= _TOLD:
                break
            if (registration, setting) not in self._told:
                self._told[registration, setting] = now_ms
                found.append(place)
        return found

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [self._second, self._spent_of_all, self._spent, [[*key, told_ms] for key, told_ms in self._told.items()]]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._second, self._spent_of_all, spent, told = state
        self._spent, self._told = dict(spent), {(registration, setting): told_ms for registration, setting, told_ms in told}
