"""The messages in the topology's order, and checks of that order and of the dead letters."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.refusals import LIMIT_STAGE
from dskype.deploy.verification.carried import expected_fields
from dskype.deploy.verification.inputs import Inputs, Record, header, where
from dskype.deploy.verification.quotas import OVER_QUOTA, check_quotas
from dskype.deploy.verification.reading import UnusableRecord, Weights, attributes_of, check_message, read_key, read_subscription
from dskype.deploy.verification.reading_analysis import words_of_message
from dskype.deploy.verification.reading_mapping import forms_of
from dskype.deploy.verification.refusals import Accepted, LatenessJudge
from dskype.deploy.verification.report import Report
from dskype.spouts.costs import CostCeiling
from dskype.spouts.records import Message, RecordError, areas_of
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import Subscription
from dskype.spouts.topics import Topics

__all__ = ["NEVER", "History", "Place", "State", "Unregistered", "handled_until", "message_in", "parse_subscriptions", "replay"]

NEVER = -(1 << 62)
_SHOWN = 5

Place = tuple[int, int]


class Unregistered(NamedTuple):
    """A record without a value."""

    id: str


class _Run(NamedTuple):
    """A record of the sequence topic: the ``n`` records from ``offset`` on have the numbers ``first, first + step, ...``."""

    first: int
    step: int
    task: Any
    partition: int
    offset: int
    n: int


class State(NamedTuple):
    """What a message says of an object.

    :ivar object: its id.
    :ivar deleted: whether it ends.
    :ivar own_ms: the message's own time; of an end that names none, behind all.
    """

    object: str
    deleted: bool
    own_ms: int


@dataclass
class History:
    """The numbered messages, rows in rising (position, seq).

    :ivar seq, position, arrival_ms: int64[n].
    :ivar lat, lon: float64[n]; of an area, its centre.
    :ivar partition, offset: int64[n], the records.
    :ivar texts: n texts.
    :ivar code: int64[n], a number for each message id.
    :ivar codes: message id (int or str, as in JSON) -> code. Ids that occur only in results get the next codes.
    :ivar offsets, terms, values: keywords and their weights: message *i* has ``terms[offsets[i]:offsets[i + 1]]``, rising, each once.
    :ivar weights: gives the numbers and weights of words.
    :ivar newest: the last possible watermark: position of the newest message; if several tasks number messages, of the newest message of the
        slowest task; -1: there is none.
    :ivar missing: messages with this position or a lower one may be gone from the log; ``NEVER``: none is.
    :ivar areas: float64[n, 4], as in ``MessageBatch``; None: every message is a point.
    :ivar regions: row -> region, as in JSON, of messages that are neither points nor rectangles.
    :ivar carried: n values: what results say of the fields of each message; None: results carry none.
    :ivar states: row -> the state of an object that the message is; see :class:`State`.
    :ivar attributes: attribute -> (the rows of the messages that have it, rising, int64[], and its values).
    """

    seq: np.ndarray
    position: np.ndarray
    arrival_ms: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    partition: np.ndarray
    offset: np.ndarray
    texts: list[str]
    code: np.ndarray
    codes: dict[Any, int]
    offsets: np.ndarray
    terms: np.ndarray
    values: np.ndarray
    weights: Weights
    newest: int
    missing: int
    areas: np.ndarray | None = None
    attributes: dict[str, tuple[np.ndarray, list[Any]]] = field(default_factory=dict)
    regions: dict[int, Any] = field(default_factory=dict)
    carried: list[dict[str, Any]] | None = None
    states: dict[int, State] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seq)

    def code_of(self, message: Any) -> int:
        """Return the code of an id; an unknown id gets a new one."""
        return self.codes.setdefault(message, len(self.codes))

    @functools.cached_property
    def _messages_of_code(self) -> np.ndarray:
        return np.bincount(self.code, minlength=len(self.codes))

    @functools.cached_property
    def _rows_of_code(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row, code in enumerate(self.code.tolist()):
            found.setdefault(code, []).append(row)
        return found

    def rows_of(self, message: Any) -> list[int]:
        """Return the rows of the messages with an id."""
        return self._rows_of_code.get(self.codes.get(message, -1), [])

    def is_repeated(self, message: Any) -> bool:
        """Tell whether several messages have this id."""
        code, counts = self.codes.get(message), self._messages_of_code
        return code is not None and code < len(counts) and bool(counts[code] > 1)


def parse_subscriptions(inputs: Inputs, settings: Settings) -> dict[Place, Subscription | Unregistered | str]:
    """Return each record of the subscriptions topic, parsed; for a bad one, the text says why."""
    ceiling = CostCeiling(settings)
    parsed = {(r.partition, r.offset): _parse_subscription(r, settings, ceiling) for r in inputs.subscriptions}
    full = {
        place: header(letter, "error") for place, letter in _Letters(inputs, settings, Report()).subscriptions.items() if header(letter, "stage") == LIMIT_STAGE
    }
    return parsed | {place: reason or "" for place, reason in full.items() if place in parsed}


def _parse_subscription(record: Record, settings: Settings, ceiling: CostCeiling) -> Subscription | Unregistered | str:
    try:
        if record.value is None:
            return Unregistered(read_key(record.key, settings))
        parsed = read_subscription(record.key, record.value, settings)
        ceiling.check(parsed)
        return parsed
    except (UnusableRecord, RecordError) as error:
        return str(error)


def replay(inputs: Inputs, settings: Settings, subscriptions: Mapping[Place, Any], report: Report, final: bool, progress: Callable[[str], None]) -> History:
    """Return the messages in the order of their numbers; check numbers and dead letters.

    :param inputs: of one run.
    :param subscriptions: as :func:`parse_subscriptions` returns them.
    :param final: every record must have been handled, not only those before the last numbered one.
    """
    progress("parsing messages")
    parsed = {(r.partition, r.offset): (r, _parse(r, inputs, settings)) for r in inputs.messages}
    letters = _Letters(inputs, settings, report)
    progress("checking the sequence")
    numbered, missing = _number(inputs, settings, report, parsed, letters)
    _check_coverage(inputs, settings, report, parsed, letters, numbered, final)
    letters.check_messages(parsed, numbered)
    letters.check_subscriptions(subscriptions, final)
    progress("weighing messages")
    return _history(inputs, settings, parsed, numbered, missing)


def _forms(value: bytes | None, topic: str, settings: Settings, topology: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the record of a message in DSkype's own form, and as it came."""
    return forms_of(value, settings.mapping_of(topic, Topics.for_topology(topology).messages), settings)


def message_in(record: Any, topic: str, settings: Settings, topology: str) -> Message:
    """Return the message in a record; with objects, one without a value ends the object in its key.

    :raises UnusableRecord: it has to be refused.
    """
    if record.value is None and settings.objects:
        return Message(None, "", 0.0, 0.0, None, object=read_key(record.key, settings), deleted=True)
    return check_message(_forms(record.value, topic, settings, topology)[0], settings)


def _parse(record: Record, inputs: Inputs, settings: Settings) -> Message | str:
    """Return the message; for a bad one, the text says why."""
    try:
        return message_in(record, inputs.place_of(record.partition)[0], settings, inputs.topology)
    except UnusableRecord as error:
        return str(error)


def _time_of(record: Record, message: Message) -> int:
    return record.timestamp_ms if message.ts is None else message.ts


# -- the sequence ---------------------------------------------------------------------------------


def _number(inputs: Inputs, settings: Settings, report: Report, parsed: dict[Place, Any], letters: _Letters) -> tuple[dict[Place, int], int]:
    """Return place -> sequence number, and the position up to which messages may be missing."""
    if not inputs.sequence:
        partitions = {r.partition for r in inputs.messages}
        if len(partitions) > 1 and (inputs.results or inputs.topk):
            report.differ("sequence", f"{inputs.topics.sequence} is empty, so the order of {len(partitions)} partitions is unknown")
        if len(partitions) != 1:
            return {}, NEVER
        report.notes["topic without a sequence: the order is that of the offsets"] += 1
        good = [place for place, (_, message) in parsed.items() if not isinstance(message, str) and place not in letters.messages]
        return {place: i for i, place in enumerate(good)}, NEVER
    runs = _runs(inputs, report)
    _check_numbers(runs, inputs.cut("sequence"), report, inputs)
    begin = inputs.begins["messages"]
    numbered: dict[Place, int] = {}
    missing = NEVER
    lost: list[Place] = []
    for run in runs:
        for i in range(run.n):
            place, seq = (run.partition, run.offset + i), run.first + i * run.step
            if place not in parsed:
                if run.offset + i < begin.get(run.partition, 1 << 62):
                    missing = max(missing, seq)
                else:
                    lost.append(place)
            elif place in numbered:
                report.differ("sequence", f"record {_named(inputs, place)} was numbered twice: {numbered[place]} and {seq}")
            else:
                numbered[place] = seq
    if lost:
        report.differ("sequence", f"{len(lost)} numbered records are not in {', '.join(inputs.message_topics or ())}: {_some(inputs, lost)}")
    if runs[0].first >= runs[0].step:
        missing = max(missing, runs[0].first - 1)
    if missing > NEVER and settings.window_kind == "time":
        # Their times are not known; this is the latest that they can have.
        missing = max((parsed[place][0].timestamp_ms for place in list(numbered)[:1]), default=0) + settings.ahead_ms
    return numbered, missing


def handled_until(inputs: Inputs) -> dict[int, int]:
    """Return partition of the messages -> the last offset that was numbered or refused."""
    handled: dict[int, int] = {}
    for run in _runs(inputs, Report()):
        handled[run.partition] = max(handled.get(run.partition, -1), run.offset + run.n - 1)
    for partition, offset in _Letters(inputs, Settings(), Report()).messages:
        handled[partition] = max(handled.get(partition, -1), offset)
    return handled


def _runs(inputs: Inputs, report: Report) -> list[_Run]:
    """Return the records of the sequence topic by their first number, without repetitions."""
    found: dict[tuple[Any, int], _Run] = {}
    for record in inputs.sequence:
        try:
            value = json.loads(record.value or b"")
            partition = inputs.partition_of(value.get("topic", (inputs.message_topics or ("",))[0]), value["partition"])
            if partition is None:
                report.differ(
                    "sequence",
                    f"a record of {inputs.topics.sequence} is about {value.get('topic')}, which is none of the topics of messages: {', '.join(inputs.message_topics or ())}",
                    where=where(inputs.topics.sequence, record),
                )
                continue
            run = _Run(value["first"], value.get("step", 1), value["task"], partition, value["offset"], value["n"])
            if not all(type(number) is int and number >= 0 for number in (run.first, run.partition, run.offset)) or run.n < 1 or run.step < 1:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError):
            report.differ("format", f"a record of {inputs.topics.sequence} cannot be read: {record.value!r:.200}", where=where(inputs.topics.sequence, record))
            continue
        known = found.setdefault((run.task, run.first), run)
        if known is not run:
            report.notes["repeated records of the sequence"] += 1
            if known != run:
                report.differ(
                    "sequence", f"number {run.first} was given twice: {_run_text(known)}, and {_run_text(run)}", where=where(inputs.topics.sequence, record)
                )
    return sorted(found.values()) or [_Run(0, 1, None, 0, 0, 0)]


def _run_text(run: _Run) -> str:
    return f"to {run.n} record(s) from {run.partition}/{run.offset}"


def _step(inputs: Inputs) -> int:
    """Return how many tasks number messages in turns."""
    return max((run.step for run in _runs(inputs, Report())), default=1)


def _check_numbers(runs: list[_Run], cut: bool, report: Report, inputs: Inputs) -> None:
    """Check that numbers are dense, and rise with the offsets of a partition."""
    following: dict[tuple[int, int], int] = {}
    last_offset: dict[int, tuple[int, int]] = {}
    for run in runs:
        lane = run.step, run.first % run.step
        expected = following.get(lane, run.first if cut else lane[1])
        if run.first > expected:
            report.differ("sequence", f"numbers {expected} to {run.first - run.step} were given to no message: {_run_text(run)} begins at {run.first}")
        elif run.first < expected:
            report.differ(
                "sequence",
                f"numbers {run.first} to {min(expected - run.step, run.first + (run.n - 1) * run.step)} were given twice, the second time {_run_text(run)}",
            )
        following[lane] = max(expected, run.first + run.n * run.step)
        offset, number = last_offset.get(run.partition, (-1, -1))
        if run.offset <= offset:
            report.differ(
                "sequence",
                f"record {_named(inputs, (run.partition, run.offset))} has number {run.first}, "
                f"but the later record {_named(inputs, (run.partition, offset))} has number {number}",
            )
        last_offset[run.partition] = max((offset, number), (run.offset + run.n - 1, run.first + (run.n - 1) * run.step))


def _check_coverage(
    inputs: Inputs, settings: Settings, report: Report, parsed: dict[Place, Any], letters: _Letters, numbered: dict[Place, int], final: bool
) -> None:
    """Check that every record was either numbered or refused."""
    handled: dict[int, int] = {}
    begun: dict[int, int] = {}
    for partition, offset in numbered:
        handled[partition] = max(handled.get(partition, -1), offset)
        begun[partition] = min(begun.get(partition, 1 << 62), offset)
    if not (inputs.cut("sequence") or inputs.runs > 1):  # a later run may begin where the one before it ended
        begun = dict.fromkeys((p for p, _ in parsed), 0)
    both, lost = [], []
    for place, (record, message) in parsed.items():
        if place in numbered:
            if place in letters.messages:
                both.append(place)
            elif isinstance(message, str):
                report.differ("sequence", f"record {_named(inputs, place)} has number {numbered[place]}, but it is not a message: {message}")
            elif settings.window_kind == "time" and _time_of(record, message) > record.timestamp_ms + settings.ahead_ms:
                report.differ(
                    "sequence",
                    f"record {_named(inputs, place)} has number {numbered[place]}, but its time is more than {settings.ahead_ms} ms ahead of its arrival",
                )
        elif place not in letters.messages and place[1] >= begun.get(place[0], 1 << 62):
            if final or place[1] <= handled.get(place[0], -1):
                lost.append(place)
            else:
                report.unchecked["messages are not numbered yet"] += 1
    for places, text in ((both, "were numbered and refused"), (lost, "were neither numbered nor refused")):
        if places:
            bad = [p for p in places if isinstance(parsed[p][1], str)]
            reason = f"; {_named(inputs, bad[0])} cannot be used: {parsed[bad[0]][1]}" if bad else ""
            report.differ("dead-letter" if bad and places is lost else "sequence", f"{len(places)} record(s) {text}: {_some(inputs, places)}{reason}")
    report.compared["messages"] += len(numbered)


def _named(inputs: Inputs, place: Place) -> str:
    topic, partition = inputs.place_of(place[0])
    return f"{topic}/{partition} offset {place[1]}"


def _some(inputs: Inputs, places: list[Place]) -> str:
    return ", ".join(_named(inputs, p) for p in places[:_SHOWN]) + (", ..." if len(places) > _SHOWN else "")


# -- dead letters ---------------------------------------------------------------------------------


def _about(letter: Record, record: Record, with_key: bool = True) -> bool:
    """Tell whether a dead letter contains the record, or its beginning if the header ``truncated`` says so."""
    pairs = [(letter.value, record.value, "size"), *([(letter.key, record.key, "key-size")] if with_key else [])]
    for kept, whole, size in pairs:
        cut = header(letter, "truncated") is not None and kept is not None and whole is not None and len(kept) < len(whole)
        if not (whole.startswith(kept) and header(letter, size) == str(len(whole)) if cut else kept == whole):
            return False
    return True


class _Letters:
    """The dead letters, by the record that they are about.

    :ivar messages, subscriptions: (partition, offset) of the record -> letter.
    """

    def __init__(self, inputs: Inputs, settings: Settings, report: Report) -> None:
        self._inputs, self._settings, self._report = inputs, settings, report
        self.messages: dict[Place, Record] = {}
        self.subscriptions: dict[Place, Record] = {}
        for letter in inputs.dead_letters:
            topic = header(letter, "topic")
            try:
                place = int(header(letter, "partition") or ""), int(header(letter, "offset") or "")
            except ValueError:
                report.differ("format", "a dead letter does not say what record it is about", where=self._where(letter))
                continue
            of_message = inputs.partition_of(topic, place[0])
            if of_message is not None:
                place = of_message, place[1]
            letters = self.messages if of_message is not None else self.subscriptions if topic == inputs.topics.subscriptions else None
            if topic in (inputs.topics.plans, inputs.topics.searches):  # clients write these, and they change no result that is compared
                report.notes[f"dead letters about {topic}"] += 1
            elif letters is None:
                report.differ(
                    "dead-letter", f"a record of {topic}, which only the topology writes, was refused: {header(letter, 'error')}", where=self._where(letter)
                )
            elif place in letters:
                report.notes["repeated dead letters"] += 1
                if letters[place].value != letter.value:
                    report.differ(
                        "dead-letter", f"two dead letters about {topic}/{header(letter, 'partition')} offset {place[1]} differ", where=self._where(letter)
                    )
            else:
                letters[place] = letter

    def _where(self, letter: Record) -> str:
        return where(self._inputs.topics.dead_letters, letter)

    def check_messages(self, parsed: dict[Place, Any], numbered: dict[Place, int]) -> None:
        """Check that refused messages are bad, and that their letters contain them."""
        settings, judge = self._settings, None
        for place, letter in self.messages.items():
            self._report.compared["dead letters"] += 1
            record, message = parsed.get(place) or (letter, _parse(letter._replace(partition=place[0]), self._inputs, settings))
            name = _named(self._inputs, place)
            if record is not letter and not _about(letter, record, with_key=False):
                self._report.differ(
                    "dead-letter",
                    f"the dead letter about {name} has other bytes",
                    where=self._where(letter),
                    expected=_bytes(record.value),
                    published=_bytes(letter.value),
                )
            elif not isinstance(message, str):
                why: tuple[str, ...] = ()
                if settings.window_kind == "time":
                    judge = judge or self._judge(parsed, numbered)
                    own_ms = _time_of(record, message)
                    late = judge.may_be_late(Accepted(*place, record.timestamp_ms, own_ms)) if place in parsed else None
                    if late is None:
                        self._report.unchecked["refused messages: what came before them, or when they came, is gone"] += 1
                    if late is not False or own_ms > record.timestamp_ms + settings.ahead_ms:
                        continue
                    why = (f"came    {record.timestamp_ms - own_ms} ms after its own time; the lateness is {settings.lateness_ms} ms",)
                self._report.differ(
                    "dead-letter",
                    f"a good message was refused: {name}",
                    where=self._where(letter),
                    details=(f"error   {header(letter, 'error')}", f"message {_bytes(letter.value)}", *why),
                )

    def _judge(self, parsed: dict[Place, Any], numbered: dict[Place, int]) -> LatenessJudge:
        """Return what tells whether messages may be refused as late."""
        inputs = self._inputs
        accepted = [
            Accepted(*place, record.timestamp_ms, _time_of(record, message))
            for place, (record, message) in parsed.items()
            if place in numbered and not isinstance(message, str)
        ]
        task_of = {run.partition: run.task for run in _runs(inputs, Report())}
        return LatenessJudge(accepted, task_of, self._settings, complete=not (inputs.cut("sequence") or inputs.cut("messages") or inputs.runs > 1))

    def check_subscriptions(self, parsed: Mapping[Place, Any], final: bool) -> None:
        """Check that exactly the bad subscriptions were refused.

        A bad one must have been refused when a later record of its partition has been handled.
        """
        ceiling = CostCeiling(self._settings)
        topic = self._inputs.topics.subscriptions
        records = {(r.partition, r.offset): r for r in self._inputs.subscriptions}
        for place, letter in self.subscriptions.items():
            self._report.compared["dead letters"] += 1
            record = records.get(place, letter)
            name = f"{topic}/{place[0]} offset {place[1]}"
            if header(letter, "code") == OVER_QUOTA:
                self._report.notes["subscriptions that were refused beyond a quota"] += 1
            elif header(letter, "stage") == LIMIT_STAGE:
                self._report.notes["subscriptions that were refused because a task was full"] += 1
            elif record is not letter and not _about(letter, record):
                self._report.differ("dead-letter", f"the dead letter about {name} has other bytes", where=self._where(letter))
            elif not isinstance(_parse_subscription(record, self._settings, ceiling), str):
                self._report.differ(
                    "dead-letter",
                    f"a good subscription was refused: {name}",
                    where=self._where(letter),
                    details=(f"error        {header(letter, 'error')}", f"subscription {_bytes(letter.value)}"),
                )
        handled = self._handled(self.subscriptions)
        for place, found in parsed.items():
            if isinstance(found, str) and place not in self.subscriptions and ((final and self._inputs.runs == 1) or place[1] < handled.get(place[0], -1)):
                self._report.differ("dead-letter", f"a bad subscription was not refused: {found}", where=where(topic, records[place]))
        if self._settings.tenants:
            limited = [place for place, letter in self.subscriptions.items() if header(letter, "stage") == LIMIT_STAGE]
            until = math.inf if final and self._inputs.runs == 1 else max(self._handled(limited).values(), default=-1)
            handled_records = {place: record for place, record in records.items() if place[1] <= until}
            read = {place: _parse_subscription(record, self._settings, ceiling) for place, record in handled_records.items()}
            check_quotas(self._inputs, self._settings, read, self.subscriptions, self._report)

    def _handled(self, letters: Iterable[Place]) -> dict[int, int]:
        """Return partition -> the highest offset that an event or one of the dead letters names."""
        handled: dict[int, int] = {}
        for partition, offset in letters:
            handled[partition] = max(handled.get(partition, -1), offset)
        for record in self._inputs.registrations:
            try:
                partition, offset = map(int, json.loads(record.value or b"")["registration"].split("-"))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # reported elsewhere
            handled[partition] = max(handled.get(partition, -1), offset)
        return handled


def _bytes(value: bytes | None) -> str | None:
    return None if value is None else value[:400].decode(errors="backslashreplace")


# -- columns --------------------------------------------------------------------------------------


def _history(inputs: Inputs, settings: Settings, parsed: dict[Place, Any], numbered: dict[Place, int], missing: int) -> History:
    step = _step(inputs)
    timed = settings.window_kind == "time"
    rows: list[tuple[int, int, Place, Record, Message]] = []
    for place, seq in numbered.items():
        record, message = parsed[place]
        if not isinstance(message, str):
            rows.append((_time_of(record, message) if timed else seq, seq, place, record, message))
    rows.sort(key=lambda row: row[:2])
    n = len(rows)
    codes: dict[Any, int] = {}
    code = np.zeros(n, np.int64)
    for i, (_, _, (partition, offset), _, message) in enumerate(rows):
        code[i] = codes.setdefault(inputs.default_id(partition, offset) if message.id is None else json.loads(message.id), len(codes))
    weights = Weights(settings.vocabulary)
    texts = [row[4].text for row in rows]
    weighed = [weights.weigh(words_of_message(text, settings)) for text in texts]
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum([len(terms) for terms, _ in weighed], out=offsets[1:])

    def column(of: Callable[[Any], Any], kind: Any) -> np.ndarray:
        return np.fromiter(map(of, rows), kind, n)

    position = column(lambda r: r[0], np.int64)
    seq = column(lambda r: r[1], np.int64)
    newest = int(min(position[seq % step == lane].max(initial=-1) for lane in range(step)))
    return History(
        seq,
        position,
        column(lambda r: r[3].timestamp_ms, np.int64),
        column(lambda r: r[4].lat, np.float64),
        column(lambda r: r[4].lon, np.float64),
        column(lambda r: r[2][0], np.int64),
        column(lambda r: r[2][1], np.int64),
        texts,
        code,
        codes,
        offsets,
        np.concatenate([np.zeros(0, np.int64), *(terms for terms, _ in weighed)]),
        np.concatenate([np.zeros(0), *(values for _, values in weighed)]),
        weights,
        newest,
        missing,
        areas_of([row[4] for row in rows]),
        _attribute_columns([row[4] for row in rows], settings),
        {number: row[4].region for number, row in enumerate(rows) if row[4].region is not None},
        _carried([row[3:] for row in rows], inputs, settings),
        {
            number: State(m.object, m.deleted, -NEVER if m.deleted and m.ts is None else _time_of(record, m))
            for number, (*_, record, m) in enumerate(rows)
            if m.object is not None
        },
    )


def _carried(rows: list[tuple[Record, Message]], inputs: Inputs, settings: Settings) -> list[dict[str, Any]] | None:
    """Return what results say of the fields of each message; None: they say nothing."""
    if settings.result_fields is None:
        return None

    def of(record: Record, message: Message) -> dict[str, Any]:
        if message.deleted:
            return {}
        return expected_fields(*_forms(record.value, inputs.place_of(record.partition)[0], settings, inputs.topology), record.timestamp_ms, settings)

    return [of(*row) for row in rows]


def _attribute_columns(messages: list[Message], settings: Settings) -> dict[str, tuple[np.ndarray, list[Any]]]:
    rows: dict[str, list[int]] = {name: [] for name in settings.attributes}
    values: dict[str, list[Any]] = {name: [] for name in settings.attributes}
    for row, message in enumerate(messages):
        for name, value in attributes_of(message.attributes, settings).items():
            rows[name].append(row)
            values[name].append(value)
    return {name: (np.array(rows[name], np.int64), values[name]) for name in rows}
