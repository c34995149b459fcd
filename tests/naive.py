"""Oracles: the same results computed in the plainest way, for tests to compare with."""

from __future__ import annotations

import datetime
import fractions
import functools
import json
import math
import operator as operators
import random
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from typing import Any


def count_windows(items: Sequence[Any], length: int, slide: int) -> list[list[Any]]:
    """Return the last ``length`` items after every ``slide`` items."""
    return [list(items[max(0, end - length) : end]) for end in range(slide, len(items) + 1, slide)]


def time_windows(arrivals: Sequence[tuple[int, Any]], length_ms: int, slide_ms: int, until_ms: int) -> list[list[Any]]:
    """Return what arrived in ``[t - length, t)`` for every multiple ``t`` of the slide up to ``until_ms``.

    The first window takes everything before its end; empty windows are left out.

    :param arrivals: (ms since the start, item), in order.
    """
    windows = []
    for end in range(slide_ms, until_ms + 1, slide_ms):
        start = 0 if end == slide_ms else end - length_ms
        windows.append([item for ms, item in arrivals if start <= ms < end])
    return [w for w in windows if w]


def event_time_windows(steps: Sequence[Sequence[tuple[int, Any]]], length_ms: int, slide_ms: int, lag_ms: int) -> tuple[list[tuple[int, list[Any]]], list[Any]]:
    """Return the windows ``(end, items)`` in event time, and the late items.

    :param steps: what arrives between two looks at the watermark: (timestamp in ms, item).
    """
    accepted: list[tuple[int, Any]] = []
    late: list[Any] = []
    windows: list[tuple[int, list[Any]]] = []
    watermark = newest = next_end = 0
    for step in steps:
        for ts, item in step:
            newest = max(newest, ts)
            if ts < watermark:
                late.append(item)
            else:
                accepted.append((ts, item))
        watermark = max(watermark, newest - lag_ms)
        while next_end <= watermark:
            inside = [item for ts, item in accepted if next_end - length_ms < ts <= next_end]
            if inside:
                windows.append((next_end, inside))
            elif next_end == watermark:
                break  # something with just this timestamp may still come
            next_end += slide_ms
    return windows, late


def message_watermarks(steps: Sequence[Sequence[tuple[int, int]]], lateness_ms: int) -> tuple[list[int], list[int]]:
    """Return the watermark after each step (-1 before the first message), and the numbers of the messages that are late.

    :param steps: what arrives between two looks at the watermark: (own time, time of arrival) in ms.
    """
    watermark, watermarks, late, accepted, number = -1, [], [], [], 0
    for step in steps:
        for own, arrival in step:
            if own <= watermark:
                late.append(number)
            else:
                accepted.append(own if own < arrival else arrival)
            number += 1
        watermark = max([watermark, *(t - lateness_ms - 1 for t in accepted)])
        watermarks.append(watermark)
    return watermarks, late


def is_late(own_ms: int, arrival_ms: int, accepted: Sequence[tuple[int, int]], lateness_ms: int, idle_ms: int) -> bool:
    """Tell whether a message may be refused as late: another one is newer by more than the lateness, or a pause has made the watermark catch up.

    :param accepted: the messages that were not refused of the partitions that one task reads: (time of arrival, own time), sorted.
    """
    times = [min(pair) for pair in accepted]
    if arrival_ms - own_ms > lateness_ms:
        return any(own_ms < time - lateness_ms for time in times)
    before = [arrival for arrival, _ in accepted if arrival <= arrival_ms]
    gaps = [i for i, (one, other) in enumerate(zip(before, [*before[1:], arrival_ms])) if other - one >= max(1, idle_ms)]
    return any(own_ms <= time for i in gaps for time in times[: i + 1])


def event_count_windows(timestamps: Sequence[int], length: int, slide: int, watermark: int) -> list[list[int]]:
    """Return count windows over timestamps that are in order and distinct, as far as the watermark has come."""
    return count_windows([ts for ts in timestamps if ts <= watermark], length, slide)


# -- words ----------------------------------------------------------------------------------------


_INVISIBLE = frozenset(
    map(
        chr,
        [
            *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0),
            *range(0x180B, 0x180F + 1),
            *range(0x200C, 0x200F + 1),
            *range(0x202A, 0x202E + 1),
            *range(0x2060, 0x206F + 1),
            *range(0xFE00, 0xFE0F + 1),
            *range(0xFFF0, 0xFFF8 + 1),
            *range(0x1BCA0, 0x1BCA3 + 1),
            *range(0x1D173, 0x1D17A + 1),
            *range(0xE0000, 0xE0FFF + 1),
        ],
    )
)


def is_invisible(character: str) -> bool:
    """Tell whether a character is Default_Ignorable (Unicode's DerivedCoreProperties.txt), and not the zero width space, which separates."""
    return character in _INVISIBLE


def visible(text: str) -> str:
    """Return a text without its invisible characters and enclosing marks."""
    return "".join(c for c in text if c not in _INVISIBLE and unicodedata.category(c) != "Me")


def words(text: str, stop_words: Collection[str] = ()) -> list[str]:
    """Cut a text one character at a time, in Unicode's own terms."""
    return [t for t in _cut(text) if t not in stop_words]


@functools.lru_cache(100_000)
def _cut(text: str) -> tuple[str, ...]:
    """Return the words of a text, which is asked for again and again: for every subscription."""
    text = visible(text)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    tokens, run = [], ""
    for character in folded + " ":
        category = unicodedata.category(character)
        if category in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl") or (run and category in ("Mn", "Mc")):
            run += character
        elif run:
            tokens.append(run)
            run = ""
    return tuple(tokens)


def fold(word: str) -> str:
    """Take the marks away that stand after Latin and Greek letters, one letter at a time."""
    kept, folds = "", False
    for character in unicodedata.normalize("NFD", word):
        if "\u0300" <= character <= "\u036f":
            if folds:
                continue
        else:
            folds = unicodedata.name(character, "").startswith(("LATIN SMALL LETTER", "GREEK SMALL LETTER")) and ord(character) < 0x400
        kept += character
    return unicodedata.normalize("NFC", kept)


def analyzed(
    text: str, language: str | None = None, stop: Sequence[str] = (), fold_accents: bool = False, synonyms: Sequence[tuple[str, str]] = ()
) -> list[str | None]:
    """Return the words of a text as an analyzer makes them, and None for each stop word.

    :param synonyms: (word, what it becomes).
    """
    fold_word = fold if fold_accents else str
    stop_words = {fold_word(word) for entry in stop for word in words(entry)}
    stem = str
    if language:
        import Stemmer  # most tests need no stemmer

        stem = Stemmer.Stemmer(language).stemWord

    def shorten(word: str) -> str:
        found = fold_word(stem(word))
        return found if words(found) == [found] else word

    def form(word: str) -> str | None:
        word = fold_word(word)
        if word in stop_words:
            return None
        found = word if word.endswith("\u02b9") else shorten(word)
        if found != word and shorten(found) != found:
            found += "\u02b9"
        return word if found in stop_words else found

    becomes = {form(word): form(target) for word, target in synonyms}
    found = []
    for word in map(form, words(text)):
        while word in becomes and becomes[word] != word:
            word = becomes[word]
        found.append(word)
    return found


def spelled(word: str, seed: object) -> str:
    """Return a word as a keyboard, a phone or a typesetter may write it; it stays the same word."""
    rng = random.Random(f"{word} {seed}")
    middle = len(word) // 2
    return rng.choice(
        [
            *[word] * 4,
            word.upper(),
            unicodedata.normalize("NFD", word),
            "".join(chr(ord(c) + 0xFEE0) if c.isascii() and c.isalnum() else c for c in word),
            f"{word[:middle]}\u00ad{word[middle:]}",
            f"\u200e{word[:middle]}\u200d{word[middle:]}\ufe0f",
            f"\ufeff{word}\u2060",
        ]
    )


def written(words: Sequence[str], seed: object) -> str:
    """Return a text with these words, spelled in many ways, and with emoji and other signs between them; it has no other words."""
    rng = random.Random(f"{words} {seed}")
    return "".join(
        spelled(word, rng.random()) + rng.choice([*[" "] * 4, "\u200b", " \u2764\ufe0f ", ", ", "\U0001f44d\U0001f3fd", " \u0301", " #\ufe0f\u20e3 "])
        for word in words
    )


# -- spatial-keyword matching ---------------------------------------------------------------------


def norm_weights(counts: dict[str, int], df: dict[str, int], documents: int) -> dict[str, float]:
    """Return the tf-idf weights of a document, of unit norm; an unknown term has df 1."""
    weights = {term: tf * math.log(1 + documents / df.get(term, 1)) for term, tf in counts.items()}
    norm = math.sqrt(sum(w * w for w in weights.values()))
    return {term: w / norm for term, w in weights.items()}


def distance_m(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """Return the great-circle distance of two places in degrees on a sphere of 6,371,008.8 m, by the haversine formula, to the last bit."""
    radians, radius_m = math.pi / 180, 6_371_008.8
    across = abs(lon - other_lon)
    across = 180 - abs(lon) + (180 - abs(other_lon)) if across > 180 else across
    sin_across, sin_up = math.sin(across * radians * 0.5), math.sin((lat - other_lat) * radians * 0.5)
    part = sin_up * sin_up + math.cos(lat * radians) * math.cos(other_lat * radians) * (sin_across * sin_across)
    if part <= 0.5:
        return 2 * radius_m * math.asin(math.sqrt(part))
    one, other = math.cos(across * radians * 0.5) * math.cos((lat - other_lat) * radians * 0.5), sin_across * math.sin((lat + other_lat) * radians * 0.5)
    return radius_m * (math.pi - 2 * math.asin(math.sqrt(one * one + other * other)))


def score(subscription: dict[str, Any], message: dict[str, Any], diagonal_deg: float, half_life_ms: float | None = None) -> float | None:
    """Return the score of a message for a subscription, to the last bit; None without a common keyword.

    With a half-life it is the logarithm of the score times 2 ** (position / half-life), which says how much of the score is left at any time.

    :param subscription: ``lat``, ``lon``, ``alpha`` and ``weights`` {term: weight}; and ``scale_m``, if distances are in metres.
    :param message: ``lat``, ``lon`` and ``weights``.
    """
    common = sorted(subscription["weights"].keys() & message["weights"].keys())
    if not common:
        return None
    text = 0.0
    for term in common:
        text += subscription["weights"][term] * message["weights"][term]
    dx, dy = message["lon"] - subscription["lon"], message["lat"] - subscription["lat"]
    alpha, scale_m = subscription["alpha"], subscription.get("scale_m")
    if scale_m:
        away_m = distance_m(subscription["lat"], subscription["lon"], message["lat"], message["lon"])
        plain = alpha * (1.0 - min(1.0, away_m / scale_m)) + (1.0 - alpha) * text
    else:
        plain = alpha * (1.0 - math.sqrt(dx * dx + dy * dy) / diagonal_deg) + (1.0 - alpha) * text
    return plain if half_life_ms is None else math.log2(max(plain, 2**-32)) + message["position"] / half_life_ms


def ranked(
    subscription: dict[str, Any], messages: Sequence[dict[str, Any]], watermark: int, extent: int, diagonal_deg: float, half_life_ms: float | None = None
) -> list[tuple[float, int, int]]:
    """Return (score, position, seq) of the messages of the window ``(watermark - extent, watermark]`` that have a common keyword.

    :param messages: with ``seq`` and ``position``; best score first, ties by newer (position, seq) first.
    """
    inside = [m for m in messages if watermark - extent < m["position"] <= watermark]
    return sorted(((s, m["position"], m["seq"]) for m in inside if (s := score(subscription, m, diagonal_deg, half_life_ms)) is not None), reverse=True)


def topk(
    subscription: dict[str, Any], messages: Sequence[dict[str, Any]], watermark: int, extent: int, diagonal_deg: float, half_life_ms: float | None = None
) -> list[tuple[int, float]]:
    """Return (seq, score) of the best ``k`` of :func:`ranked`."""
    return [(seq, s) for s, _, seq in ranked(subscription, messages, watermark, extent, diagonal_deg, half_life_ms)[: subscription["k"]]]


def newest(messages: Sequence[dict[str, Any]], k: int) -> list[dict[str, Any]]:
    """Return the newest ``k`` messages, the newest first."""
    return sorted(messages, key=lambda m: (m["position"], m["seq"]), reverse=True)[:k]


def same_topk(found: Sequence[tuple[int, float]], expected: Sequence[tuple[int, float]], scores: dict[int, float], tolerance: float = 1e-9) -> bool:
    """Tell whether two lists are equal but for the order of scores that differ by less than ``tolerance``.

    :param scores: seq -> score of everything in the window, for a message that only one of the lists has.
    """
    return (
        len(found) == len(expected)
        and all(abs(fs - es) <= tolerance and (seq == eseq or abs(scores[seq] - es) <= tolerance) for (seq, fs), (eseq, es) in zip(found, expected))
        and len({seq for seq, _ in found}) == len(found)
    )


def satisfies(expression: Any, terms: set[Any]) -> bool:
    """Tell whether a set of terms satisfies ``term`` | ["and", e, ...] | ["or", e, ...]."""
    if isinstance(expression, list):
        return (all if expression[0] == "and" else any)(satisfies(e, terms) for e in expression[1:])
    return expression in terms


def holds(expression: Any, message: dict[str, Any], stop_words: Collection[str] = (), read: Callable[[Any, str], Sequence[str | None]] | None = None) -> bool:
    """Tell whether a message satisfies an expression of any form.

    :param message: ``text``, which may be an object of fields, or fields with U+001F between them, and ``attributes``, both as in its record.
    :param read: returns the words of a field, by its name and text, with None for each stop word; without it they are as written.
    """
    text = message["text"]
    fields = text if isinstance(text, dict) else dict(enumerate(text.split("\x1f")))
    if read is None:
        cut = written = {name: [None if word in stop_words else word for word in words(part)] for name, part in fields.items()}
    else:
        cut = {name: read(name, part) for name, part in fields.items()}
        written = {name: [word for word in words(part) if read(name, word) != [None]] for name, part in fields.items()}
    return _holds(expression, cut, written, message.get("attributes") or {})


def _holds(expression: Any, fields: dict[Any, Any], written: dict[Any, Any], attributes: dict[str, Any]) -> bool:
    if not isinstance(expression, list):
        return any(expression in found for found in fields.values())
    operator, *rest = expression
    if operator == "all":
        return True
    if operator == "not":
        return not _holds(rest[0], fields, written, attributes)
    if operator in ("and", "or", "atleast"):
        least = rest.pop(0) if operator == "atleast" else len(rest) if operator == "and" else 1
        return sum(_holds(part, fields, written, attributes) for part in rest) >= least
    if operator == "in":
        return _holds(rest[1], {0: fields.get(rest[0], [])}, {0: written.get(rest[0], [])}, attributes)
    if operator == "prefix":
        return any(word is not None and word[: len(rest[0])] == rest[0] for found in written.values() for word in found)
    if operator == "phrase":
        return any(_has_phrase(found, *rest) for found in fields.values())
    return _compares(attributes.get(rest[0]), *rest[1:])


def _has_phrase(found: list[str | None], within: int, places: Sequence[int], wanted: Sequence[str]) -> bool:
    """Try all ways in which the words of a phrase may lie."""
    shapes: list[list[int]] = [[at] for at, word in enumerate(found) if word == wanted[0]]
    for word in wanted[1:]:
        shapes = [[*shape, at] for shape in shapes for at in range(shape[-1] + 1, len(found)) if found[at] == word]
    between = [[b - a - (q - p) for a, b, p, q in zip(shape, shape[1:], places, places[1:])] for shape in shapes]
    return any(min(others, default=0) >= 0 and sum(others) <= within for others in between)


def _compares(value: Any, comparison: str, *operands: Any) -> bool:
    if value is None or value == []:
        return False
    if comparison == "exists":
        return True
    if isinstance(value, str) and not isinstance(operands[0], str):
        moment = datetime.datetime.fromisoformat(value)
        passed = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        value = float(fractions.Fraction(passed // datetime.timedelta(microseconds=1), 1000))
    if isinstance(value, list):
        return any(one in operands for one in value)
    if comparison in ("=", "in"):
        return value in operands
    compare = {"!=": operators.ne, "<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}[comparison]
    return bool(compare(value, operands[0]))


def fields(sources: dict[str, str], record: dict[str, Any], arrival_ms: int, text_fields: Sequence[str], most_bytes: int) -> dict[str, Any]:
    """Return what results say behind the id of a message, as in its record: ``fields``, or that they are omitted.

    :param sources: name -> ``text``, ``place``, ``time``, a text field, an attribute, or a path of names and numbers.
    """
    own: dict[str, Any] = {"text": record["text"], "time": record.get("ts", arrival_ms), **(record.get("attributes") or {})}
    own["place"] = {name: record[name] for name in ("lat", "lon", "bbox", "region") if name in record}
    if text_fields:
        texts = {text_fields[0]: record["text"]} if isinstance(record["text"], str) else record["text"]
        own["text"] = {name: texts[name] for name in text_fields if name in texts}
        own |= own["text"]
    found = {}
    for name, source in sources.items():
        value = own.get(source)
        if source.startswith("$"):
            value = record
            for step in re.findall(r"\w+", source):
                try:
                    value = value[int(step)] if step.isdigit() else value[step]
                except (KeyError, IndexError, TypeError):
                    value = None
        if value is not None:
            found[name] = value
    size = len(json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode())
    return {"fields_omitted": True} if size > most_bytes else {"fields": found}


def object_changes(messages: Sequence[dict[str, Any]], until: float, ttl_ms: int | None = None) -> list[dict[str, Any]]:
    """Return how objects change up to a position, one update after another: ``before`` and ``after`` are messages, or None.

    :param messages: in rising order of (position, seq), with ``object`` (None: it is of none), ``deleted``, ``own_ms``, ``position``, ``arrival_ms`` and ``id``.
    :param ttl_ms: an object without an update for longer than this ends; positions are times then.
    """
    newest: dict[str, dict[str, Any]] = {}
    changes = []

    def expire(now: float) -> None:
        for name, state in list(newest.items()):
            if ttl_ms is not None and state["position"] + ttl_ms < now:
                end = state["position"] + ttl_ms
                changes.append({"object": name, "id": state["id"], "position": end, "arrival_ms": end, "before": newest.pop(name), "after": None})

    for message in messages:
        if message["position"] > until:
            break
        expire(message["position"])
        name = message["object"]
        before = newest.get(name)
        if name is None or (before is not None and message["own_ms"] < before["own_ms"]):
            continue
        after = None if message["deleted"] else message
        newest.pop(name, None)
        if after is not None:
            newest[name] = after
        changes.append({"object": name, **{key: message[key] for key in ("id", "position", "arrival_ms")}, "before": before, "after": after})
    expire(until + 1)
    return changes


def ends(messages: Sequence[dict[str, Any]], changes: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return id -> the position from which on a message does not count in lists any more, which is its own for what is no state of its object.

    :param messages: as :func:`object_changes` takes them; ``changes``: what it returns.
    """
    begun = {change["after"]["id"] for change in changes if change["after"] is not None}
    found = {m["id"]: math.inf if m["object"] is None or m["id"] in begun else m["position"] for m in messages}
    return found | {change["before"]["id"]: change["position"] for change in changes if change["before"] is not None}


def object_event(matched: bool, matches: bool, inside: bool) -> str | None:
    """Return what a subscription reports of a change, if it matched the state before, and matches the one after."""
    if matches:
        return "enter" if not matched else "inside" if inside else None
    return "leave" if matched else None


def in_bbox(bbox: Sequence[float], lat: float, lon: float) -> bool:
    """Tell whether a point is in ``[west, south, east, north]``, borders included; west > east crosses the antimeridian."""
    west, south, east, north = bbox
    return south <= lat <= north and (west <= lon <= east if west <= east else lon >= west or lon <= east)


def overlapping(bbox: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether two rectangles ``[west, south, east, north]`` share a point, borders included."""

    def longitudes(west: float, east: float) -> list[tuple[float, float]]:
        return [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]

    return (
        bbox[1] <= other[3]
        and other[1] <= bbox[3]
        and any(a <= d and c <= b for a, b in longitudes(bbox[0], bbox[2]) for c, d in longitudes(other[0], other[2]))
    )


def over_quota(records: Sequence[dict[str, Any]], quotas: dict[str, dict[str, int]]) -> dict[int, tuple[str, str, int]]:
    """Return number -> (tenant, quota, what is used) of each registration that is refused beyond a quota: every time, all records before are looked at.

    :param records: in order, each with ``id``, ``at_ms``, and ``record``: its object, or None if it removes the subscription.
    :param quotas: of each tenant, with ``default`` among them.
    """
    refused: dict[int, tuple[str, str, int]] = {}

    def tenant_of(number: int) -> str:
        named = records[number]["record"].get("tenant", "default")
        return named if named in quotas else "default"

    for number, one in enumerate(records):
        if one["record"] is None:
            continue
        tenant, quota = tenant_of(number), quotas[tenant_of(number)]
        now_ms = max(r["at_ms"] for r in records[: number + 1] if r["record"] is not None)
        taken = [i for i in range(number) if i not in refused]
        newest = {records[i]["id"]: i for i in taken}
        live = {
            i
            for i in newest.values()
            if records[i]["record"] is not None and ("ttl_s" not in records[i]["record"] or records[i]["at_ms"] + 1000 * records[i]["record"]["ttl_s"] > now_ms)
        }
        clocks = {i: max(r["at_ms"] for r in records[: i + 1] if r["record"] is not None) for i in taken if records[i]["record"] is not None}
        in_second = sum(tenant_of(i) == tenant and at_ms // 1000 == now_ms // 1000 for i, at_ms in clocks.items())
        used = sum(tenant_of(i) == tenant for i in live)
        replaces = any(records[i]["id"] == one["id"] and tenant_of(i) == tenant for i in live)
        if in_second >= quota.get("max_registrations_per_s", math.inf):
            refused[number] = tenant, "max_registrations_per_s", in_second
        elif used >= quota.get("max_subscriptions", math.inf) and not replaces:
            refused[number] = tenant, "max_subscriptions", used
    return refused
