"""Reads input records by the letter of ``docs/concepts/pubsub.md``, without the code that the topology reads them with.

So verification can disagree with the topology about what a word, an expression or a good record is, and not only about matches. It
takes nothing from the topology but the classes for what has been read, and the settings. Plain and slow: one character at a time.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from dskype.deploy.verification import geometry
from dskype.deploy.verification.reading_analysis import keywords_of
from dskype.deploy.verification.reading_expressions import needs_word, number_of, read_expression, read_keywords
from dskype.deploy.verification.reading_words import UnusableRecord, folded_bytes, words_of
from dskype.spouts.records import Limits, Message
from dskype.spouts.segmenters import SEGMENTERS
from dskype.spouts.settings import Settings
from dskype.spouts.space import Space
from dskype.spouts.subscriptions import BooleanSubscription, Subscription, ThresholdSubscription, TopkSubscription
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["UnusableRecord", "Weights", "attributes_of", "check_message", "meeting", "object_of", "read_key", "read_subscription"]

_LARGEST = 9007199254740991  # 2^53 - 1


# -- records --------------------------------------------------------------------------------------


def check_message(record: dict[str, Any], settings: Settings) -> Message:
    """Return the message of a record in DSkype's own form.

    :raises UnusableRecord: it has to be refused.
    """
    limits = settings.limits
    named = None
    if settings.objects and "object" in record:
        named = str(json.loads(_message_id(record["object"], limits)))
        if not isinstance(deleted := record.get("deleted", False), bool):
            raise UnusableRecord("a deletion that is neither true nor false")
        if deleted:
            return Message(_message_id(record["id"], limits) if "id" in record else None, "", 0.0, 0.0, _time(record), object=named, deleted=True)
    text = _text(_joined(record.get("text"), settings.text_fields) if settings.text_fields else record.get("text"), limits)
    if not settings.text_fields:
        text = text.replace("\u001f", " ")
    if folded_bytes(text) > limits.words_max and _most_words(text, settings) > limits.words_max:
        raise UnusableRecord("a text of too many words")
    bbox = region = None
    if "bbox" in record or "region" in record:
        if "lat" in record or "lon" in record:
            raise UnusableRecord("a point and an area")
        bbox, region = _area(record)
        west, south, east, north = bbox
        middle = (west + east + (360 if west > east else 0)) / 2
        lat, lon = (south + north) / 2, middle - 360 if middle > 180 else middle
        _check_inside(lat, lon, settings.space)
    else:
        lat, lon = _place(record, settings.space)
    ts = _time(record)
    attributes = record.get("attributes")
    if "attributes" in record and not isinstance(attributes, dict):
        raise UnusableRecord("attributes that are no object")
    attributes_of(attributes, settings)
    return Message(_message_id(record["id"], limits) if "id" in record else None, text, lat, lon, ts, bbox, attributes, region, named)


def _time(record: dict[str, Any]) -> int | None:
    ts = record.get("ts")
    if "ts" in record and (not _is_integer(ts, 0, _LARGEST) or 946_684_800 <= ts < 4_102_444_800):  # the latter are seconds of 2000 to 2099
        raise UnusableRecord("a time that is no number of milliseconds since the epoch")
    return ts


def attributes_of(given: dict[str, Any] | None, settings: Settings) -> dict[str, float | frozenset[str]]:
    """Return the attributes of a message that are declared and there: a number, or the strings of which it has one or more.

    :raises UnusableRecord: one has another type, or is missing although it has to be there.
    """
    found: dict[str, float | frozenset[str]] = {}
    for name, attribute in settings.attributes.items():
        value = (given or {}).get(name)
        if value is None:
            if attribute.required:
                raise UnusableRecord(f"no {name}")
        elif attribute.type in ("string", "strings"):
            strings = [value] if attribute.type == "string" else value
            if not isinstance(strings, list) or len(strings) > 256 or not all(isinstance(s, str) and _utf8_bytes(s) <= 1024 for s in strings):
                raise UnusableRecord(f"{name} that is no {attribute.type}")
            if strings:
                found[name] = frozenset(strings)
        else:
            number = number_of(value, attribute.type)
            if number is None:
                raise UnusableRecord(f"{name} that is no {attribute.type}")
            found[name] = number
    return found


def read_key(key: bytes | None, settings: Settings) -> str:
    """Return the subscription's id in a record's key.

    :raises UnusableRecord: there is none.
    """
    try:
        id = (key or b"").decode()
    except UnicodeDecodeError:
        raise UnusableRecord("a key that is not UTF-8") from None
    if not 0 < len(key or b"") <= settings.limits.id_max_bytes:
        raise UnusableRecord("a key that is empty or too long")
    return id


def read_subscription(key: bytes | None, value: bytes | None, settings: Settings) -> Subscription:
    """Return the subscription that a record registers.

    :raises UnusableRecord: it has to be refused.
    """
    limits, id = settings.limits, read_key(key, settings)
    record = object_of(value, limits.text_max_bytes + limits.meta_max_bytes)
    kind = record.get("type")
    name = {"topk": "text", "threshold": "text", "boolean": "expression"}.get(kind) if isinstance(kind, str) else None
    if name is None:
        raise UnusableRecord("an unknown type of subscription")
    if name in record and "keywords" in record:
        raise UnusableRecord(f"{name} and keywords")
    if name not in record and "keywords" not in record and (kind != "boolean" or "text" in record or not ("bbox" in record or "region" in record)):
        raise UnusableRecord(f"neither {name} nor keywords")
    own = "bbox region expression inside initial" if kind == "boolean" else "text lat lon alpha distance scale_m where k min_score"
    if unknown := record.keys() - f"type keywords ttl_s update tenant meta {own}".split():
        raise UnusableRecord(f"a field {min(unknown)} in a {kind} subscription")
    meta = _meta(record, limits)
    if kind == "threshold" and settings.objects:
        raise UnusableRecord("a threshold subscription where there are objects")
    if kind != "boolean":
        words = keywords_of(_text(record["text"], limits), settings) if name in record else _keywords(record["keywords"], settings)
        _check_words(words, limits)
        lat, lon = _place(record, settings.space)
        k, min_score, alpha = record.get("k"), record.get("min_score"), record.get("alpha")
        if ("k" in record) == ("min_score" in record) or ("k" in record) != (kind == "topk"):
            raise UnusableRecord("not a k of a top-k, or a min_score of a threshold subscription")
        if not (_is_integer(k, 1, limits.k_max) or _is_number(min_score, 0, 1)) or not _is_number(alpha, 0, 1):
            raise UnusableRecord("a k, a min_score or an alpha that is none")
        where = None if record.get("where") is None else read_expression(_text(record["where"], limits), settings)
        more = float(alpha), lat, lon, meta, where, _read_scale_m(record), _ttl_s(record), _is_update(record), _tenant(record)
        return TopkSubscription(id, words, *more, k=k) if kind == "topk" else ThresholdSubscription(id, words, *more, min_score=float(min_score))
    if name in record:
        expression = read_expression(_text(record["expression"], limits), settings)
    elif "keywords" in record:
        _check_words(_keywords(record["keywords"], settings), limits)
        expression = read_keywords(record["keywords"], settings)
    else:
        expression = ["all"]
    if not (settings.wordless or needs_word(expression)):
        raise UnusableRecord("an expression that needs no word")
    bbox, region = _area(record) if "bbox" in record or "region" in record else ((-180.0, -90.0, 180.0, 90.0), None)
    if not isinstance(inside := record.get("inside", False), bool):
        raise UnusableRecord("an inside that is neither true nor false")
    more = _ttl_s(record), meta, region, inside, _is_update(record), _initial(record, settings), _tenant(record)
    return BooleanSubscription(id, bbox, expression, *more)


def _initial(record: dict[str, Any], settings: Settings) -> int | None:
    """Return how many messages that match already are asked for at most; None: none are."""
    initial, most = record.get("initial", False), settings.limits.k_max
    if initial is not True and initial is not False and not _is_integer(initial, 1, most):
        raise UnusableRecord("an initial that is neither true nor false, nor a number of messages")
    if initial is not False and settings.objects:
        raise UnusableRecord("an initial where there are objects")
    return most if initial is True else initial or None


def _is_update(record: dict[str, Any]) -> bool:
    if not isinstance(update := record.get("update", False), bool):
        raise UnusableRecord("an update that is neither true nor false")
    return update


def _tenant(record: dict[str, Any]) -> str | None:
    tenant = record.get("tenant")
    if "tenant" not in record:
        return None
    if (
        not isinstance(tenant, str)
        or not 1 <= len(tenant) <= 64
        or not tenant.isascii()
        or not tenant.replace(".", "0").replace("_", "0").replace("-", "0").isalnum()
    ):
        raise UnusableRecord("a tenant that is no name")
    if not tenant[0].isalnum():
        raise UnusableRecord("a tenant whose name begins with a sign")
    return tenant


def _ttl_s(record: dict[str, Any]) -> float | None:
    ttl_s = record.get("ttl_s")
    if "ttl_s" in record and not (_is_number(ttl_s, 0, _LARGEST // 1000) and ttl_s > 0):
        raise UnusableRecord("a lifetime that is no number of seconds above 0")
    return None if ttl_s is None else float(ttl_s)


def _read_scale_m(record: dict[str, Any]) -> float | None:
    distance, scale_m = record.get("distance"), record.get("scale_m")
    if distance == "metres" and _is_number(scale_m, 1, 100_000_000):
        return float(scale_m)
    if distance not in (None, "degrees") or scale_m is not None:
        raise UnusableRecord("a distance or a scale that is none")
    return None


def object_of(value: bytes | None, content_bytes: int) -> dict[str, Any]:
    """Return the JSON object in a record's value.

    :param content_bytes: the most bytes of its texts.
    :raises UnusableRecord: it is none.
    """

    def no_number(literal: str) -> NoReturn:
        raise UnusableRecord(f"{literal}, which is no JSON")

    if value is None or len(value) > 6 * content_bytes + 65536:
        raise UnusableRecord("no value, or one that is too long")
    try:
        record = json.loads(value.decode(), parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise UnusableRecord(f"a value that is no JSON in UTF-8: {error}") from None
    if not isinstance(record, dict):
        raise UnusableRecord("a value that is no object")
    return record


def _text(value: Any, limits: Limits) -> str:
    if not isinstance(value, str):
        raise UnusableRecord("a text that is no string")
    if _utf8_bytes(value) > limits.text_max_bytes or folded_bytes(value) > 2 * limits.text_max_bytes:
        raise UnusableRecord("a text that is too long")
    return value


def _most_words(text: str, settings: Settings) -> int:
    """Return how many words a text has; where a segmenter cuts them, each character of a word in one of their scripts may be one."""
    if not any(one.segmenter for one in (settings.text_analyzer, *(one for _, one in settings.field_analyzers))):
        return len(words_of(text))
    return sum(len(word) if any(one.script.search(word) for one in SEGMENTERS.values()) else 1 for word in words_of(text))


def _joined(text: Any, fields: Sequence[str]) -> str:
    """Return the texts of a message's text fields with U+001F between them, for which there is a space inside them."""
    if isinstance(text, str):
        text = {fields[0]: text}
    if not isinstance(text, dict) or not any(name in text for name in fields):
        raise UnusableRecord("a text that is no string, and has none of the text fields")
    texts = [text.get(name, "") for name in fields]
    if not all(isinstance(t, str) for t in texts):
        raise UnusableRecord("a text field that is no string")
    return "\u001f".join(t.replace("\u001f", " ") for t in texts)


def _utf8_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise UnusableRecord("half a surrogate pair") from None


def _keywords(listed: Any, settings: Settings) -> list[str]:
    limits = settings.limits
    if not isinstance(listed, list) or not 0 < len(listed) <= 16 * limits.keywords_max:
        raise UnusableRecord("keywords that are no list, or too many")
    texts = [_text(keyword, limits) for keyword in listed]
    if sum(map(folded_bytes, texts)) > 2 * limits.text_max_bytes:
        raise UnusableRecord("keywords that are too long together")
    found = [keywords_of(text, settings) for text in texts]
    if not all(found):
        raise UnusableRecord("a keyword without a word")
    return [word for words in found for word in words]


def _check_words(words: Sequence[str], limits: Limits) -> None:
    if not 0 < len(set(words)) <= limits.keywords_max or len(words) > 16 * limits.keywords_max:
        raise UnusableRecord("no words, or too many")


def _is_number(value: Any, least: float, most: float) -> bool:
    return type(value) in (int, float) and least <= value <= most


def _is_integer(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _place(record: dict[str, Any], space: Space) -> tuple[float, float]:
    lat, lon = record.get("lat"), record.get("lon")
    if not (_is_number(lat, -90, 90) and _is_number(lon, -180, 180)):
        raise UnusableRecord("no place on the globe")
    _check_inside(lat, lon, space)
    return float(lat), float(lon)


def _check_inside(lat: float, lon: float, space: Space) -> None:
    if not (space.south <= lat <= space.north and space.west <= lon <= space.east):
        raise UnusableRecord("a place outside the data space")


def _area(record: dict[str, Any]) -> tuple[tuple[float, float, float, float], Any]:
    """Return (rectangle, region) of a record that has one of them. The region stays as it is in JSON, for :mod:`dskype.deploy.verification.geometry`; None: it is
    the rectangle.
    """
    if "region" not in record:
        return _bbox(record), None
    if "bbox" in record:
        raise UnusableRecord("a bbox and a region")
    try:
        region = geometry.read_region(record["region"])
    except ValueError as error:
        raise UnusableRecord(str(error)) from None
    return geometry.box_of(region), None if geometry.is_box(region) else region


def _bbox(record: dict[str, Any]) -> tuple[float, float, float, float]:
    bbox = record.get("bbox")
    if not (isinstance(bbox, list) and len(bbox) == 4 and all(_is_number(b, -most, most) for b, most in zip(bbox, (180, 90, 180, 90))) and bbox[1] <= bbox[3]):
        raise UnusableRecord("no rectangle on the globe")
    west, south, east, north = map(float, bbox)
    return west, south, east, north


def _message_id(id: Any, limits: Limits) -> str:
    if not (_is_integer(id, -(1 << 63), (1 << 63) - 1) or (isinstance(id, str) and 0 < _utf8_bytes(id) <= limits.id_max_bytes)):
        raise UnusableRecord("an id that is neither a string nor an integer of 64 bits")
    return json.dumps(id, ensure_ascii=False)


def _meta(record: dict[str, Any], limits: Limits) -> str | None:
    if "meta" not in record:
        return None
    try:
        meta = json.dumps(record["meta"], separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise UnusableRecord("meta that is no JSON") from None
    if _utf8_bytes(meta) > limits.meta_max_bytes:
        raise UnusableRecord("meta that is too long")
    return meta


# -- weights and rectangles -----------------------------------------------------------------------


class Weights:
    """The numbers and weights of words: known ones as in the vocabulary's file, others as they come.

    :param path: the vocabulary's file; None: there is none.
    :ivar numbers: word -> number, of all words so far.
    :raises IllegalArgumentException: it cannot be read.
    """

    def __init__(self, path: str | None) -> None:
        self._documents, self._df = 1, list[int]()
        self.numbers: dict[str, int] = {}
        if path is not None:
            try:
                with open(path, encoding="utf-8", newline="\n") as file:
                    self._documents = json.loads(file.readline())["documents"]
                    for line in file:
                        word, _, df = line.rstrip("\n").partition("\t")
                        self.numbers[word] = len(self._df)
                        self._df.append(int(df))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise IllegalArgumentException(explain("Cannot read the vocabulary file", given=path, hint=str(error))) from error

    def number(self, word: str) -> int:
        """Return a word's number; it stays the same from then on."""
        return self.numbers.setdefault(word, len(self.numbers))

    def weigh(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of a text's words, int64[], rising, each once, and their weights float64[]: tf * ln(1 + N / df), of norm 1."""
        counts = sorted(Counter(map(self.number, words)).items())
        raw = [tf * math.log(1 + self._documents / (self._df[number] if number < len(self._df) else 1)) for number, tf in counts]
        norm = math.sqrt(math.fsum(weight * weight for weight in raw))
        return np.array([number for number, _ in counts], np.int64), np.array(raw, np.float64) / (norm or 1.0)


def meeting(areas: np.ndarray, bbox: Sequence[float]) -> np.ndarray:
    """Tell which areas share a point with a rectangle, borders included, bool[n].

    :param areas: float64[n, 4], (west, south, east, north) in degrees; west > east crosses the antimeridian, and so may ``bbox``.
    """
    west, south, east, north = areas.T
    crossing = west > east
    found = np.zeros(len(areas), np.bool_)
    for begin, end in [(bbox[0], bbox[2])] if bbox[0] <= bbox[2] else [(bbox[0], 180.0), (-180.0, bbox[2])]:
        found |= np.where(crossing, (west <= end) | (begin <= east), (west <= end) & (begin <= east))
    return found & (south <= bbox[3]) & (bbox[1] <= north)
