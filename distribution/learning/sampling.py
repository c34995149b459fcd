"""Reads samples of messages and subscriptions, and computes the thresholds that the subscriptions would have."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dskype.distribution.base import Sample
from dskype.distribution.learning import cuts_kernels as learning_kernels
from dskype.distribution.routing._kernels import Subscriptions
from dskype.distribution.routing.triggers import trigger_terms
from dskype.spouts.areas import centre_of
from dskype.spouts.batch import Details, MessageBatch, select_lists
from dskype.spouts.columns import lists_to_csr
from dskype.spouts.expression import words
from dskype.spouts.filters import compile_filter
from dskype.spouts.input_mapping import MessageReader
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.reach import needed_terms, reach
from dskype.spouts.readers import RecordFile, plain_lines
from dskype.spouts.record_values import RecordError
from dskype.spouts.records import Message, areas_of, encode_attributes, parse_subscription
from dskype.spouts.subscriptions import Subscription, ThresholdSubscription, TopkSubscription
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings

__all__ = ["halves", "make_sample", "read_records", "read_sample", "sample_thresholds"]

log = logging.getLogger(__name__)

_MOST = 200_000

_FEWEST = 100
"""A sample with fewer messages or subscriptions is not divided."""

_SEED = 43
"""Of the halves of a sample."""


def read_sample(
    messages: str | Path, subscriptions: str | Path, vocabulary: Vocabulary, settings: Settings, warn: Callable[[str], object] = log.warning
) -> Sample:
    """Read a sample from two files, see :func:`read_records`.

    :raises IllegalArgumentException: a file cannot be read, or has no records.
    """
    return make_sample(*read_records(messages, subscriptions, settings, warn=warn), vocabulary, settings)


def read_records(
    messages: str | Path, subscriptions: str | Path, settings: Settings, most: int = _MOST, warn: Callable[[str], object] = log.warning
) -> tuple[list[Message], list[Subscription]]:
    """Read messages and subscriptions from two files.

    The file of messages is one of those that :class:`~dskype.spouts.readers.RecordFile` reads, with the settings' mapping. A subscription is a line with a record of
    the subscriptions topic with its ``id`` as a field, or a line ``{"key": id, "value": {...}}``. What is malformed is left out, and counted. If there are too many
    records, evenly spaced ones are used.

    :param most: the most messages, and the most subscriptions.
    :param warn: is told of each file how many of its records were left out, and why the first one was.
    :raises IllegalArgumentException: a file cannot be read, or has no records.
    """
    tokenizer = settings.analyzer()

    def subscription(line: bytes, number: int) -> Subscription:
        record = json.loads(line)
        key: Any = number
        if isinstance(record, dict):
            key, record = record.get("key", record.get("id", number)), record.get("value", {name: field for name, field in record.items() if name != "id"})
        return parse_subscription(str(key).encode(), json.dumps(record).encode(), tokenizer=tokenizer, **settings.reading)

    try:
        file = RecordFile(messages, settings.input)
        read = MessageReader(settings, file.mapping).read

        def message(value: Any, number: int) -> Message:
            found = read(value)
            encode_attributes(settings.attributes, found)  # a message whose attributes are refused is malformed
            return found

        lines = plain_lines(str(subscriptions))
    except OSError as ex:
        raise IllegalArgumentException("The file of a sample cannot be read.", given=ex.filename, hint=str(ex)) from None
    return _records(messages, file, message, most, warn), _records(subscriptions, lines, subscription, most, warn)


def _records(path: str | Path, source: Iterable[tuple[int, Any]], parse: Callable[[Any, int], Any], most: int, warn: Callable[[str], object]) -> list[Any]:
    found: list[Any] = []
    refused, malformed = None, 0
    for number, value in source:
        try:
            if isinstance(value, RecordError):
                raise value
            found.append(parse(value, number))
        except (RecordError, ValueError, RecursionError) as error:
            malformed += 1
            refused = refused or f"record {number}: {error or 'too deeply nested'}"
    if not found:
        raise IllegalArgumentException("The file of a sample has no records that can be used.", given=str(path), legal="JSON lines", hint=refused)
    if malformed:
        warn(f"{malformed:,} of {malformed + len(found):,} records of {path} are left out of the sample; the first one: {refused}")
    return found if len(found) <= most else [found[i] for i in np.linspace(0, len(found) - 1, most).astype(np.int64).tolist()]


def make_sample(messages: list[Message], subscriptions: list[Subscription], vocabulary: Vocabulary, settings: Settings) -> Sample:
    """Return the sample that consists of some records.

    A boolean subscription has its rectangle, and a threshold subscription the one that it can reach; for distributors that know no rectangles both count as top-k subscriptions for their trigger terms at the centres
    of their rectangles, without a threshold. For distributors that know no areas, an area counts at its centre. Messages have their terms that are no words, too, as a topology routes them by these.
    Thresholds are those of a window with all the messages, or with the last ones if the settings have a shorter count window.
    """
    tokenizer = settings.analyzer()
    offsets, terms, weights = vocabulary.weigh_texts([m.text for m in messages], tokenizer)
    n = len(messages)
    batch = MessageBatch(
        np.arange(n),
        np.arange(n),
        np.array([m.lat for m in messages], np.float64),
        np.array([m.lon for m in messages], np.float64),
        offsets,
        terms,
        weights,
        areas_of(messages),
    )
    batch = _with_other_terms(batch, messages, settings)
    rows, boxes = [], []
    for s in subscriptions:
        if isinstance(s, TopkSubscription):
            rows.append((s.k, s.alpha, s.lat, s.lon, *vocabulary.weigh(s.keywords), True))
            boxes.append((np.nan,) * 4)
            continue
        if isinstance(s, ThresholdSubscription):
            found, weights = vocabulary.weigh(s.keywords)
            triggers = np.array(needed_terms(s.alpha, s.min_score, found.tolist(), weights.tolist()), np.int64)
            boxes.append(reach(s.alpha, s.lat, s.lon, s.scale_m, s.min_score, settings.space.diagonal_deg))
        else:
            condition = compile_filter(s.expression, vocabulary.ids_of(words(s.expression)), settings.language.fields).condition
            triggers = np.array(trigger_terms(condition), np.int64)
            boxes.append(s.bbox)
        rows.append((1, 0.0, *centre_of(*boxes[-1]), triggers, np.full(len(triggers), len(triggers) ** -0.5), False))
    k, alpha, lat, lon, row_terms, row_weights, bounded = zip(*rows)
    sample = Sample(
        batch,
        np.array(k, np.int64),
        np.array(alpha, np.float64),
        np.array(lat, np.float64),
        np.array(lon, np.float64),
        np.cumsum([0, *map(len, row_terms)]).astype(np.int64),
        np.concatenate(row_terms).astype(np.int64),
        np.concatenate(row_weights),
        np.full(len(rows), -np.inf),
        np.ones(len(rows)),
        np.array(boxes, np.float64),
        np.array([(s.scale_m or 0.0) if isinstance(s, TopkSubscription) else 0.0 for s in subscriptions]),
    )
    window = batch.slice(max(0, n - settings.extent), n) if settings.window_kind == "count" else batch
    found, counts = sample_thresholds(sample, window, settings.space.diagonal_deg)
    return sample._replace(thresholds=np.where(np.array(bounded), found, -np.inf), filled=np.minimum(1.0, counts / sample.k))


def _with_other_terms(batch: MessageBatch, messages: list[Message], settings: Settings) -> MessageBatch:
    """Return messages with their terms that are no words, by which subscriptions without words are found."""
    found = MessageTerms(settings)
    attributes = lists_to_csr([encode_attributes(settings.attributes, message) for message in messages], np.int64)
    prefixes = found.prefixes(pa.array([message.text for message in messages], pa.string()))
    return found.add(
        batch,
        found.of(Details.empty(batch.n)._replace(attribute_offsets=attributes[0], attributes=attributes[1], prefix_offsets=prefixes[0], prefixes=prefixes[1])),
    )


def sample_thresholds(sample: Sample, window: MessageBatch, diagonal_deg: float) -> tuple[np.ndarray, np.ndarray]:
    """Return for each subscription the score of the k-th best message of a window (float64[n], -inf if fewer match), and how many match (int64[n])."""
    terms = window.terms[window.offsets[0] : window.offsets[-1]]
    weights = window.weights[window.offsets[0] : window.offsets[-1]]
    order = np.argsort(terms, kind="stable")
    rows = np.repeat(np.arange(window.n), np.diff(window.offsets))[order]
    different, start = np.unique(terms[order], return_index=True)
    subscriptions = Subscriptions(np.asarray(sample.k, np.int64), *sample[2:8])
    messages = learning_kernels.Window(window.lat, window.lon, different, np.append(start, len(order)).astype(np.int64), rows, weights[order])
    return learning_kernels.thresholds(subscriptions, sample.scales_m(), messages, diagonal_deg)


def halves(sample: Sample, draw: int = 0) -> tuple[Sample, Sample]:
    """Return two halves of the messages and subscriptions of a sample; of a small one everything twice.

    They are drawn, always alike: of records from two sources that take turns, every second one would be no sample of all.

    :param draw: each number draws other halves.
    """
    if min(sample.n, sample.messages.n) < _FEWEST:
        return sample, sample
    rng = np.random.default_rng([_SEED, draw])
    drawn = [np.array_split(rng.permutation(n), 2) for n in (sample.messages.n, sample.n)]
    one, other = (_part(sample, np.sort(messages), np.sort(rows)) for messages, rows in zip(*drawn))
    return one, other


def _part(sample: Sample, messages: np.ndarray, rows: np.ndarray) -> Sample:
    offsets, own = select_lists(sample.offsets, rows)
    number = np.arange(len(messages))
    return Sample(
        sample.messages.select(messages)._replace(seq=number, position=number),
        sample.k[rows],
        sample.alpha[rows],
        sample.lat[rows],
        sample.lon[rows],
        offsets,
        sample.terms[own],
        sample.weights[own],
        sample.thresholds[rows],
        sample.filled[rows],
        sample.rectangles()[rows],
        sample.scales_m()[rows],
    )
