"""Which records are messages and subscriptions, and the errors for all others."""

import doctest
import json
import random
import unicodedata
from pathlib import Path

import msgpack
import pytest

from dskype.spouts import record_values
from dskype.spouts import records as module
from dskype.spouts.expression import EVERYTHING
from dskype.spouts.expression_parser import Language
from dskype.spouts.records import Limits, Message, RecordError, areas_of, parse_key, parse_message, parse_plan, parse_subscription
from dskype.spouts.space import WORLD, Space
from dskype.spouts.subscriptions import BooleanSubscription, ThresholdSubscription, TopkSubscription, subscription_from_record
from dskype.spouts.text import MOST_FOLDED_BYTES, Tokenizer, folded_bytes
from dskype.topology.errors import DeadLetter

MESSAGE = {"id": "a17", "text": "Late coffee", "lat": 48.1, "lon": 11.6, "ts": 1364774400000}
TOPK = {"type": "topk", "text": "late Coffee, late", "lat": 48.1, "lon": 11.6, "k": 10, "alpha": 0.5}
THRESHOLD = {"type": "threshold", "text": "late Coffee, late", "lat": 48.1, "lon": 11.6, "min_score": 0.6, "alpha": 0.5}
BOOLEAN = {"type": "boolean", "bbox": [11, 48, 12, 49], "expression": 'coffee AND (wifi OR "late night")', "ttl_s": 60}
ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()
TOKENIZER = Tokenizer(["the"])


def changed(record, **fields):
    return {name: value for name, value in {**record, **fields}.items() if value is not ABSENT}


def message(record, **options):
    return parse_message(record if isinstance(record, bytes) else json.dumps(record).encode(), **options)


def subscription(record, key=b"s1", **options):
    return parse_subscription(key, record if isinstance(record, bytes) else json.dumps(record).encode(), tokenizer=TOKENIZER, **options)


CODES = (Path(__file__).parents[2] / "docs" / "guides" / "metrics.md").read_text().partition("## Codes of dead letters")[2].partition("\n## ")[0]
"""The documented codes of dead letters."""


def reason_of(parse, *args, **options):
    with pytest.raises(RecordError) as e:
        parse(*args, **options)
    assert isinstance(e.value, DeadLetter) and e.value.reason == str(e.value)
    assert f"`{e.value.code}`" in CODES
    assert "\n" not in e.value.reason and len(e.value.reason) < 500 and e.value.reason.encode()
    return e.value.reason


# -- messages -------------------------------------------------------------------------------------


def test_a_message_is_read_with_its_id_as_json_text():
    assert message(MESSAGE) == Message('"a17"', "Late coffee", 48.1, 11.6, 1364774400000)
    assert message(changed(MESSAGE, id=17)).id == "17"
    assert message(changed(MESSAGE, id=-(1 << 63))).id == str(-(1 << 63))
    for id in ("17", 'quo"te\\', "été 東京", "line\nfeed\u0000", "é" * 64):
        assert json.loads(message(changed(MESSAGE, id=id)).id) == id
    assert message(b'{"id": "\\u00e9", "text": "", "lat": 0, "lon": 0}').id == '"é"'


def test_id_and_time_may_be_absent_and_unknown_fields_are_ignored():
    found = message({"text": "", "lat": 1, "lon": -2, "user": {"id": [1, None]}, "k": "x"})
    assert found == Message(None, "", 1.0, -2.0, None) and type(found.lat) is type(found.lon) is float


def test_the_borders_of_what_is_legal_are_legal():
    for fields in ({"lat": 90, "lon": 180}, {"lat": -90.0, "lon": -180.0}, {"ts": 0}, {"ts": (1 << 53) - 1}, {"id": (1 << 63) - 1}, {"id": "x" * 128}):
        assert message(changed(MESSAGE, **fields))
    assert message(changed(MESSAGE, text="x" * 10), limits=Limits(text_max_bytes=10)) and message(
        changed(MESSAGE, text="é" * 5), limits=Limits(text_max_bytes=10)
    )
    assert message(changed(MESSAGE, lat=2, lon=1), space=Space(1, 2, 3, 4)) and message(changed(MESSAGE, lat=4.0, lon=3.0), space=Space(1, 2, 3, 4))


AREA = {"text": "Rain", "bbox": [11, 48, 12, 49]}


def test_an_area_has_a_bbox_in_place_of_lat_and_lon_and_lies_at_its_centre():
    found = message(AREA)
    assert found == Message(None, "Rain", 48.5, 11.5, None, (11.0, 48.0, 12.0, 49.0)) and all(type(b) is float for b in found.bbox)
    assert message(changed(MESSAGE, lat=ABSENT, lon=ABSENT, bbox=[170, -10, -160.0, 10])) == Message(
        '"a17"', "Late coffee", 0.0, -175.0, 1364774400000, (170.0, -10.0, -160.0, 10.0)
    )
    for bbox in ([-180, -90, 180, 90], [180, 90, 180, 90], [180, -90, -180, -90], [1, 2, 1, 2]):
        assert message(changed(AREA, bbox=bbox)).bbox == tuple(bbox)


def test_the_centre_of_an_area_is_inside_the_data_space():
    assert message(changed(AREA, bbox=[-5, 0, 8, 9]), space=Space(1, 2, 3, 5)).bbox == (-5.0, 0.0, 8.0, 9.0)
    reason = reason_of(message, changed(AREA, bbox=[2.5, 3, 4, 4]), space=Space(1, 2, 3, 5))
    assert reason.startswith(
        "Expected an area whose centre is inside the data space; given: [2.5, 3, 4, 4] around lat 3.5, lon 3.25; legal: lat from 2.0 to 5.0"
    )


def test_areas_of_messages_have_rectangles_without_extent_for_points():
    assert areas_of([message(MESSAGE)]) is None and areas_of([]) is None
    assert areas_of([message(MESSAGE), message(AREA)]).tolist() == [[11.6, 48.1, 11.6, 48.1], [11, 48, 12, 49]]


WRONG_MESSAGES = [
    (
        {"ts": 1795366787},
        "Expected 'ts' in ms since the epoch; given: 1795366787; legal: an integer from 0 to 9007199254740991; hint: this is a time in seconds: 1795366787000",
    ),
    ({"ts": 946684800}, "hint: this is a time in seconds: 946684800000"),
    ({"ts": 4102444799}, "hint: this is a time in seconds"),
    (
        {"lat": -122.3, "lon": 47.6},
        "Expected 'lat' in degrees; given: -122.3; legal: a number from -90 to 90; hint: the place would be legal with 'lat' and 'lon' exchanged",
    ),
    ({"text": ABSENT}, "Expected 'text' as a string; given: nothing"),
    ({"text": None}, "Expected 'text' as a string; given: null"),
    ({"text": 17}, "Expected 'text' as a string; given: 17"),
    ({"text": ["a"]}, """Expected 'text' as a string; given: ["a"]"""),
    ({"text": {"a": 1}}, "Expected 'text' as a string; given: an object"),
    ({"text": "half \ud800"}, "Expected 'text' of whole characters, without half a surrogate pair (character 6)"),
    ({"lat": ABSENT}, "Expected 'lat' in degrees; given: nothing; legal: a number from -90 to 90"),
    ({"lat": "48.1"}, """Expected 'lat' in degrees; given: "48.1"; legal"""),
    ({"lat": True}, "Expected 'lat' in degrees; given: true"),
    ({"lat": None}, "Expected 'lat' in degrees; given: null"),
    ({"lat": 90.00001}, "Expected 'lat' in degrees; given: 90.00001; legal: a number from -90 to 90"),
    ({"lat": 10**400}, "Expected 'lat' in degrees; given: 1000"),
    ({"lon": ABSENT}, "Expected 'lon' in degrees; given: nothing; legal: a number from -180 to 180"),
    ({"lon": False}, "Expected 'lon' in degrees; given: false"),
    ({"lon": -181}, "Expected 'lon' in degrees; given: -181; legal"),
    ({"lon": [11.6]}, "Expected 'lon' in degrees; given: [11.6]"),
    ({"lat": ABSENT, "lon": ABSENT}, "Expected 'lat' and 'lon', 'bbox' or 'region'; given: none of them"),
    ({"bbox": [11, 48, 12, 49]}, "Expected 'lat' and 'lon', 'bbox', or 'region', not several; given: lat 48.1, lon 11.6, bbox [11, 48, 12, 49]"),
    ({"bbox": None}, "Expected 'lat' and 'lon', 'bbox', or 'region', not several; given: lat 48.1, lon 11.6, bbox null"),
    ({"lon": ABSENT, "bbox": [11, 48, 12, 49]}, "Expected 'lat' and 'lon', 'bbox', or 'region', not several; given: lat 48.1, bbox [11, 48, 12, 49]"),
    ({"lat": ABSENT, "lon": ABSENT, "bbox": None}, "Expected 'bbox' as four numbers; given: null; legal: [west, south, east, north] in degrees"),
    ({"lat": ABSENT, "lon": ABSENT, "bbox": [11, 48, 12]}, "Expected 'bbox' as four numbers; given: [11, 48, 12]; legal"),
    ({"lat": ABSENT, "lon": ABSENT, "bbox": [11, 48, 12, "49"]}, """Expected 'bbox' as four numbers; given: [11, 48, 12, "49"]"""),
    ({"lat": ABSENT, "lon": ABSENT, "bbox": [11, 48, 12, True]}, "Expected 'bbox' as four numbers; given: [11, 48, 12, true]"),
    ({"lat": ABSENT, "lon": ABSENT, "bbox": [11, 49, 12, 48]}, "Expected 'bbox' on the globe; given: [11, 49, 12, 48]; legal: [west"),
    ({"lat": ABSENT, "lon": ABSENT, "bbox": [11, 48, 181, 49]}, "Expected 'bbox' on the globe; given: [11, 48, 181, 49]"),
    ({"id": True}, "Expected 'id' as a string or an integer; given: true; legal: 1 to 128 bytes of UTF-8, or a signed integer of 64 bits"),
    ({"id": None}, "Expected 'id' as a string or an integer; given: null"),
    ({"id": 1.0}, "Expected 'id' as a string or an integer; given: 1.0"),
    ({"id": ""}, "Expected 'id' as a string or an integer; given: \"\""),
    ({"id": []}, "Expected 'id' as a string or an integer; given: []"),
    ({"id": 1 << 63}, "Expected 'id' as a string or an integer; given: 9223372036854775808"),
    ({"id": "x" * 129}, "Expected a shorter 'id'; given: 129 bytes; legal: up to 128 bytes"),
    ({"id": "é" * 65}, "Expected a shorter 'id'; given: more than 128 bytes"),
    ({"id": "\udc00"}, "Expected 'id' of whole characters"),
    ({"ts": -1}, "Expected 'ts' in ms since the epoch; given: -1; legal: an integer from 0 to 9007199254740991"),
    ({"ts": 1 << 53}, "Expected 'ts' in ms since the epoch; given: 9007199254740992"),
    ({"ts": 1.0}, "Expected 'ts' in ms since the epoch; given: 1.0"),
    ({"ts": True}, "Expected 'ts' in ms since the epoch; given: true"),
    ({"ts": None}, "Expected 'ts' in ms since the epoch; given: null"),
    ({"ts": "1"}, "Expected 'ts' in ms since the epoch; given: \"1\""),
]


@pytest.mark.parametrize("fields, words", WRONG_MESSAGES, ids=[ascii(f)[:40] for f, _ in WRONG_MESSAGES])
def test_a_message_with_a_wrong_field_is_refused_with_the_reason(fields, words):
    assert words in reason_of(message, changed(MESSAGE, **fields))


@pytest.mark.parametrize(
    "parse, fields, code",
    [
        (message, {"text": 1}, "invalid-text"),
        (message, {"lat": 98.1}, "invalid-lat"),
        (message, {"lat": 91}, "invalid-lat"),
        (message, {"lat": ABSENT, "lon": ABSENT}, "no-place"),
        (message, {"bbox": [1, 2, 3, 4]}, "two-places"),
        (message, {"id": "x" * 129}, "long-text"),
        (message, {"ts": None}, "invalid-ts"),
        (subscription, {"k": 0}, "invalid-k"),
        (subscription, {"k": 101}, "invalid-k"),
        (subscription, {"text": "the"}, "no-keyword"),
        (subscription, {"keywords": ["tea"]}, "two-expressions"),
        (subscription, {"type": "other"}, "unknown-type"),
        (subscription, {"radius_m": 5}, "unknown-field"),
        (subscription, {"min_scor": 0.5}, "unknown-field"),
    ],
)
def test_records_with_the_same_problem_have_the_same_code_whatever_is_given(parse, fields, code):
    with pytest.raises(RecordError) as e:
        parse(changed(MESSAGE if parse is message else TOPK, **fields))
    assert e.value.code == code


def test_a_field_that_a_subscription_does_not_have_is_refused_with_a_hint():
    boolean = {"type": "boolean", "bbox": [1, 2, 3, 4], "expression": "tea"}
    assert reason_of(subscription, changed(TOPK, ttls=60)).endswith("; hint: perhaps 'ttl_s' is meant")
    assert reason_of(subscription, changed(TOPK, id="s1")).endswith("; hint: the id is the key of the record")
    assert reason_of(subscription, changed(boolean, where="a > 1")).endswith("; hint: the 'expression' of a boolean subscription may compare attributes, too")
    words = "Expected no field 'colour' in a subscription of the type 'boolean'; given: \"red\"; legal: type, "
    assert words in (reason := reason_of(subscription, changed(boolean, colour="red"))) and "'meta'" in reason


NO_OBJECTS = [
    (b"", "as JSON (wrong at character 1: Expecting value); given: ''"),
    (b"{", "as JSON (wrong at character 2: "),
    (b"nonsense" * 20, "as JSON (wrong at character 1: "),
    (b'{"text": "a"} {"text"', "as JSON (wrong at character 15: Extra data)"),
    (b"[1, 2]", "as a JSON object; given: [1, 2]"),
    (b'"text"', 'as a JSON object; given: "text"'),
    (b"null", "as a JSON object; given: null"),
    (b"17", "as a JSON object; given: 17"),
    (b'{"text": "\xff"}', "in UTF-8 (wrong at byte 11); given: b'\\xff"),
    ("\ufeff{}".encode(), "as JSON"),
    (json.dumps({"lat": 1}).encode("utf-16"), "in UTF-8"),
    (b'{"lat": NaN}', "as JSON (NaN is no JSON number)"),
    (b'{"lat": 1, "x": -Infinity}', "as JSON (-Infinity is no JSON number)"),
    (b'{"x": ' + b"1" * 5000 + b"}", "as JSON (Exceeds the limit"),
    (b'{"x":' * 100_000, "with less nesting"),
    (b"[" * 100_000, "with less nesting"),
]


@pytest.mark.parametrize("value, words", NO_OBJECTS, ids=[ascii(v[:20]) for v, _ in NO_OBJECTS])
def test_a_record_that_is_no_json_object_is_refused(value, words):
    assert "Expected a message " + words in reason_of(message, value)
    assert "Expected a subscription " + words in reason_of(subscription, value)


def test_a_null_value_is_no_message_and_no_subscription():
    assert reason_of(parse_message, None) == "Expected a message as a JSON object; given: None"
    assert reason_of(parse_subscription, b"s1", None, tokenizer=TOKENIZER) == "Expected a subscription as a JSON object; given: None"


@pytest.mark.parametrize("field, literal", [("lat", "1e999"), ("lon", "-1e999")])
def test_a_number_beyond_floating_point_is_out_of_range(field, literal):
    value = json.dumps(changed(MESSAGE, **{field: "#"})).replace('"#"', literal).encode()
    assert f"Expected '{field}' in degrees; given: " in reason_of(message, value)


def test_a_place_outside_the_data_space_is_refused():
    words = "Expected a place inside the data space; given: lat 48.1, lon 11.6; legal: lat from 2.0 to 4.0, lon from 1.0 to 3.0"
    assert reason_of(message, MESSAGE, space=Space(1, 2, 3, 4)) == reason_of(subscription, TOPK, space=Space(1, 2, 3, 4)) == words
    assert "inside the data space" in reason_of(message, changed(MESSAGE, lat=3, lon=4), space=Space(1, 2, 3, 4))


def test_exchanged_coordinates_are_named():
    europe = Space(-25, 34, 45, 72)
    for parse, record in ((message, changed(MESSAGE, lat=11.6, lon=48.1)), (subscription, changed(TOPK, lat=11.6, lon=48.1))):
        assert reason_of(parse, record, space=europe).endswith("; hint: the place would be legal with 'lat' and 'lon' exchanged")
    assert "hint" not in reason_of(message, changed(MESSAGE, lat=11.6, lon=11.6), space=europe)
    assert "hint" not in reason_of(message, changed(MESSAGE, lat="48", lon=11.6), space=europe)


def test_times_that_nobody_means_as_seconds_are_legal():
    for ts in (0, 946684799, 4102444800, 946684800000, 1795366787000, 9007199254740991):
        assert message(changed(MESSAGE, ts=ts)).ts == ts


def test_a_text_that_is_too_long_in_bytes_is_refused():
    assert "Expected a shorter 'text'; given: 11 bytes; legal: up to 10 bytes of UTF-8" == reason_of(
        message, changed(MESSAGE, text="x" * 11), limits=Limits(text_max_bytes=10)
    )
    assert "given: more than 10 bytes" in reason_of(message, changed(MESSAGE, text="é" * 5 + "x"), limits=Limits(text_max_bytes=10))
    for field in ({"text": "x " * 10}, {"text": ABSENT, "keywords": ["tea", "x" * 11]}):
        assert "Expected a shorter '" in reason_of(subscription, changed(TOPK, **field), limits=Limits(text_max_bytes=10))
    assert "Expected a shorter 'expression'" in reason_of(subscription, BOOLEAN, limits=Limits(text_max_bytes=10))


def test_a_record_that_is_far_too_long_is_not_even_read(monkeypatch):
    monkeypatch.setattr(record_values, "_decode", lambda text: pytest.fail("read"))
    monkeypatch.setattr(TOKENIZER.__class__, "tokens", lambda self, text: pytest.fail("cut"))
    long = b'{"text": "' + b"x" * 10_000_000 + b'"}'
    assert reason_of(message, long) == f"Expected a message in fewer bytes; given: {len(long)} bytes; legal: up to 1638400 bytes"
    assert "Expected a subscription in fewer bytes" in reason_of(subscription, long)


SENTENCE = "\ufdfa"
"""One character of three bytes that is normalised to four words of 33 bytes."""


def test_the_folded_size_of_a_text_is_never_more_than_is_said():
    rng = random.Random(4)
    pieces = ["a", "é", "ß", "İ", "\u0e33", "ｶﾞ", "㈱", "㌖", SENTENCE, "\u0301", "가", "ᄀ", "ᅡ", "𝔸", "😀", " ", "\ud800", "\U000e0100"]
    for _ in range(500):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 30))) + chr(rng.randrange(0xD800))
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        assert folded_bytes(text) >= len(folded.encode("utf-8", "surrogatepass"))
        assert folded_bytes(text) <= MOST_FOLDED_BYTES * len(text)
    assert folded_bytes(SENTENCE * 9) == 9 * 33 and folded_bytes("x" * 5) == 5


def test_a_text_that_becomes_far_longer_when_it_is_normalised_is_refused_before_it_is(monkeypatch):
    most = 2 * 262144 // 33
    assert message(changed(MESSAGE, text=SENTENCE * 4096)).text == SENTENCE * 4096  # 16,384 words
    folded_bytes("x")
    monkeypatch.setattr("dskype.spouts.text.cut", lambda text: pytest.fail("normalised"))
    long = SENTENCE * (most + 1)
    words = f"shorter when it is normalised; given: {33 * (most + 1)} bytes; legal: up to 524288 bytes of UTF-8 in NFKC, case-folded"
    assert reason_of(message, changed(MESSAGE, text=long)) == f"Expected 'text' {words}"
    assert f"Expected 'text' {words}" == reason_of(subscription, changed(TOPK, text=long))
    assert "Expected 'expression' shorter when it is normalised" in reason_of(subscription, changed(BOOLEAN, expression=f'"{long}"'))
    assert reason_of(subscription, changed(TOPK, text=ABSENT, keywords=[long])) == f"Expected 'keyword 1' {words}"


def test_a_message_of_too_many_words_is_refused():
    for word in ("a ", "é ", "the "):
        assert message(changed(MESSAGE, text=word * 16384)).text
        assert (
            reason_of(message, changed(MESSAGE, text=word * 16385)) == "Expected fewer words in 'text'; given: 16385; legal: up to 16384, repetitions included"
        )
    assert "given: 16388" in reason_of(message, changed(MESSAGE, text=SENTENCE + " " + (SENTENCE + " ") * 4096))
    assert message(changed(MESSAGE, text="a b"), limits=Limits(words_max=2)).text and "given: 3" in reason_of(
        message, changed(MESSAGE, text="a b c"), limits=Limits(words_max=2)
    )
    assert message(changed(MESSAGE, text="é b"), limits=Limits(words_max=2)).text and "given: 3" in reason_of(
        message, changed(MESSAGE, text="é b c"), limits=Limits(words_max=2)
    )


@pytest.mark.parametrize("kind", [TOPK, BOOLEAN])
def test_keywords_may_be_repeated_but_not_without_end(kind, monkeypatch):
    def keywords(given, **options):
        return subscription(changed(kind, text=ABSENT, expression=ABSENT, keywords=given), **options)

    assert keywords(["tea", "Tea"] * 512)
    assert keywords(["x" * 2048] * 256)
    assert reason_of(keywords, ["tea tea"] * 513) == "Expected fewer words in 'keywords'; given: 1026 or more; legal: up to 1024, repetitions included"
    cut = []
    monkeypatch.setattr(TOKENIZER.__class__, "tokens", lambda self, text: cut.append(text) or [text])
    assert reason_of(keywords, ["tea"] * 1025) == "Expected fewer 'keywords'; given: a list of 1025; legal: up to 1024, repetitions included"
    assert not cut
    for word in ("x" * 2049, "é" * 300 + "x" * 1449, SENTENCE * 125):
        cut.clear()
        assert (
            reason_of(keywords, [word] * 400)
            == "Expected shorter 'keywords'; given: a list of 400; legal: up to 524288 bytes of UTF-8 together, in NFKC, case-folded"
        )
        assert sum(map(folded_bytes, cut)) <= 2 * 262144


def test_the_longest_text_is_read_however_it_is_escaped():
    for text in ("x" * 262144, "\u0001" * 262144, "é" * 131072, "\U0001f600" * 65536):
        assert message(changed(MESSAGE, text=text)).text == text


# -- subscriptions --------------------------------------------------------------------------------


def test_a_topk_subscription_is_read_with_its_words_in_order_and_with_repetitions():
    assert subscription(TOPK) == TopkSubscription("s1", ["late", "coffee", "late"], 0.5, 48.1, 11.6, k=10)
    assert subscription(changed(TOPK, text=ABSENT, keywords=["late night", "Late", "wi-fi"])).keywords == ["late", "night", "late", "wi", "fi"]
    assert subscription(changed(TOPK, text="Lake, the lake: park")).keywords == ["lake", "lake", "park"]
    assert subscription(changed(TOPK, text="the tea")).keywords == ["tea"]
    found = subscription(changed(TOPK, alpha=1, lat=0, lon=0, k=100))
    assert (found.alpha, found.lat, found.k) == (1.0, 0.0, 100) and all(type(x) is float for x in (found.alpha, found.lat, found.lon))


def test_a_threshold_subscription_is_read_as_a_topk_one_with_a_score_in_place_of_k():
    found = subscription(THRESHOLD)
    assert found == ThresholdSubscription("s1", ["late", "coffee", "late"], 0.5, 48.1, 11.6, min_score=0.6)
    assert subscription_from_record(json.loads(json.dumps(found.to_record()))) == found
    zero = subscription(changed(THRESHOLD, min_score=0, alpha=0, lat=0, distance="metres", scale_m=5, ttl_s=60, update=True, meta=None))
    assert (zero.min_score, zero.alpha, zero.scale_m, zero.ttl_s, zero.update, zero.meta) == (0.0, 0.0, 5.0, 60.0, True, "null") and type(
        zero.min_score
    ) is float
    assert subscription_from_record(json.loads(json.dumps(zero.to_record()))) == zero


def test_a_topk_subscription_may_have_distances_in_metres():
    found = subscription(changed(TOPK, distance="metres", scale_m=5000))
    assert found.scale_m == 5000.0 and type(found.scale_m) is float
    assert subscription_from_record(json.loads(json.dumps(found.to_record()))) == found
    assert all(subscription(changed(TOPK, **given)).scale_m is None for given in ({"distance": "degrees"}, {"distance": None, "scale_m": None}, {}))
    assert "scale_m" not in subscription(TOPK).to_record(), "other subscriptions travel in the same bytes as before"


def test_a_topk_subscription_may_have_a_filter():
    where = ["and", ["phrase", 0, [0, 1], ["late", "night"]], ["not", "decaf"]]
    found = subscription(changed(TOPK, where='"late night" AND NOT decaf'))
    assert found.where == where and TopkSubscription.from_record(json.loads(json.dumps(found.to_record()))) == found
    assert subscription(TOPK).where is subscription(changed(TOPK, where=None)).where is None
    assert subscription(changed(TOPK, where="NOT tea")).where == ["not", "tea"]  # it need not lead to messages: the keywords do
    earlier = {name: value for name, value in subscription(TOPK).to_record().items() if name != "where"}
    assert TopkSubscription.from_record(earlier) == subscription(TOPK)


def test_a_boolean_subscription_is_read_with_its_expression():
    expression = ["and", "coffee", ["or", "wifi", ["phrase", 0, [0, 1], ["late", "night"]]]]
    assert subscription(BOOLEAN) == BooleanSubscription("s1", (11.0, 48.0, 12.0, 49.0), expression, 60.0, None)
    found = subscription(changed(BOOLEAN, expression=ABSENT, ttl_s=ABSENT, keywords=["late night", "Tea", "tea"]))
    assert found.expression == ["and", "late", "night", "tea"] and found.ttl_s is None
    assert subscription(changed(BOOLEAN, expression=ABSENT, keywords=["tea"])).expression == "tea"


def test_without_a_rectangle_a_subscription_is_about_the_globe_and_without_words_about_all_messages():
    assert subscription(changed(BOOLEAN, bbox=ABSENT)).bbox == (-180, -90, 180, 90)
    anything = Language(wordless=True)
    for record, expected in (
        (changed(BOOLEAN, expression=ABSENT), EVERYTHING),
        (changed(BOOLEAN, expression="NOT tea"), ["not", "tea"]),
        (changed(BOOLEAN, expression="tea OR NOT coffee"), ["or", "tea", ["not", "coffee"]]),
    ):
        value = json.dumps(record).encode()
        assert parse_subscription(b"s1", value, tokenizer=Tokenizer(), language=anything).expression == expected
    assert subscription(changed(BOOLEAN, expression="tea AND NOT coffee")).expression == ["and", "tea", ["not", "coffee"]]


def test_a_rectangle_may_cross_the_antimeridian_and_may_be_a_point():
    for bbox in ([170, -10, -170, 10], [1, 2, 1, 2], [-180, -90, 180, 90], [180, 90, -180, 90]):
        assert subscription(changed(BOOLEAN, bbox=bbox)).bbox == tuple(bbox)


@pytest.mark.parametrize("meta", [None, 17, "é", [1, {"a": None}], {"b": 1.5, "a": True}, ""])
def test_meta_is_kept_as_compact_json(meta):
    for record in (TOPK, BOOLEAN):
        found = subscription(changed(record, meta=meta)).meta
        assert json.loads(found) == meta and found == json.dumps(meta, separators=(",", ":"), ensure_ascii=False)
        assert subscription(record).meta is None


def test_meta_may_only_be_so_long():
    assert len(subscription(changed(TOPK, meta="x" * 510)).meta) == 512
    assert reason_of(subscription, changed(TOPK, meta="x" * 511)) == "Expected a shorter 'meta'; given: 513 bytes; legal: up to 512 bytes of compact JSON"
    assert "given: 4098 bytes" in reason_of(subscription, changed(TOPK, meta="é" * 2048))


def test_meta_that_cannot_be_written_again_is_refused():
    assert "'meta' of whole characters" in reason_of(subscription, changed(TOPK, meta=["\ud800"]))
    assert "'meta' with numbers that fit" in reason_of(subscription, json.dumps(changed(TOPK, meta="#")).replace('"#"', "[1e999]").encode())


WRONG_TENANTS = ["", "a" * 65, "-a", ".a", "a b", "ä", "a\n", 5, None, ["a"]]
WRONG_TOPK = [
    *(({"tenant": tenant}, "Expected 'tenant' as the name of a tenant; given: ") for tenant in WRONG_TENANTS),
    ({"min_score": 0.5}, "Expected no 'min_score' in a subscription of the type 'topk'; given: 0.5; legal: nothing; hint: the type 'threshold' has"),
    ({"type": ABSENT}, 'Expected the \'type\' of the subscription; given: nothing; legal: "topk", "boolean" or "threshold"'),
    ({"type": "TopK"}, "Expected the 'type' of the subscription; given: \"TopK\""),
    ({"type": ["topk"]}, "Expected the 'type' of the subscription; given: [\"topk\"]"),
    ({"text": ABSENT}, "Expected 'text' or 'keywords'; given: neither"),
    ({"keywords": ["tea"]}, "Expected 'text' or 'keywords', not both; given: \"late Coffee, late\" and [\"tea\"]"),
    ({"text": 5}, "Expected 'text' as a string; given: 5"),
    ({"text": None}, "Expected 'text' as a string; given: null"),
    ({"text": ""}, "Expected 'text' with at least one keyword; given: \"\""),
    ({"text": "?! The"}, "Expected 'text' with at least one keyword; given: \"?! The\"; legal: a word with letters or digits that is not a stop word"),
    ({"text": "\ud800 tea"}, "Expected 'text' of whole characters"),
    ({"text": " ".join(f"w{i}" for i in range(65))}, "Expected fewer different words in 'text'; given: 65 or more; legal: 1 to 64"),
    ({"text": ABSENT, "keywords": []}, "Expected 'keywords' as a list of strings; given: []; legal: 1 to 64 keywords"),
    ({"text": ABSENT, "keywords": "tea"}, "Expected 'keywords' as a list of strings; given: \"tea\""),
    ({"text": ABSENT, "keywords": {"tea": 1}}, "Expected 'keywords' as a list of strings; given: an object"),
    ({"text": ABSENT, "keywords": ["tea", 5]}, "Expected 'keyword 2' as a string; given: 5"),
    ({"text": ABSENT, "keywords": ["tea", None]}, "Expected 'keyword 2' as a string; given: null"),
    ({"text": ABSENT, "keywords": ["tea", ""]}, 'Expected keyword 2 with a word; given: ""'),
    ({"text": ABSENT, "keywords": ["The"]}, 'Expected keyword 1 with a word; given: "The"; legal: letters or digits that are not a stop word'),
    ({"text": ABSENT, "keywords": [f"w{i}" for i in range(65)]}, "Expected fewer different words in 'keywords'; given: 65 or more; legal: 1 to 64"),
    ({"lat": ABSENT}, "Expected 'lat' in degrees; given: nothing"),
    ({"lat": 91}, "Expected 'lat' in degrees; given: 91"),
    ({"lon": "x"}, "Expected 'lon' in degrees; given: \"x\""),
    ({"lon": True}, "Expected 'lon' in degrees; given: true"),
    ({"k": ABSENT}, "Expected 'k'; given: nothing; legal: an integer from 1 to 100"),
    ({"k": 0}, "Expected 'k'; given: 0"),
    ({"k": -1}, "Expected 'k'; given: -1"),
    ({"k": 101}, "Expected 'k'; given: 101"),
    ({"k": 5.0}, "Expected 'k'; given: 5.0"),
    ({"k": True}, "Expected 'k'; given: true"),
    ({"k": "5"}, "Expected 'k'; given: \"5\""),
    ({"alpha": ABSENT}, "Expected 'alpha'; given: nothing; legal: a number from 0 to 1"),
    ({"alpha": -0.01}, "Expected 'alpha'; given: -0.01"),
    ({"alpha": 1.01}, "Expected 'alpha'; given: 1.01"),
    ({"alpha": True}, "Expected 'alpha'; given: true"),
    ({"alpha": "0.5"}, "Expected 'alpha'; given: \"0.5\""),
    ({"distance": "miles"}, "Expected 'distance'; given: \"miles\"; legal: degrees | metres"),
    ({"distance": 1}, "Expected 'distance'; given: 1"),
    ({"distance": ["metres"], "scale_m": 5}, "Expected 'distance'; given: [\"metres\"]"),
    ({"distance": "metres"}, "Expected 'scale_m' with 'distance': metres; given: nothing; legal: a number of metres from 1 to 100000000"),
    ({"distance": "metres", "scale_m": 0}, "Expected 'scale_m' with 'distance': metres; given: 0"),
    ({"distance": "metres", "scale_m": -5000.0}, "Expected 'scale_m' with 'distance': metres; given: -5000.0"),
    ({"distance": "metres", "scale_m": True}, "Expected 'scale_m' with 'distance': metres; given: true"),
    ({"distance": "metres", "scale_m": "5 km"}, "Expected 'scale_m' with 'distance': metres; given: \"5 km\""),
    ({"distance": "metres", "scale_m": 100_000_001}, "Expected 'scale_m' with 'distance': metres; given: 100000001"),
    ({"scale_m": 5000}, "Expected 'scale_m' only with 'distance': metres; given: 5000; legal: nothing; hint: add 'distance': 'metres'"),
    ({"distance": "degrees", "scale_m": 5000}, "Expected 'scale_m' only with 'distance': metres; given: 5000"),
    ({"where": 5}, "Expected 'where' as a string; given: 5"),
    ({"where": ""}, "Expected a word or a quoted phrase at position 1 of the expression"),
    ({"where": "tea AND (cake"}, "Expected a ')' for the '(' at position 9 of the expression"),
    ({"where": "price < 5"}, "at position 1 of the expression"),
]

WRONG_THRESHOLD = [
    ({"min_score": ABSENT}, "Expected 'min_score'; given: nothing; legal: a number from 0 to 1"),
    ({"min_score": 1.01}, "Expected 'min_score'; given: 1.01"),
    ({"min_score": -1}, "Expected 'min_score'; given: -1"),
    ({"min_score": True}, "Expected 'min_score'; given: true"),
    ({"k": 3}, "Expected no 'k' in a subscription of the type 'threshold'; given: 3; legal: nothing; hint: the type 'topk' has 'k' in place of 'min_score'"),
    ({"alpha": 2}, "Expected 'alpha'; given: 2"),
    ({"lat": 91}, "Expected 'lat' in degrees; given: 91"),
    ({"text": "!"}, "Expected 'text' with at least one keyword"),
    ({"scale_m": 5}, "Expected 'scale_m' only with 'distance': metres"),
]
WRONG_BOOLEAN = [
    ({"tenant": "a/b"}, """Expected 'tenant' as the name of a tenant; given: "a/b"; legal: 1 to 64 ASCII letters, digits, dots, underscores and hyphens"""),
    ({"expression": ABSENT}, 'Expected an expression that needs a word; given: "(everything)"; hint: dskype.boolean.wordless: true allows'),
    ({"expression": "tea OR NOT coffee"}, 'Expected an expression that needs a word; given: "tea OR NOT coffee"; hint: dskype.boolean.wordless'),
    ({"expression": ABSENT, "bbox": ABSENT}, "Expected 'expression', 'keywords', 'bbox' or 'region'; given: none of them"),
    ({"keywords": ["tea"]}, "Expected 'expression' or 'keywords', not both"),
    ({"expression": ["and", "a", "b"]}, 'Expected \'expression\' as a string; given: ["and", "a", "b"]'),
    ({"expression": ""}, "Expected a word or a quoted phrase at position 1 of the expression; given: ''"),
    ({"expression": "coffee AND the"}, "at position 12 of the expression; given: 'the'"),
    ({"expression": "coffee tea"}, "Expected AND or OR after 'coffee' at position 8 of the expression; given: 'tea'"),
    ({"expression": "(" * 17 + "a" + ")" * 17}, "at most 16 open parentheses at position 17"),
    ({"expression": " OR ".join(f"w{i}" for i in range(300))}, "at most 256 terms"),
    ({"expression": ABSENT, "keywords": ["the"]}, "Expected keyword 1 with a word"),
    ({"bbox": None}, "Expected 'bbox' as four numbers; given: null; legal: [west, south, east, north] in degrees"),
    ({"bbox": [1, 2, 3]}, "Expected 'bbox' as four numbers; given: [1, 2, 3]"),
    ({"bbox": [1, 2, 3, 4, 5]}, "Expected 'bbox' as four numbers; given: a list of 5"),
    ({"bbox": [1, 2, 3, "4"]}, "Expected 'bbox' as four numbers; given: [1, 2, 3, \"4\"]"),
    ({"bbox": [1, 2, 3, True]}, "Expected 'bbox' as four numbers; given: [1, 2, 3, true]"),
    ({"bbox": {"west": 1}}, "Expected 'bbox' as four numbers; given: an object"),
    ({"bbox": [1, 4, 3, 2]}, "Expected 'bbox' on the globe; given: [1, 4, 3, 2]; legal"),
    ({"bbox": [-181, 0, 1, 1]}, "Expected 'bbox' on the globe; given: [-181, 0, 1, 1]"),
    ({"bbox": [0, 0, 180.5, 1]}, "Expected 'bbox' on the globe; given: [0, 0, 180.5, 1]"),
    ({"bbox": [0, -91, 1, 1]}, "Expected 'bbox' on the globe"),
    ({"bbox": [0, 0, 1, 10**400]}, "Expected 'bbox' on the globe; given: [0, 0, 1, 1000"),
    ({"ttl_s": 0}, "Expected 'ttl_s' in seconds; given: 0; legal: a number above 0"),
    ({"ttl_s": -1.5}, "Expected 'ttl_s' in seconds; given: -1.5"),
    ({"ttl_s": True}, "Expected 'ttl_s' in seconds; given: true"),
    ({"ttl_s": None}, "Expected 'ttl_s' in seconds; given: null"),
    ({"ttl_s": "60"}, "Expected 'ttl_s' in seconds; given: \"60\""),
    ({"ttl_s": 1e300}, "Expected 'ttl_s' in seconds; given: 1e+300"),
]


@pytest.mark.parametrize(
    "record, fields, words",
    [*((TOPK, *w) for w in WRONG_TOPK), *((THRESHOLD, *w) for w in WRONG_THRESHOLD), *((BOOLEAN, *w) for w in WRONG_BOOLEAN)],
    ids=[ascii(f)[:40] for f, _ in [*WRONG_TOPK, *WRONG_THRESHOLD, *WRONG_BOOLEAN]],
)
def test_a_subscription_with_a_wrong_field_is_refused_with_the_reason(record, fields, words):
    assert words in reason_of(subscription, changed(record, **fields))


@pytest.mark.parametrize("record, name", [(TOPK, "alpha"), (TOPK, "lat"), (BOOLEAN, "ttl_s")])
@pytest.mark.parametrize("literal", ["NaN", "Infinity", "1e999"])
def test_a_subscription_with_a_number_that_is_none_is_refused(record, name, literal):
    value = json.dumps(changed(record, **{name: "#"})).replace('"#"', literal).encode()
    assert "is no JSON number" in (reason := reason_of(subscription, value)) or f"Expected '{name}'" in reason


@pytest.mark.parametrize(
    "key, words",
    [
        (None, "Expected the subscription id as the record's key; given: None; legal: 1 to 128 bytes of UTF-8"),
        (b"", "Expected the subscription id as the record's key; given: b''"),
        (b"x" * 129, "Expected a shorter subscription id as the record's key; given: 129 bytes"),
        (b"x\xff", "Expected the record's key in UTF-8 (wrong at byte 2); given: b'x\\xff'"),
    ],
)
def test_a_key_that_is_no_subscription_id_is_refused(key, words):
    assert words in reason_of(parse_key, key)
    assert words in reason_of(subscription, TOPK, key=key)


def test_a_key_is_the_subscription_id():
    assert parse_key("é17".encode()) == subscription(TOPK, key="é17".encode()).id == "é17"
    assert parse_key(b"x" * 128) == "x" * 128


def test_limits_are_those_given():
    tight = Limits(k_max=2, keywords_max=1, expression_max_depth=1, expression_max_terms=2, meta_max_bytes=3, id_max_bytes=2)
    ok = changed(TOPK, text="tea", k=2, meta=17)
    assert subscription(ok, limits=tight)
    for fields, words in (({"k": 3}, "1 to 2"), ({"text": "tea wifi"}, "1 to 1"), ({"meta": 1717}, "up to 3 bytes")):
        assert words in reason_of(subscription, changed(ok, **fields), limits=tight)
    assert "1 to 2 bytes" in reason_of(subscription, ok, key=b"abc", limits=tight)
    assert "at most 1 open" in reason_of(subscription, changed(BOOLEAN, expression="((a))"), limits=tight)
    assert "at most 2 terms" in reason_of(subscription, changed(BOOLEAN, expression="a or b or c"), limits=tight)


@pytest.mark.parametrize("record", [TOPK, BOOLEAN, changed(TOPK, meta={"a": [1]}), changed(BOOLEAN, ttl_s=ABSENT, meta="x", expression="tea")])
def test_a_subscription_is_the_same_after_the_wire(record):
    found = subscription(record)
    packed = msgpack.packb(found.to_record())
    assert subscription_from_record(msgpack.unpackb(packed)) == subscription_from_record(msgpack.unpackb(packed, use_list=False)) == found
    assert type(found).from_record({**found.to_record(), "expires_ms": 5}) == found


@pytest.mark.parametrize("version", [1, 1_764_000_000_000, 9007199254740991])
def test_the_version_of_a_plan_may_be_a_time(version):
    assert parse_plan(json.dumps({"v": 1, "version": version, "plan": {"x": 1}}).encode()) == (version, {"x": 1})


@pytest.mark.parametrize("version", [0, -1, True, "5", 5.0, 1e300, 9007199254740992, 10**400, None, ABSENT])
def test_the_version_of_a_plan_is_an_integer_that_json_keeps(version):
    with pytest.raises(RecordError, match="Expected the 'version' of a plan; given: .*; legal: an integer from 1 to 9007199254740991"):
        parse_plan(json.dumps(changed({"v": 1, "plan": {}}, version=version)).encode())


def damaged(rng, record):
    """Return JSON near a legal record."""
    values = [None, True, 0, -1, 17, 1.5, 1e308, 1 << 70, "", "tea", "\ud800", "the", [], [1, 2, 3, 4], ["tea"], {}, {"a": []}, [[[]]], "a AND (b"]
    record = dict(record)
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice([*record, "keywords", "meta", "text", "ts", "id"])
        if rng.random() < 0.2:
            record.pop(name, None)
        else:
            record[name] = rng.choice(values)
    value = bytearray(json.dumps(record).encode())
    if rng.random() < 0.3:
        for _ in range(rng.randrange(1, 4)):
            value[rng.randrange(len(value))] = rng.choice(b'{}[]",:0129-+.eE\\u \x00\xff\xc3NI')
    return bytes(value)


@pytest.mark.long
def test_damaged_records_are_read_or_refused_and_nothing_else():
    rng = random.Random(7)
    read = refused = 0
    for _ in range(6000):
        value = damaged(rng, rng.choice([MESSAGE, TOPK, BOOLEAN]))
        for parse in (lambda: parse_message(value, space=WORLD), lambda: subscription(value)):
            try:
                parse()
                read += 1
            except RecordError as e:
                refused += 1
                assert e.reason.startswith("Expected ") and "\n" not in e.reason and len(e.reason) < 600
                e.reason.encode()
    assert read > 300 and refused > 3000


def test_the_examples_run():
    assert doctest.testmod(module).failed == 0


FIELDS = ("title", "body")


def test_the_texts_of_fields_travel_as_one_text_in_the_order_of_the_setting():
    fields = {"body": "fast wifi", "title": "Coffee\x1fbar", "author": "ann"}
    assert message(changed(MESSAGE, text=fields), text_fields=FIELDS).text == "Coffee bar\x1ffast wifi"
    assert message(changed(MESSAGE, text={"body": "fast wifi"}), text_fields=FIELDS).text == "\x1ffast wifi"
    assert message(changed(MESSAGE, text="Late\x1fcoffee"), text_fields=FIELDS).text == "Late coffee\x1f"
    assert message(changed(MESSAGE, text="Late\x1fcoffee")).text == "Late coffee"  # "late coffee" is a phrase of it


@pytest.mark.parametrize("text", [ABSENT, 5, {}, {"author": "ann"}, {"title": None}, {"title": 5}, ["late"]])
def test_a_text_of_fields_is_a_string_or_has_one_of_the_fields_as_a_string(text):
    assert "Expected " in reason_of(message, changed(MESSAGE, text=text), text_fields=FIELDS)


def test_a_text_of_fields_needs_the_setting_that_names_them():
    assert "hint: dskype.text.fields" in reason_of(message, changed(MESSAGE, text={"title": "Late coffee"}))


def test_the_limits_of_a_text_hold_for_all_its_fields_together():
    assert "Expected a shorter 'text'" in reason_of(
        message, changed(MESSAGE, text={"title": "x" * 6, "body": "x" * 6}), text_fields=FIELDS, limits=Limits(text_max_bytes=12)
    )


def test_attributes_are_an_object():
    assert message(changed(MESSAGE, attributes={"price": 12.5})).attributes == {"price": 12.5}
    assert message(MESSAGE).attributes is None
    for wrong in (None, 5, "price", [1]):
        assert "Expected 'attributes' as a JSON object" in reason_of(message, changed(MESSAGE, attributes=wrong))


def test_an_object_is_read_as_its_json():
    assert parse_message(dict(MESSAGE)) == message(MESSAGE)
    assert "Expected 'lat'" in reason_of(parse_message, changed(MESSAGE, lat=198.1))


def test_a_subscription_may_name_its_tenant_and_travels_as_before_without_one():
    for record in (TOPK, THRESHOLD, BOOLEAN):
        for tenant in ("acme", "7", "A.b_c-9", "a" * 64):
            found = subscription(changed(record, tenant=tenant))
            assert found.tenant == tenant and subscription_from_record(json.loads(json.dumps(found.to_record()))) == found
        assert subscription(record).tenant is None and "tenant" not in subscription(record).to_record()
