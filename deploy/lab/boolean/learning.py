"""Samples to learn plans from, for topologies whose boolean subscriptions and messages a benchmark draws from places."""

from __future__ import annotations

import argparse
from pathlib import Path

from dskype.deploy.demo.places import places
from dskype.deploy.lab.boolean.records import boolean_records
from dskype.deploy.lab.system.throughput_arguments import boolean_shape, configuration
from dskype.distribution.base import Sample
from dskype.distribution.learning.sampling import read_sample
from dskype.spouts.settings import Settings
from dskype.spouts.vocabulary import Vocabulary

__all__ = ["SAMPLE", "boolean_sample", "sample_of_records"]

SAMPLE = 20_000
"""Messages, and at most as many subscriptions, that plans are learned from."""


def boolean_sample(args: argparse.Namespace, vocabulary: Path, folder: Path) -> Sample:
    """Return messages that will be published, and other subscriptions than those that will be registered, by the topology's vocabulary.

    :param args: of the throughput benchmark.
    :param folder: for two files, which are replaced.
    """
    every = places(args.seed, args.messages, args.places)
    records = boolean_records(every, min(SAMPLE, args.subscriptions[0]), args.seed + 1, **boolean_shape(args))
    found = Vocabulary.load(vocabulary), Settings.from_conf(configuration(args, vocabulary))
    return sample_of_records(every.records(0, SAMPLE), [(id.encode(), value) for id, value in records], *found, folder)


def sample_of_records(messages: list[bytes], subscriptions: list[tuple[bytes, bytes]], vocabulary: Vocabulary, settings: Settings, folder: Path) -> Sample:
    """Return the sample that consists of records of a topology's topics.

    :param messages: their values.
    :param subscriptions: their keys and values.
    :param folder: for two files, which are replaced.
    """
    paths = folder / "messages.jsonl", folder / "subscriptions.jsonl"
    paths[0].write_bytes(b"\n".join(messages))
    paths[1].write_bytes(b"\n".join(b'{"key":"%b","value":%b}' % one for one in subscriptions))
    return read_sample(*paths, vocabulary, settings)
