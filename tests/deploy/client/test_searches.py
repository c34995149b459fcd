"""The parts of an answer, in any order, repeated, and missing."""

import itertools

import pytest

from dskype.deploy.cli.commands.search import _lines
from dskype.deploy.client.searches import AnswerParts, Match, SearchError
from dskype.spouts.record_values import RecordError


def part(task, results, **more):
    return {"v": 1, "search": "q", "task": task, "tasks": [4, 5, 6], "watermark": 9, "results": results, **more}


def found(message, score, position):
    return {"message": message, "score": score, "lat": 1.0, "lon": 2.0, "position": position, "seq": position}


def test_parts_make_the_same_answer_in_any_order():
    parts = [part(4, [found("a", 0.5, 1), found("b", 0.25, 4)]), part(5, [found("c", 0.5, 3)]), part(6, [])]
    for order in itertools.permutations([*parts, parts[0]]):
        collected = AnswerParts(2)
        answers = [answer for one in order if (answer := collected.add(one)) is not None]
        assert [(match.message, match.score) for match in answers[0].matches] == [("c", 0.5), ("a", 0.5)]  # of equal scores the newer one is first
        assert answers[0].watermark == 9 and answers[0].total is None
        assert all(answer == answers[0] for answer in answers)


def test_a_boolean_answer_is_the_newest_and_counts_all():
    collected = AnswerParts(2)
    entries = [[{"message": task * 10 + i, "position": task * 10 + i, "seq": 1, "fields": {"text": "x"}} for i in (1, 0)] for task in (4, 5, 6)]
    assert [collected.add(part(task, rows, count=7)) for task, rows in zip((4, 5), entries)] == [None, None]
    assert collected.missing() == [6] and len(collected) == 2
    answer = collected.add(part(6, entries[2], count=7))
    assert answer.total == 21 and answer.matches == [Match(61, carried={"fields": {"text": "x"}}), Match(60, carried={"fields": {"text": "x"}})]
    assert answer.as_json() == {"watermark": 9, "total": 21, "matches": [{"message": 61, "fields": {"text": "x"}}, {"message": 60, "fields": {"text": "x"}}]}


def test_a_match_names_the_object_of_which_it_is_a_state():
    entries = [{**found("0-1", 0.5, 1), "object": "bus-7", "fields": {"text": "x"}}, found("0-0", 0.25, 0)]
    collected = AnswerParts(3)
    answer = [collected.add(part(task, rows)) for task, rows in ((4, entries), (5, []), (6, []))][-1]
    assert [match.object for match in answer.matches] == ["bus-7", None]
    first = {"message": "0-1", "object": "bus-7", "fields": {"text": "x"}, "score": 0.5, "lat": 1.0, "lon": 2.0}
    assert answer.as_json()["matches"] == [first, {"message": "0-0", "score": 0.25, "lat": 1.0, "lon": 2.0}]
    assert _lines(answer, {}, None) == ["   1  0.500000  bus-7  0-1  1.00000,2.00000  x", "   2  0.250000  0-0  1.00000,2.00000"]


@pytest.mark.parametrize(("code", "kind"), [("too-many", SearchError), ("gone", SearchError), ("invalid-k", RecordError)])
def test_a_refusal_ends_it(code, kind):
    with pytest.raises(kind, match="too bad"):
        AnswerParts(1).add({"v": 1, "search": "q", "error": "too bad", "code": code})
