"""Messages and subscriptions as records of Kafka topics: JSON in UTF-8, checked before anything else sees it.

A record that cannot be used raises :class:`RecordError` with one sentence for the ``error`` header of the dead letter. Unknown fields of a message are
ignored. Those of a subscription are refused: without a condition that its author believes in, it would match too much. An optional field is either absent or has its type; only ``meta`` and ``where`` may be null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from dskype.spouts import expression as expressions
from dskype.spouts.attributes import Attributes
from dskype.spouts.expression_parser import ExpressionError, Language, of_keywords, parse
from dskype.spouts.filters import is_wordless
from dskype.spouts.record_values import (
    RecordError,
    check_folded,
    check_text,
    check_time,
    encode_json,
    is_update,
    json_object,
    longest_bytes,
    message_id,
    message_text,
    object_id,
    refusal,
    scale_of,
    shown,
    tenant_of,
    ttl_s_of,
)
from dskype.spouts.segmenters import count_segmented_words
from dskype.spouts.space import WORLD, Space
from dskype.spouts.subscriptions import BooleanSubscription, Subscription, ThresholdSubscription, TopkSubscription
from dskype.spouts.text import BORDER, MOST_FOLDED_BYTES, Tokenizer, count_words, folded_bytes
from dskype.topology.errors import IllegalArgumentException, explain

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "PLAN_BYTES_MAX",
    "Limits",
    "Message",
    "RecordError",
    "areas_of",
    "encode_attributes",
    "longest_record_bytes",
    "message_of_deletion",
    "parse_key",
    "parse_message",
    "parse_plan",
    "parse_subscription",
]


PLAN_BYTES_MAX = 1_000_000
"""The most bytes of a plan in a record. Brokers accept records of up to 1 MiB by default, including headers."""
PLAN_VERSION_MAX = 9007199254740991
"""The highest version of a plan: JavaScript has no higher integers without gaps."""


@dataclass(frozen=True)
class Limits:
    """The limits that records are checked against.

    :param k_max: greatest ``k`` of a top-k subscription.
    :param keywords_max: most different keywords of a subscription.
    :param text_max_bytes: longest text (or expression) in bytes of UTF-8; it may double when it is normalised and case-folded.
    :param words_max: most words of a message's text, repetitions and stop words included.
    :param segmented: whether a segmenter cuts texts; then each character of its script counts as a word.
    :param expression_max_depth: most parentheses open at once.
    :param expression_max_terms: most terms of an expression, repetitions included.
    :param meta_max_bytes: longest ``meta`` as compact JSON.
    :param id_max_bytes: longest id of a message or subscription in bytes of UTF-8.
    """

    k_max: int = 100
    keywords_max: int = 64
    text_max_bytes: int = 262144
    words_max: int = 16384
    expression_max_depth: int = 16
    expression_max_terms: int = 256
    meta_max_bytes: int = 512
    id_max_bytes: int = 128
    segmented: bool = False


_DEFAULTS = Limits()


def longest_record_bytes(limits: Limits) -> int:
    """Return the greatest length of a record's value."""
    return longest_bytes(limits.text_max_bytes + limits.meta_max_bytes)


class Message(NamedTuple):
    """A geo-tagged message: a point or an area.

    :ivar id: the id as JSON text (``17`` or ``"a17"``); None: its id is its place in the topic, ``"<partition>-<offset>"``.
    :ivar text: its text, which may have no keyword; of several fields, their texts in order with :data:`~dskype.spouts.text.BORDER` between them, which becomes a space inside them.
    :ivar lat, lon: degrees, inside the data space; of an area, its centre.
    :ivar ts: event time in ms since the epoch, 0..2^53 - 1, but not what is meant as seconds; None if the record has none.
    :ivar bbox: (west, south, east, north) of an area in degrees; west > east crosses the antimeridian. None: a point.
    :ivar attributes: the JSON object of its attributes; None if the record has none.
    :ivar region: an encoded region (:mod:`dskype.spouts.regions`) in ``bbox``; None: a point, or the rectangle.
    :ivar object: the id of the object whose state it is, as text; None: it is of no object.
    :ivar deleted: whether the object ends with it; then it has neither text nor place.
    """

    id: str | None
    text: str
    lat: float
    lon: float
    ts: int | None
    bbox: tuple[float, float, float, float] | None = None
    attributes: dict[str, Any] | None = None
    region: list[float] | None = None
    object: str | None = None
    deleted: bool = False


_new = tuple.__new__


def areas_of(messages: Sequence[Message]) -> np.ndarray | None:
    """Return where messages are as :class:`~dskype.spouts.batch.MessageBatch` has it in ``areas``; None where all of them are points."""
    if all(m.bbox is None for m in messages):
        return None
    import numpy as np  # here, because clients of points need not load it

    return np.array([(m.lon, m.lat, m.lon, m.lat) if m.bbox is None else m.bbox for m in messages], np.float64)


def parse_message(
    value: bytes | dict[str, Any] | None, *, space: Space = WORLD, limits: Limits = _DEFAULTS, text_fields: Sequence[str] = (), objects: bool = False
) -> Message:
    """Read a record of the messages topic: ``{"id"?: str|int, "text": str, "lat": deg, "lon": deg, "ts"?: epoch ms, "attributes"?: {name: value}}``.

    An area has ``"bbox": [west, south, east, north]`` in place of ``lat`` and ``lon``; its centre must be inside the data space.

    :param value: JSON, or the object that it stands for.
    :param text_fields: the names of text fields, in order: ``text`` may be an object that has some of them.
    :param objects: whether ``"object": str|int`` names the object whose state the message is; one with ``"deleted": true`` needs neither text nor place.
    :raises RecordError: if it cannot be used.

    >>> parse_message(b'{"id": "a17", "text": "Late coffee", "lat": 48.1, "lon": 11.6, "user": 5}')
    Message(id='"a17"', text='Late coffee', lat=48.1, lon=11.6, ts=None, bbox=None, attributes=None, region=None, object=None, deleted=False)
    >>> parse_message(b'{"text": "Rain", "bbox": [11, 48, 12, 49]}')
    Message(id=None, text='Rain', lat=48.5, lon=11.5, ts=None, bbox=(11.0, 48.0, 12.0, 49.0), attributes=None, region=None, object=None, deleted=False)
    >>> parse_message(b'{"text": "Late coffee", "lat": 198.1, "lon": 11.6}')
    Traceback (most recent call last):
    dskype.spouts.record_values.RecordError: Expected 'lat' in degrees; given: 198.1; legal: a number from -90 to 90
    """
    text_max_bytes, words_max = limits.text_max_bytes, limits.words_max
    record = value if type(value) is dict else json_object(value, text_max_bytes, "a message")
    object = None
    if objects and "object" in record:
        object = object_id(record["object"], limits.id_max_bytes)
        if "deleted" in record and _is_deleted(record):
            return _deletion(record, object, limits)
    text = record.get("text")
    if type(text) is not str or text_fields:
        text = message_text(record, text_fields)
    if not text.isascii() or len(text) > text_max_bytes or len(text) > words_max:
        check_folded(check_text(text, "text", text_max_bytes), "text", text_max_bytes)
        _check_words(text, limits)
    if not text_fields and BORDER in text:  # it is between fields only
        text = text.replace(BORDER, " ")
    bbox = region = None
    lat, lon = record.get("lat"), record.get("lon")
    if "bbox" in record or "region" in record:
        lat, lon, bbox, region = _area(record, space)
    elif not (type(lat) is float and type(lon) is float and space.south <= lat <= space.north and space.west <= lon <= space.east):
        if "lat" not in record and "lon" not in record:
            raise refusal("no-place", "Expected 'lat' and 'lon', 'bbox' or 'region'", "none of them")
        lat, lon = _place(record, space)
    id = ts = attributes = None
    if "id" in record:
        id = message_id(record["id"], limits.id_max_bytes)
    if "ts" in record:
        ts = record["ts"]
        check_time(ts)
    if "attributes" in record:
        attributes = record["attributes"]
        if type(attributes) is not dict:
            _refuse("invalid-attributes", "Expected 'attributes' as a JSON object", record, "attributes", 'such as {"price": 12.5}')
    return _new(Message, (id, text, lat, lon, ts, bbox, attributes, region, object, False))  # one call less than Message(...), and there are many messages


def message_of_deletion(key: bytes | None, limits: Limits = _DEFAULTS) -> Message:
    """Return the message that a record without a value stands for: the object in its key ends.

    :raises RecordError: the key is no id.
    """
    return Message(None, "", 0.0, 0.0, None, object=parse_key(key, limits, "object"), deleted=True)


def encode_attributes(declared: Attributes, message: Message) -> list[int]:
    """Return the attributes of a message as they travel (:meth:`Attributes.encode`).

    :raises RecordError: one is missing or has another type.
    """
    if not declared:
        return []
    try:
        return declared.encode(message.attributes)
    except IllegalArgumentException as error:
        raise RecordError(str(error), "invalid-attributes") from None


def parse_key(key: bytes | None, limits: Limits = _DEFAULTS, kind: str = "subscription") -> str:
    """Return the id in a record's key.

    :param kind: of what, for errors.
    :raises RecordError: the key is empty, too long, or not UTF-8.
    """
    if not key:
        raise RecordError(explain(f"Expected the {kind} id as the record's key", given=key, legal=f"1 to {limits.id_max_bytes} bytes of UTF-8"), "no-key")
    if len(key) > limits.id_max_bytes:
        raise refusal("long-key", f"Expected a shorter {kind} id as the record's key", f"{len(key)} bytes", f"1 to {limits.id_max_bytes} bytes of UTF-8")
    try:
        return key.decode()
    except UnicodeDecodeError as e:
        raise RecordError(explain(f"Expected the record's key in UTF-8 (wrong at byte {e.start + 1})", given=key[:40]), "invalid-utf8") from None


def parse_subscription(
    key: bytes | None,
    value: bytes | None,
    *,
    tokenizer: Tokenizer,
    space: Space = WORLD,
    limits: Limits = _DEFAULTS,
    language: Language | None = None,
    objects: bool = False,
) -> Subscription:
    """Read a record of the subscriptions topic that registers a subscription; a null value unregisters, see :func:`parse_key`.

    ``{"type":"topk","text": str | "keywords":[str],"lat","lon","k": int,"alpha": 0..1,"distance"?: "degrees" | "metres","scale_m"?: float,"where"?: str,"ttl_s"?: number,"tenant"?: str,"meta"?: any}``: ``text`` and each keyword are
    cut into tokens, and each token counts as often as it occurs. Only messages that satisfy the expression ``where`` count.

    ``{"type":"threshold",...}`` has the fields of ``topk``, but ``"min_score": 0..1`` in place of ``k``.

    ``{"type":"boolean","bbox"?:[west,south,east,north] | "region"?: REGION,"expression"?: str | "keywords":[str],"ttl_s"?: number,"inside"?: bool,"initial"?: bool | int,"tenant"?: str,"meta"?: any}``: without a place the
    subscription is about the whole globe, and without words about all messages in its place. One of the two must be there.

    :param language: what expressions may speak of; None: of words, in the limits.
    :param objects: whether messages may be states of objects, with which some subscriptions do not work.
    :raises RecordError: if it cannot be used.

    >>> parse_subscription(b"s1", b'{"type": "boolean", "bbox": [11, 48, 12, 49], "expression": "coffee OR tea"}', tokenizer=Tokenizer())
    BooleanSubscription(id='s1', bbox=(11.0, 48.0, 12.0, 49.0), expression=['or', 'coffee', 'tea'], ttl_s=None, meta=None, region=None, inside=False, update=False, initial=None, tenant=None)
    """
    id = parse_key(key, limits)
    record = json_object(value, limits.text_max_bytes, "a subscription", limits.meta_max_bytes)
    kind = record.get("type")
    language = language or Language(max_depth=limits.expression_max_depth, max_terms=limits.expression_max_terms)
    if kind in ("topk", "threshold"):
        found: Subscription = _scoring(id, record, tokenizer, space, limits, language)
    elif kind == "boolean":
        found = _boolean(id, record, tokenizer, limits, language)
    else:
        _refuse("unknown-type", "Expected the 'type' of the subscription", record, "type", '"topk", "boolean" or "threshold"')
    for name in record:
        if name not in _FIELDS[kind]:
            _refuse_field(name, record)
    if objects:
        _check_with_objects(found)
    return found


def _check_with_objects(subscription: Subscription) -> None:
    """Refuse a subscription that does not work in a topology with ``dskype.objects``.

    :raises RecordError: it has a threshold, or asks for what matches already.
    """
    if isinstance(subscription, ThresholdSubscription):
        hint = "use a boolean or a top-k subscription, or another topology without dskype.objects"
        raise RecordError(
            explain("Threshold subscriptions do not work with dskype.objects", given="threshold", legal="boolean, topk", hint=hint), "no-threshold"
        )
    if isinstance(subscription, BooleanSubscription) and subscription.initial is not None:
        hint = "leave 'initial' out: the next update of each object says what it enters"
        raise RecordError(explain("'initial' does not work with dskype.objects", given=subscription.initial, hint=hint), "no-initial")


_OF_ALL = ("type", "keywords", "ttl_s", "update", "tenant", "meta")
_OF_SCORED = (*_OF_ALL, "text", "lat", "lon", "alpha", "distance", "scale_m", "where")
_FIELDS = {"topk": (*_OF_SCORED, "k"), "threshold": (*_OF_SCORED, "min_score"), "boolean": (*_OF_ALL, "bbox", "region", "expression", "inside", "initial")}
"""Type of subscription -> its fields."""


def _refuse_field(name: str, record: dict[str, Any]) -> NoReturn:
    """Refuse a field that a subscription of this type does not have."""
    kind = record["type"]
    if name == "where":
        hint = "the 'expression' of a boolean subscription may compare attributes, too"
    elif near := get_close_matches(name, _FIELDS[kind], 1):
        hint = f"perhaps '{near[0]}' is meant"
    elif name == "id":
        hint = "the id is the key of the record"
    else:
        hint = "data of your own belongs in 'meta'"
    raise refusal(
        "unknown-field", f"Expected no field '{name[:40]}' in a subscription of the type '{kind}'", shown(record[name]), ", ".join(_FIELDS[kind]), hint
    )


def parse_plan(value: bytes | None) -> tuple[int, dict[str, Any]]:
    """Read a record of the topic of plans, ``{"v": 1, "version": int, "plan": {...}}``; return version and plan. The distributor says whether it can use the plan.

    :raises RecordError: it is no plan.

    >>> parse_plan(b'{"v": 1, "version": 0, "plan": {}}')
    Traceback (most recent call last):
    dskype.spouts.record_values.RecordError: Expected the 'version' of a plan; given: 0; legal: an integer from 1 to 9007199254740991
    """
    record = json_object(value, PLAN_BYTES_MAX, "a plan")
    if record.get("v") != 1:
        _refuse("invalid-plan", "Expected a plan in the format 'v'", record, "v", "1")
    version, plan = record.get("version"), record.get("plan")
    if type(version) is not int or not 0 < version <= PLAN_VERSION_MAX:
        _refuse("invalid-plan", "Expected the 'version' of a plan", record, "version", f"an integer from 1 to {PLAN_VERSION_MAX}")
    if type(plan) is not dict:
        _refuse("invalid-plan", "Expected 'plan' as a JSON object", record, "plan")
    return version, plan


def _scoring(
    id: str, record: dict[str, Any], tokenizer: Tokenizer, space: Space, limits: Limits, language: Language
) -> TopkSubscription | ThresholdSubscription:
    """Read a subscription that gives messages a score: ``topk`` or ``threshold``."""
    if _one_of(record, "text", "keywords") == "text":
        text = check_folded(check_text(record["text"], "text", limits.text_max_bytes), "text", limits.text_max_bytes)
        keywords = tokenizer.keywords(text)
        if not keywords:
            _refuse("no-keyword", "Expected 'text' with at least one keyword", record, "text", "a word with letters or digits that is not a stop word")
        _check_count(keywords, "text", limits)
    else:
        keywords = _keywords(record, tokenizer, limits)
    lat, lon = _place(record, space)
    k, alpha, min_score, topk = record.get("k"), record.get("alpha"), record.get("min_score"), record["type"] == "topk"
    other, hint = ("min_score", "the type 'threshold' has 'min_score' in place of 'k'") if topk else ("k", "the type 'topk' has 'k' in place of 'min_score'")
    if other in record:
        _refuse(f"invalid-{other.replace('_', '-')}", f"Expected no '{other}' in a subscription of the type '{record['type']}'", record, other, "nothing", hint)
    if "initial" in record:
        hint = "its first list is the best of the window already" if topk else "a search finds what is in the window"
        _refuse("invalid-initial", f"Expected no 'initial' in a subscription of the type '{record['type']}'", record, "initial", "nothing", hint)
    if topk and (type(k) is not int or not 1 <= k <= limits.k_max):
        _refuse("invalid-k", "Expected 'k'", record, "k", f"an integer from 1 to {limits.k_max}")
    if not topk and (type(min_score) not in (int, float) or not 0 <= min_score <= 1):
        _refuse("invalid-min-score", "Expected 'min_score'", record, "min_score", "a number from 0 to 1")
    if type(alpha) not in (int, float) or not 0 <= alpha <= 1:
        _refuse("invalid-alpha", "Expected 'alpha'", record, "alpha", "a number from 0 to 1")
    where = None if record.get("where") is None else _expression(record, "where", tokenizer, limits, language)
    more = float(alpha), lat, lon, _meta(record, limits), where, scale_of(record), ttl_s_of(record), is_update(record), tenant_of(record)
    return TopkSubscription(id, keywords, *more, k=k) if topk else ThresholdSubscription(id, keywords, *more, min_score=float(min_score))


def _expression(record: dict[str, Any], name: str, tokenizer: Tokenizer, limits: Limits, language: Language) -> expressions.Expression:
    try:
        return parse(check_folded(check_text(record[name], name, limits.text_max_bytes), name, limits.text_max_bytes), tokenizer, language)
    except ExpressionError as e:
        raise RecordError(str(e), "invalid-expression") from e


_WORLD_BBOX = (-180.0, -90.0, 180.0, 90.0)


def _boolean(id: str, record: dict[str, Any], tokenizer: Tokenizer, limits: Limits, language: Language) -> BooleanSubscription:
    if not ("expression" in record or "keywords" in record):
        if "text" in record:  # without it, this would be a subscription to everything in its place
            _refuse("no-keyword", "Expected 'expression' or 'keywords' in a boolean subscription, not 'text'", record, "text")
        if "bbox" not in record and "region" not in record:
            raise refusal("no-keyword", "Expected 'expression', 'keywords', 'bbox' or 'region'", "none of them")
        expression = expressions.EVERYTHING
    elif _one_of(record, "expression", "keywords") == "expression":
        expression = _expression(record, "expression", tokenizer, limits, language)
    else:
        _keywords(record, tokenizer, limits)
        expression = of_keywords(record["keywords"], tokenizer)
    if not language.wordless and is_wordless(expression):
        hint = "dskype.boolean.wordless: true allows subscriptions that messages without any of their words can satisfy"
        raise refusal("no-keyword", "Expected an expression that needs a word", shown(expressions.to_text(expression)), hint=hint)
    bbox, region = _bbox_and_region(record)
    inside = record.get("inside", False)
    if type(inside) is not bool:
        _refuse("invalid-inside", "Expected 'inside' as a boolean", record, "inside", "true or false")
    more = ttl_s_of(record), _meta(record, limits), region, inside, is_update(record), _initial(record, limits), tenant_of(record)
    return BooleanSubscription(id, bbox, expression, *more)


def _initial(record: dict[str, Any], limits: Limits) -> int | None:
    """Return how many of the messages that match already a subscription wants at most; None: none."""
    initial = record.get("initial", False)
    if type(initial) is bool:
        return limits.k_max if initial else None
    if type(initial) is not int or not 1 <= initial <= limits.k_max:
        _refuse("invalid-initial", "Expected 'initial'", record, "initial", f"true, false, or an integer from 1 to {limits.k_max}")
    return initial


def _refuse(code: str, words: str, record: dict[str, Any], name: str, legal: str | None = None, hint: str | None = None) -> NoReturn:
    raise refusal(code, words, shown(record[name]) if name in record else "nothing", legal, hint)


# -- fields ---------------------------------------------------------------------------------------


_SWAPPED = "the place would be legal with 'lat' and 'lon' exchanged"


def _place(record: dict[str, Any], space: Space) -> tuple[float, float]:
    """Return (lat, lon), checked."""
    place = []
    for name, bound in (("lat", 90), ("lon", 180)):
        degrees = record.get(name)
        if type(degrees) not in (int, float) or not -bound <= degrees <= bound:
            hint = _SWAPPED if _is_inside(record.get("lon"), record.get("lat"), space) else None
            _refuse(f"invalid-{name}", f"Expected '{name}' in degrees", record, name, f"a number from -{bound} to {bound}", hint)
        place.append(float(degrees))
    lat, lon = place
    if not space.contains(lat, lon):
        legal = f"lat from {space.south} to {space.north}, lon from {space.west} to {space.east}"
        hint = _SWAPPED if space.contains(lon, lat) else None
        raise refusal("outside-space", "Expected a place inside the data space", f"lat {lat}, lon {lon}", legal, hint)
    return lat, lon


def _is_inside(lat: Any, lon: Any, space: Space) -> bool:
    return type(lat) in (int, float) and type(lon) in (int, float) and space.contains(lat, lon)


def _bbox(record: dict[str, Any]) -> tuple[float, float, float, float]:
    """Return a rectangle, checked."""
    bbox = record.get("bbox")
    legal = "[west, south, east, north] in degrees, -180 <= west, east <= 180, -90 <= south <= north <= 90; west > east crosses the antimeridian"
    if type(bbox) is not list or len(bbox) != 4 or not all(type(b) in (int, float) for b in bbox):
        _refuse("invalid-bbox", "Expected 'bbox' as four numbers", record, "bbox", legal)
    west, south, east, north = bbox
    if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90):
        _refuse("invalid-bbox", "Expected 'bbox' on the globe", record, "bbox", legal)
    return float(west), float(south), float(east), float(north)


def _bbox_and_region(record: dict[str, Any]) -> tuple[tuple[float, float, float, float], list[float] | None]:
    """Return (bbox, encoded region) of a record with one of the two, or with neither: the globe. A region that is a rectangle is its bbox."""
    if "region" not in record:
        return _bbox(record) if "bbox" in record else _WORLD_BBOX, None
    if "bbox" in record:
        raise refusal("two-places", "Expected 'bbox' or 'region', not both", f"bbox {shown(record['bbox'])}, region {shown(record['region'])}")
    from dskype.spouts.regions import bounding_box, is_rectangle, parse_region  # here, because clients of points need not load numpy

    try:
        region = parse_region(record["region"])
    except IllegalArgumentException as error:
        raise RecordError(str(error), "invalid-region") from None
    return bounding_box(region), None if is_rectangle(region) else region.tolist()


def _area(record: dict[str, Any], space: Space) -> tuple[float, float, tuple[float, float, float, float], list[float] | None]:
    """Return (lat, lon, bbox, encoded region) of a message that is an area, checked; (lat, lon) is its centre."""
    from dskype.spouts.areas import centre_of  # here, because clients of points need not load numpy

    if "lat" in record or "lon" in record:
        given = ", ".join(f"{name} {shown(record[name])}" for name in ("lat", "lon", "bbox", "region") if name in record)
        raise refusal("two-places", "Expected 'lat' and 'lon', 'bbox', or 'region', not several", given)
    bbox, region = _bbox_and_region(record)
    lat, lon = centre_of(*bbox)
    if not space.contains(lat, lon):
        legal = f"lat from {space.south} to {space.north}, lon from {space.west} to {space.east}"
        name = "bbox" if "bbox" in record else "region"
        given = f"{shown(record[name])} around lat {lat}, lon {lon}"
        raise refusal("outside-space", "Expected an area whose centre is inside the data space", given, legal)
    return lat, lon, bbox, region


def _check_words(text: str, limits: Limits) -> None:
    """Refuse a text of too many words. Most texts are too short for that and need not be cut into words."""
    least_bytes = limits.words_max if limits.segmented else 2 * limits.words_max - 1
    longest = len(text) if text.isascii() else len(text) * MOST_FOLDED_BYTES
    if longest <= least_bytes or (not text.isascii() and folded_bytes(text) <= least_bytes):
        return
    if (words := count_segmented_words(text) if limits.segmented else count_words(text)) > limits.words_max:
        legal = f"up to {limits.words_max}, repetitions included" + (", and each character of a script without spaces is one" if limits.segmented else "")
        raise refusal("many-words", "Expected fewer words in 'text'", str(words), legal)


def _is_deleted(record: dict[str, Any]) -> bool:
    if type(deleted := record["deleted"]) is not bool:
        _refuse("invalid-object", "Expected 'deleted' as a boolean", record, "deleted", "true or false")
    return bool(deleted)


def _deletion(record: dict[str, Any], object: str, limits: Limits) -> Message:
    id = message_id(record["id"], limits.id_max_bytes) if "id" in record else None
    if "ts" in record:
        check_time(record["ts"])
    return Message(id, "", 0.0, 0.0, record.get("ts"), object=object, deleted=True)


def _one_of(record: dict[str, Any], name: str, other: str) -> str:
    """Return which of two fields the record has; it must have exactly one."""
    if name in record and other in record:
        raise refusal("two-expressions", f"Expected '{name}' or '{other}', not both", f"{shown(record[name])} and {shown(record[other])}")
    if name not in record and other not in record:
        raise refusal("no-keyword", f"Expected '{name}' or '{other}'", "neither")
    return name if name in record else other


_REPEATED = 16
"""How many times as many keywords as there may be different ones: repetitions count, but the record on the wire stays small."""


def _keywords(record: dict[str, Any], tokenizer: Tokenizer, limits: Limits) -> list[str]:
    listed = record["keywords"]
    if type(listed) is not list or not listed:
        _refuse("invalid-keywords", "Expected 'keywords' as a list of strings", record, "keywords", f"1 to {limits.keywords_max} keywords")
    if len(listed) > (most := _REPEATED * limits.keywords_max):
        raise refusal("many-keywords", "Expected fewer 'keywords'", shown(listed), f"up to {most}, repetitions included")
    found: list[str] = []
    left = 2 * limits.text_max_bytes  # together they may be as long as a text
    for i, keyword in enumerate(listed, 1):
        check_folded(check_text(keyword, f"keyword {i}", limits.text_max_bytes), f"keyword {i}", limits.text_max_bytes)
        left -= len(keyword) if keyword.isascii() else folded_bytes(keyword)
        if left < 0:
            legal = f"up to {2 * limits.text_max_bytes} bytes of UTF-8 together, in NFKC, case-folded"
            raise refusal("long-text", "Expected shorter 'keywords'", shown(listed), legal)
        tokens = tokenizer.keywords(keyword)
        if not tokens:
            raise refusal("no-keyword", f"Expected keyword {i} with a word", shown(keyword), "letters or digits that are not a stop word")
        found += tokens
        if len(found) > most:
            break
    return _check_count(found, "keywords", limits)


def _check_count(keywords: list[str], name: str, limits: Limits) -> list[str]:
    if (different := len(set(keywords))) > limits.keywords_max:
        raise refusal("many-keywords", f"Expected fewer different words in '{name}'", f"{different} or more", f"1 to {limits.keywords_max}")
    if len(keywords) > (most := _REPEATED * limits.keywords_max):
        raise refusal("many-keywords", f"Expected fewer words in '{name}'", f"{len(keywords)} or more", f"up to {most}, repetitions included")
    return keywords


def _meta(record: dict[str, Any], limits: Limits) -> str | None:
    """Return ``meta`` as compact JSON."""
    if "meta" not in record:
        return None
    try:
        meta = encode_json(record["meta"])
        size = len(meta.encode())
    except UnicodeEncodeError:
        raise RecordError("Expected 'meta' of whole characters, without half a surrogate pair", "invalid-meta") from None
    except ValueError:
        raise RecordError("Expected 'meta' with numbers that fit into 64 bit floating point", "invalid-meta") from None
    except RecursionError:
        raise RecordError("Expected 'meta' with less nesting", "invalid-meta") from None
    if size > limits.meta_max_bytes:
        raise refusal("long-meta", "Expected a shorter 'meta'", f"{size} bytes", f"up to {limits.meta_max_bytes} bytes of compact JSON")
    return meta
