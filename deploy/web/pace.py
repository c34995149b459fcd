"""How often a receiver hears of a subscription: at most so many results in a period, a summary of each period, and quiet hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Literal
from zoneinfo import ZoneInfo

from dskype.topology.errors import IllegalArgumentException

__all__ = ["Daily", "Every", "Pace", "Quiet", "parse_pace"]

_DAY_S = 86_400
_BEST, _BEST_MOST = 10, 1000
_LEGAL = (
    "{throttle: {most: 5, every_s: 3600}}, {digest: {at: '08:00', best: 10}} or {digest: {every_s: 3600}}, with or without "
    "quiet: {from: '22:00', to: '07:00'} and group_by: NAME; or {} for every result at once"
)


@dataclass(frozen=True)
class Every:
    """Periods of the same length, counted from the epoch.

    :ivar length_ms: of each.
    """

    length_ms: int

    def end_after(self, time_ms: int) -> int:
        """Return the end of the period that a time is in; the end belongs to the next one."""
        return (time_ms // self.length_ms + 1) * self.length_ms


@dataclass(frozen=True)
class Daily:
    """Periods that end at times of day.

    :ivar times: of day.
    :ivar zone: whose clocks count. A time that a change of the clocks leaves out is read with the offset before it; one that comes twice counts the first time.
    """

    times: tuple[time, ...]
    zone: tzinfo

    def end_after(self, time_ms: int) -> int:
        """Return the end of the period that a time is in; the end belongs to the next one."""
        today = datetime.fromtimestamp(time_ms / 1000, self.zone).date()
        ends = (_at(today + timedelta(days=days), one, self.zone) for days in (-1, 0, 1, 2) for one in self.times)
        return min(end for end in ends if end > time_ms)


@dataclass(frozen=True)
class Quiet:
    """Hours of each day in which nothing is sent.

    :ivar begin: of the quiet hours.
    :ivar end: of them; before ``begin`` if midnight is within them.
    :ivar zone: whose clocks count.
    """

    begin: time
    end: time
    zone: tzinfo

    def until(self, time_ms: int) -> int | None:
        """Return when the quiet hours end that a time is in; None if it is in none."""
        today = datetime.fromtimestamp(time_ms / 1000, self.zone).date()
        for days in (-1, 0):
            day = today + timedelta(days=days)
            begin, end = _at(day, self.begin, self.zone), _at(day + timedelta(days=self.end <= self.begin), self.end, self.zone)
            if begin <= time_ms < end:
                return end
        return None


@dataclass(frozen=True)
class Pace:
    """How often a receiver hears of one subscription.

    :ivar periods: of ``most`` or of digests; None: every result is sent.
    :ivar most: results of a period that are sent; the others are counted. None: each period has a digest.
    :ivar best: results in a digest, at most.
    :ivar quiet: when nothing is sent.
    :ivar group_by: one result of each group and period counts; the name of a field of results (``dskype.results.fields``).
    """

    periods: Every | Daily | None = None
    most: int | None = None
    best: int = _BEST
    quiet: Quiet | None = None
    group_by: str | None = None

    @property
    def kind(self) -> Literal["now", "throttle", "digest"]:
        """What happens to results outside quiet hours."""
        return "now" if self.periods is None else "digest" if self.most is None else "throttle"


def _at(day: date, moment: time, zone: tzinfo) -> int:
    return int(datetime.combine(day, moment, zone).timestamp() * 1000)


def parse_pace(where: str, data: Any, timezone: Any = "UTC") -> Pace | None:
    """Return the pace that a file describes; None for an empty one.

    :param where: names it in errors.
    :param data: as YAML has it.
    :param timezone: of times of day.
    :raises IllegalArgumentException: something is unknown, of a wrong kind, or does not go with something else.
    """
    if data is None or data == {}:
        return None
    if not isinstance(data, Mapping) or data.keys() - {"throttle", "digest", "quiet", "group_by"}:
        given = sorted(map(str, data)) if isinstance(data, Mapping) else data
        raise IllegalArgumentException(f"{where} cannot be used.", given=given, legal=_LEGAL)
    zone = _zone(where, timezone)
    if "throttle" in data and "digest" in data:
        raise IllegalArgumentException(f"{where} has a throttle and a digest.", given=["throttle", "digest"], legal="one of them", hint=_LEGAL)
    periods: Every | Daily | None = None
    most, best = None, _BEST
    if "throttle" in data:
        row = _row(f"{where}.throttle", data["throttle"], {"most", "every_s"}, {"most", "every_s"})
        periods, most = Every(_whole(f"{where}.throttle.every_s", row["every_s"], _DAY_S * 31) * 1000), _whole(f"{where}.throttle.most", row["most"], 10_000)
    if "digest" in data:
        row = _row(f"{where}.digest", data["digest"], {"every_s", "at", "best"}, set())
        if ("every_s" in row) == ("at" in row):
            raise IllegalArgumentException(f"{where}.digest needs every_s or at, and not both.", given=sorted(row), legal=_LEGAL)
        if "at" in row:
            times = row["at"] if isinstance(row["at"], list) and row["at"] else [row["at"]]
            periods = Daily(tuple(sorted({_time(f"{where}.digest.at", one) for one in times})), zone)
        else:
            periods = Every(_whole(f"{where}.digest.every_s", row["every_s"], _DAY_S * 31) * 1000)
        best = _whole(f"{where}.digest.best", row.get("best", _BEST), _BEST_MOST)
    quiet = None
    if "quiet" in data:
        row = _row(f"{where}.quiet", data["quiet"], {"from", "to"}, {"from", "to"})
        quiet = Quiet(_time(f"{where}.quiet.from", row["from"]), _time(f"{where}.quiet.to", row["to"]), zone)
        if quiet.begin == quiet.end:
            raise IllegalArgumentException(f"{where}.quiet would never end.", given=row["from"], legal="two different times of day")
    group_by = data.get("group_by")
    if group_by is not None and (not isinstance(group_by, str) or not group_by or periods is None):
        hint = "a group counts once in each period of throttle or digest"
        raise IllegalArgumentException(f"{where}.group_by cannot be used.", given=group_by, legal="the name of a field of results", hint=hint)
    return Pace(periods, most, best, quiet, group_by)


def _row(where: str, data: Any, known: set[str], needed: set[str]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or data.keys() - known or needed - data.keys():
        given = sorted(map(str, data)) if isinstance(data, Mapping) else data
        raise IllegalArgumentException(f"{where} cannot be used.", given=given, legal=", ".join(sorted(known)))
    return data


def _whole(where: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise IllegalArgumentException(f"{where} cannot be used.", given=value, legal=f"a whole number from 1 to {most:,}")
    return value


def _time(where: str, value: Any) -> time:
    try:
        hours, minutes = map(int, value.split(":"))
        return time(hours, minutes)
    except (AttributeError, ValueError):  # YAML reads 8:00 without quotes as the number 480
        raise IllegalArgumentException(f"{where} is no time of day.", given=value, legal="'00:00' to '23:59', in quotes") from None


def _zone(where: str, name: Any) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (TypeError, ValueError, OSError, LookupError):
        raise IllegalArgumentException(f"{where}: there is no such time zone.", given=name, legal="UTC, Europe/Berlin, America/New_York, ...") from None
