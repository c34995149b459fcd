"""Explanations: they say what matches, with the scores of the indexes, and what is missing would be enough."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from dskype.bolts.skype import Skype
from dskype.deploy.client.content import Content
from dskype.deploy.client.explanation import add_time_score, as_lines, explain_boolean, explain_list, explain_scores
from dskype.spouts.attributes import Attributes
from dskype.spouts.expression_parser import WORDS_ONLY, Language, parse
from dskype.spouts.records import Message
from dskype.spouts.regions import bounding_box, is_rectangle, parse_region
from dskype.spouts.subscriptions import BooleanSubscription, ThresholdSubscription, TopkSubscription
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from tests import naive

TOKENIZER = Tokenizer()
TEXTS = ["coffee by the lake", "lake park", "coffee coffee park", "museum of coffee", "harbour museum", "late night coffee"]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.build(TEXTS, TOKENIZER)


def message(text="", lat=0.0, lon=0.0, bbox=None, **attributes):
    return Message(None, text, lat, lon, None, bbox, attributes)


def boolean(bbox, expression):
    return BooleanSubscription("s", bbox, expression)


def explained(bbox, expression, given, language=WORDS_ONLY, stop_words=()):
    return explain_boolean(boolean(bbox, expression), given, Content(given, Tokenizer(stop_words), language))


# -- boolean --------------------------------------------------------------------------------------


def any_expression(rng, depth=3):
    if depth == 0 or rng.random() < 0.3:
        return f"w{rng.randrange(8)}"
    return [rng.choice(["and", "or"]), *(any_expression(rng, depth - 1) for _ in range(rng.randrange(2, 4)))]


def any_area(rng, point):
    south, north = sorted(rng.randrange(-6, 7) * 15.0 for _ in range(2))
    west, east = (rng.randrange(-6, 7) * 30.0 for _ in range(2))
    return (west, south, west, south) if point else (west, south, east, north)


@pytest.mark.long
def test_it_matches_what_the_oracle_matches_and_says_what_would_be_enough():
    rng, seen = random.Random(5), set()
    for _ in range(2000):
        bbox, expression, area = any_area(rng, rng.random() < 0.1), any_expression(rng), any_area(rng, rng.random() < 0.5)
        tokens = [f"w{rng.randrange(8)}" for _ in range(rng.randrange(5))]
        is_point = area[0] == area[2] and area[1] == area[3]
        given = message(" ".join(tokens), area[1], area[0]) if is_point else message(" ".join(tokens), 0.0, 0.0, area)
        found = explained(bbox, expression, given)
        inside, satisfied = naive.overlapping(bbox, area), naive.satisfies(expression, set(tokens))
        assert (found["matches"], found["rectangle"]["inside"], found["expression"]["satisfied"]) == (inside and satisfied, inside, satisfied)
        assert inside == (not found["rectangle"]["outside"]) and satisfied == (not found["expression"]["needs"])
        assert naive.satisfies(expression, set(tokens) | set(found["expression"]["needs"]))
        lines = as_lines(found, "s", "m")
        assert lines[0] == f"m {'matches' if inside and satisfied else 'does not match'} s" and all(line == line.rstrip() for line in lines)
        seen.add((inside, satisfied))
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("bbox", "lat", "lon", "border", "by_deg", "by_km"),
    [
        ((-180.0, -5.0, -174.0, 5.0), 0.0, 180.0, "east", 354.0, 0.0),  # it is on the west border, seen on a globe
        ((170.0, -5.0, 180.0, 5.0), 0.0, -179.0, "west", 349.0, 111.2),
        ((170.0, -5.0, 175.0, 5.0), 0.0, -179.0, "west", 349.0, 667.2),
        ((-60.0, -5.0, -50.0, 5.0), 0.0, 120.0, "east", 170.0, 18903.1),
        ((-100.0, -5.0, -80.0, 5.0), 0.0, 140.0, "east", 220.0, 13343.4),
    ],
)
def test_no_distance_is_longer_than_the_way_across_the_antimeridian(bbox, lat, lon, border, by_deg, by_km):
    found = explained(bbox, "x", message("x", lat, lon))
    (gap,) = found["rectangle"]["outside"]
    assert (gap["border"], gap["by_deg"]) == (border, by_deg) and gap["by_km"] == pytest.approx(by_km, abs=0.1)
    assert ("km across the antimeridian)" in "\n".join(as_lines(found, "s", "m"))) == (by_deg > 180)
    assert ("(0 km across" in "\n".join(as_lines(found, "s", "m"))) == (by_km == 0)


def test_borders_are_named_with_their_gaps():
    found = explained((10.0, 40.0, 20.0, 50.0), "x", message("x", 51.0, 8.0))
    borders = {b["border"]: (b["by_deg"], round(b["by_km"], 1)) for b in found["rectangle"]["outside"]}
    assert borders == {"north": (1.0, 111.2), "west": (2.0, 140.0)}
    assert found["rectangle"]["inside"] is False and found["matches"] is False
    text = "\n".join(as_lines(found, "s", "m"))
    assert "it lies 1 degrees (111 km) north of the north border" in text and "2 degrees (140 km) west of the west border" in text
    far = explained((170.0, -5.0, 180.0, 5.0), "x", message("x", 0.0, -179.0))
    assert "west > east would cross the antimeridian" in "\n".join(as_lines(far, "s", "m"))
    assert explained((170.0, -5.0, -178.0, 5.0), "x", message("x", 0.0, -179.0))["matches"]
    on_the_border = explained((10.0, 40.0, 20.0, 50.0), "x", message("x", 50.0, 20.0))
    assert on_the_border["matches"] and on_the_border["rectangle"]["outside"] == []


def test_the_parts_of_an_expression_are_shown_with_what_is_missing():
    found = explained((0.0, 0.0, 1.0, 1.0), ["and", "coffee", ["or", "wifi", ["and", "late", "night"]]], message("late coffee", 0.5, 0.5))
    assert found["expression"]["needs"] == ["wifi"] and not found["matches"]
    assert as_lines(found, "s", "m") == [
        "m does not match s",
        "",
        "rectangle   yes   the place 0.5, 0.5 is in the rectangle 0, 0, 1, 1",
        "expression  no    coffee AND (wifi OR late AND night)",
        "            no    all of",
        "                  yes   coffee",
        "                  no    any of",
        "                        no    wifi",
        "                        no    all of",
        "                              yes   late",
        "                              no    night",
        "            missing: wifi",
    ]


EVERYWHERE = (-180.0, -90.0, 180.0, 90.0)
LANGUAGE = Language(Attributes.from_conf({"price": "number", "tags": "strings", "category": "string"}), ("title", "body"), prefixes=True)


def lines_of(expression, given):
    """Return the lines about an expression, without their marks and indents."""
    found = explained(EVERYWHERE, parse(expression, Tokenizer(["the"]), LANGUAGE), given, LANGUAGE, ["the"])
    return found, [line.strip() for line in as_lines(found, "s", "m")[3:]]


def test_every_part_of_the_language_says_what_the_message_has():
    given = message("Late coffee by the lake\x1fat night, in a museum", price=350.5, tags=["vegan", "late"])
    found, lines = lines_of(
        'title:coffee AND NOT lake AND (body:muse* OR xy*) AND "late lake" AND "late lake"~3 AND body:"night in the"~2 AND "lake coffee" AND "late night" AND "late zoo"'
        " AND ATLEAST 2 OF (tea, coffee, late) AND price < 200 AND tags HAS vegan AND exists(category) AND NOT (price > 300)",
        given,
    )
    assert lines[1:-2] == [
        "no    all of",
        "yes   title:coffee",
        "no    not",
        "yes   lake",
        "yes   any of",
        "yes   body:muse*: museum",
        "no    xy*: no word begins so",
        'no    "late lake": words 1 and 5 of title, between them coffee by the; no word may be there',
        'yes   "late lake"~3: words 1 and 5 of title, between them coffee by the',
        'yes   body:"night in"~2: words 2 and 3 of body',
        'no    "lake coffee": lake is word 5 of title and coffee is word 2 of title; not in this order',
        'no    "late night": late is word 1 of title and night is word 2 of body; not in this order in one field',
        'no    "late zoo": zoo does not occur',
        "yes   at least 2 of 3: 2",
        "no    tea",
        "yes   coffee",
        "yes   late",
        "no    price < 200: the message has 350.5",
        'yes   tags HAS "vegan": the message has vegan, late',
        "no    exists(category): the message has no category",
        "no    not",
        "yes   price > 300: the message has 350.5",
    ]
    assert lines[-2:] == [
        'missing: "lake coffee" AND "late lake" AND "late night" AND "late zoo" AND exists(category) AND price < 200',
        "must not have: lake, price > 300",
    ]
    assert found["expression"]["excludes"] == ["lake", "price > 300"] and not found["matches"]
    parts = {part.get("phrase"): part for part in found["expression"]["tree"]["parts"] if "phrase" in part}
    assert parts['"late lake"']["found"] == {"field": "title", "places": [1, 5], "between": ["coffee", "by", "the"], "more": 3}
    assert parts['"late night"']["found"] is None and parts['"late night"']["occurrences"][1] == {"word": "night", "field": "body", "place": 2}


def test_a_filter_of_a_topk_subscription_is_explained():
    m = message("coffee by the lake\x1f", price=350.5)
    content = Content(m, Tokenizer(), LANGUAGE)
    for where, satisfied in (("price > 300 AND NOT tea", True), ("price < 200 AND coffee", False)):
        s = TopkSubscription("s", ["coffee"], 0.0, 0.0, 0.0, where=parse(where, Tokenizer(), LANGUAGE), k=2)
        found = explain_scores(s, m, ["coffee", "by", "the", "lake"], Vocabulary.empty(), 10.0, content)
        assert found["score"] == 0.5 and found["where"]["satisfied"] is satisfied and found["where"]["text"] == where
        lines = as_lines(found, "s", "m")
        assert lines[0] == ("m scores 0.500000 for s" if satisfied else "m does not satisfy the filter of s")
        assert f"where       {'yes' if satisfied else 'no '}   {where}" in lines
        assert any("price < 200: the message has 350.5" in line for line in lines) is not satisfied
        found["list"] = explain_list(found, "m", [("a", 0.4)], 5)
        assert found["list"]["reason"] == ("not in the window" if satisfied else "filtered") and (found["list"]["would_be"] is None) is not satisfied


def test_with_a_half_life_time_scores_say_where_a_message_stands():
    s, m = TopkSubscription("s", ["coffee"], 0.0, 0.0, 0.0, k=1), message("coffee by the lake")
    found = explain_scores(s, m, ["coffee", "by", "the", "lake"], Vocabulary.empty(), 10.0)
    add_time_score(found, 1_700_000_004_000, 2000.0)
    assert found["score"] == 0.5 and found["time_score"] == 850_000_002 - 1
    for other, reason in ((850_000_000.5, "due"), (850_000_001.5, "below the threshold")):
        found["list"] = explain_list(found, "m", [("a", other)], 1_700_000_005_000, 1_700_000_004_000, 10_000)
        assert found["list"]["reason"] == reason
    lines = as_lines(found, "s", "m")
    assert lines[0] == "m scores 0.500000 for s" and any(line.endswith("log2(0.500000) + 850000002.000000 = 850000001.000000") for line in lines)


@pytest.mark.parametrize(
    ("expression", "missing", "excluded"),
    [
        ("NOT tea", [], []),
        ("NOT coffee", [], ["coffee"]),
        ("NOT (coffee AND lake)", [], ["coffee"]),
        ("NOT (coffee OR lake OR tea)", [], ["coffee", "lake"]),
        ("NOT (coffee AND NOT tea)", [], ["coffee"]),
        ("NOT (NOT tea OR NOT wifi)", ["tea", "wifi"], []),
        ("ATLEAST 3 OF (coffee, tea, wifi AND x, y, NOT lake)", ["tea", "y"], []),
        ("NOT ATLEAST 2 OF (coffee, lake, tea)", [], ["coffee"]),
        ("ATLEAST 2 OF (NOT coffee, NOT lake, tea AND wifi)", [], ["coffee", "lake"]),
        ("tea OR wifi AND NOT coffee", ["tea"], []),
        ('"and" AND tea', ['"and"', "tea"], []),
        ("title:tea AND body:coffee", ["body:coffee", "title:tea"], []),
        ("price != 5 AND NOT exists(price)", ["price != 5"], []),
    ],
)
def test_few_changes_would_be_enough(expression, missing, excluded):
    found, lines = lines_of(expression, message("coffee by the lake\x1f"))
    assert (found["expression"]["needs"], found["expression"]["excludes"]) == (missing, excluded)
    assert found["expression"]["satisfied"] == (not missing and not excluded)
    assert any(line.startswith("missing: ") for line in lines) == bool(missing)
    assert any(line.startswith("must not have: ") for line in lines) == bool(excluded)


def test_what_is_not_asked_for_is_said():
    found = explained(EVERYWHERE, ["all"], message("coffee", 1.0, 2.0))
    assert found["matches"] and as_lines(found, "s", "m") == [
        "m matches s",
        "",
        "rectangle   yes   the place 1, 2: it asks for no rectangle, so every place will do",
        "expression  yes   it asks for no words, so every text will do",
    ]


def in_region(region, given, bbox=None):
    encoded = parse_region(region)
    found = BooleanSubscription("s", bounding_box(encoded), "tea", region=None if is_rectangle(encoded) else encoded.tolist())
    return explain_boolean(found, given, Content(given, TOKENIZER))


def test_a_region_says_whether_the_message_is_in_it():
    circle = {"center": {"lat": 48.1, "lon": 11.6}, "radius_m": 1000}
    near, corner = message("tea", 48.105, 11.6), message("tea", 48.1085, 11.6125)
    found = in_region(circle, near)
    assert found["matches"] and found["region"]["distance_m"] == pytest.approx(556, abs=1)
    assert "region      yes   the place is in the circle of 1,000 m around 48.1, 11.6, 556.0 m from its centre" in as_lines(found, "s", "m")
    found = in_region(circle, corner)
    assert not found["matches"] and found["rectangle"]["inside"] and not found["region"]["inside"]
    assert "region      no    the place is outside the circle of 1,000 m around 48.1, 11.6, 1,324.7 m from its centre" in as_lines(found, "s", "m")
    triangle = {"type": "Polygon", "coordinates": [[[11, 48], [12, 48], [12, 49], [11, 48]]]}
    assert not in_region(triangle, message("tea", 48.9, 11.1))["matches"] and in_region(triangle, message("tea", 48.1, 11.9))["matches"]
    assert in_region(triangle, message("tea", 48.9, 11.1))["region"]["subscription"] == "the polygon of 3 corners"
    area = message("tea", 48.7, 11.2, (11.0, 48.6, 11.4, 48.8))
    assert in_region(triangle, area)["region"] == {"inside": False, "subscription": "the polygon of 3 corners", "message": "the area", "distance_m": None}
    assert in_region([triangle, circle], near)["region"]["subscription"] == "the region of 2 shapes"
    shaped = message("tea", 48.1, 11.6, bounding_box(parse_region(circle)))._replace(region=parse_region(circle).tolist())
    box = {"bbox": [11.6, 48.1, 12.0, 49.0]}
    assert in_region(box, shaped)["matches"] and in_region(box, shaped)["region"]["subscription"] == "the rectangle"
    outside = {"bbox": [11.6121, 48.108, 12.0, 49.0]}  # it meets the rectangle of the circle only
    assert in_region(outside, shaped)["rectangle"]["inside"] and not in_region(outside, shaped)["matches"]
    assert in_region(box, near)["region"] is None


def test_the_filter_of_a_list_is_explained(vocabulary):
    s = TopkSubscription("s", ["coffee"], 1.0, 0.0, 0.0, None, parse("price < 5 AND NOT decaf", TOKENIZER, LANGUAGE), k=2)
    given = message("decaf coffee", 0.0, 10.0, price=5)
    found = explain_scores(s, given, ["decaf", "coffee"], vocabulary, 100.0, Content(given, TOKENIZER, LANGUAGE))
    answer = explain_list(found, 5, [("a", 0.5)], 7)
    assert (answer["reason"], answer["would_be"]) == ("filtered", None) and not found["where"]["satisfied"]
    assert as_lines({**found, "list": answer}, "s", "m")[-8:-1] == [
        "where       no    price < 5 AND NOT decaf",
        "            no    all of",
        "                  no    price < 5: the message has 5",
        "                  no    not",
        "                        yes   decaf",
        "            missing: price < 5",
        "            must not have: decaf",
    ]
    assert "it does not satisfy the filter" in as_lines({**found, "list": answer}, "s", "m")[-1]
    plain = explain_scores(TopkSubscription("s", ["coffee"], 1.0, 0.0, 0.0, k=2), given, ["coffee"], vocabulary, 100.0)
    assert plain["where"] is None and explain_list(plain, 5, [("a", 0.5)], 7)["reason"] == "not in the window"


def test_whether_a_score_is_enough_is_explained(vocabulary):
    s = ThresholdSubscription("s", ["coffee"], 1.0, 0.0, 0.0, None, parse("price < 5", TOKENIZER, LANGUAGE), min_score=0.9)

    def explained(text, lon, price=4):
        given = message(text, 0.0, lon, price=price)
        return explain_scores(s, given, TOKENIZER.tokens(text), vocabulary, 100.0, Content(given, TOKENIZER, LANGUAGE))

    enough, far, dear, none = explained("coffee", 10.0), explained("coffee", 10.1), explained("coffee", 10.0, 5), explained("tea", 0.0)
    assert [found["matches"] for found in (enough, far, dear, none)] == [True, False, False, False]
    assert (enough["type"], enough["min_score"], enough["score"]) == ("threshold", 0.9, 0.9) and "k" not in enough
    lines = [as_lines(found, "s", "m") for found in (enough, far, none)]
    assert [found[0] for found in lines] == ["m matches s", "m does not match s", "m does not match s"]
    assert "        0.900000 is enough: the subscription wants 0.9 and more" in lines[0] and any("0.899000 is not enough" in line for line in lines[1])
    assert "score   none: a message without a common word does not match, however near it is" in lines[2]
    timed = as_lines({**enough, "times": [{"held": True, "text": "came later"}]}, "s", "m")
    assert timed[-1] == "time        yes   came later"


# -- top-k ----------------------------------------------------------------------------------------


def test_the_score_is_that_of_the_oracle(vocabulary):
    rng = random.Random(2)
    words = [vocabulary.term(i) for i in range(len(vocabulary))] + ["unknown", "stranger"]
    df = {w: int(vocabulary.df(vocabulary.ids([w]))[0]) for w in words}
    scored = 0
    for _ in range(300):
        tokens, keywords = [rng.choice(words) for _ in range(rng.randrange(6))], rng.sample(words, rng.randrange(1, 4))
        s = TopkSubscription("s", keywords, rng.choice([0.0, 1.0, rng.random()]), rng.uniform(-5, 5), rng.uniform(-5, 5), k=1)
        s = replace(s, scale_m=[None, 400_000.0, 5_000.0][len(tokens) % 3])
        m = message(" ".join(tokens), rng.uniform(-5, 5), rng.uniform(-5, 5))
        found = explain_scores(s, m, tokens, vocabulary, 20.0)
        counts = {t: tokens.count(t) for t in tokens}

        def by_id(weights):
            return {int(vocabulary.ids([w])[0]): value for w, value in weights.items()}

        expected = naive.score(
            {
                "lat": s.lat,
                "lon": s.lon,
                "alpha": s.alpha,
                "scale_m": s.scale_m,
                "weights": by_id(naive.norm_weights(dict.fromkeys(keywords, 1), df, vocabulary.documents)),
            },
            {"lat": m.lat, "lon": m.lon, "weights": by_id(naive.norm_weights(counts, df, vocabulary.documents)) if counts else {}},
            20.0,
        )
        if expected is None:
            assert found["score"] is None and not found["words"]["common"]
            continue
        scored += 1
        assert found["score"] == pytest.approx(expected, abs=1e-12)
        assert found["words"]["tsim"] == sum(w["product"] for w in found["words"]["common"])
        assert {w["word"] for w in found["words"]["common"]} | {w["word"] for w in found["words"]["missing"]} == set(keywords)
        assert f"scores {found['score']:.6f} for s" in as_lines(found, "s", "m")[0]
    assert scored > 100


def test_a_distance_in_metres_is_explained_over_its_scale(vocabulary):
    near, far = message("lake", 0.0, 0.01), message("lake", 5.0, 5.0)
    s = TopkSubscription("s", ["lake"], 0.5, 0.0, 0.0, None, None, 5000.0, k=1)
    lines = [as_lines(explain_scores(s, m, ["lake"], vocabulary, 20.0), "s", "m")[3] for m in (near, far)]
    assert lines == [
        "        SSim = 1 - 1111.95 / 5000 = 0.777610 (the scale is 5000 m; what is farther counts as that far)",
        "        SSim = 1 - 5000 / 5000 = 0.000000 (the scale is 5000 m; what is farther counts as that far)",
    ]


def test_the_score_is_the_one_that_the_engine_publishes_to_the_last_bit():
    skype = Skype.from_texts(TEXTS, window=10)
    vocabulary = Vocabulary.build(TEXTS, TOKENIZER)
    skype.subscribe("s", "coffee park", lat=48.1, lon=11.6, k=10, alpha=0.3)
    skype.publish([(str(i), text, 48.0 + i, 11.0 - i) for i, text in enumerate(TEXTS)])
    s = TopkSubscription("s", ["coffee", "park"], 0.3, 48.1, 11.6, k=10)
    found = {}
    for i, text in enumerate(TEXTS):
        explained = explain_scores(s, message(text, 48.0 + i, 11.0 - i), TOKENIZER.tokens(text), vocabulary, skype.skype.engine.diagonal_deg)
        if explained["score"] is not None:
            found[str(i)] = explained["score"]
    assert found == dict(skype.results("s")) and len(found) == 5


def test_places_and_words_are_shown(vocabulary):
    s = TopkSubscription("s", ["coffee", "harbour", "zebra"], 0.5, 48.0, 11.0, k=3)
    found = explain_scores(s, message("harbour coffee, coffee!", 48.0, 12.0), ["harbour", "coffee", "coffee"], vocabulary, 402.0)
    assert found["place"]["distance_deg"] == 1.0 and found["place"]["distance_km"] == pytest.approx(74.4, abs=0.1)
    assert [w["word"] for w in found["words"]["common"]] == ["harbour", "coffee"] and found["words"]["missing"] == [{"word": "zebra", "df": 1}]
    text = "\n".join(as_lines(found, "s", "m"))
    assert "1 degrees (74.4" in text and "not in the message: zebra" in text and "SSim = 1 - 1 / 402" in text and f"= {found['score']:.6f}" in text
    none = explain_scores(s, message("tea", 48.0, 11.0), ["tea"], vocabulary, 402.0)
    assert none["score"] is None and "has no word in common with s" in as_lines(none, "s", "m")[0]


def test_the_list_says_what_keeps_a_message_out(vocabulary):
    s = TopkSubscription("s", ["coffee"], 1.0, 0.0, 0.0, k=2)
    found = explain_scores(s, message("coffee", 0.0, 10.0), ["coffee"], vocabulary, 100.0)  # scores 0.9
    none = explain_scores(s, message("tea", 0.0, 10.0), ["tea"], vocabulary, 100.0)

    def reason(explained, id, *entries, **where):
        answer = explain_list(explained, id, entries, 7, **where)
        text = as_lines({**explained, "list": answer}, "s", "m")[-1]
        assert "at watermark 7" in text and "None" not in text
        return answer["reason"], answer["rank"], answer["threshold"], answer["would_be"]

    assert reason(found, 5, ("a", 0.95), (5, 0.9)) == ("listed", 2, 0.9, 2)
    assert reason(found, 5, ("5", 0.95), ("b", 0.94)) == ("below the threshold", None, 0.94, None)
    assert reason(found, 5, ("a", 0.95)) == ("not in the window", None, None, 2)
    assert reason(found, None, ("a", 0.95), ("b", 0.5)) == ("not published", None, 0.5, 2)
    assert reason(found, None, ("a", 0.95), ("b", 0.94)) == ("below the threshold", None, 0.94, None)
    assert reason(none, 5) == ("no common word", None, None, None)
    for position, expected in ((8, "came later"), (3, "left the window"), (4, "due"), (7, "due")):
        assert reason(found, 5, ("a", 0.95), position=position, extent=4) == (expected, None, None, 2)
    assert reason(found, 5, ("a", 0.95), ("b", 0.94), position=5, extent=4)[0] == "below the threshold"
    assert reason(found, 5, (5, 0.9), position=5, extent=4)[0] == "listed"


def test_what_comes_from_outside_cannot_steer_a_terminal(vocabulary):
    s = TopkSubscription("s", ["\x1b[31mred"], 0.5, 0.0, 0.0, k=1)
    lines = as_lines(explain_scores(s, message("x"), ["x"], vocabulary, 1.0), "s", "m")
    lines += as_lines({**explained((0.0, 0.0, 1.0, 1.0), ["or", "\x1bword", "x"], message("x")), "notes": ["\x1b"]}, "s", "m")
    assert "\x1b" not in "".join(lines)
    assert np.isfinite(explain_scores(s, message("x"), [], vocabulary, 1.0)["place"]["ssim"])
