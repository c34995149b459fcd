"""``dskype quickstart``: begin a project in streamparse's layout."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
from pathlib import Path

from dskype.deploy.cli.arguments import UsageError, common
from dskype.deploy.machine.terminal import say

_SPOUTS = '''"""The project's spouts."""

from itertools import cycle

from dskype.topology.streamparse import Spout


class WordSpout(Spout):
    """Emits four words in turn."""

    outputs = ["word"]

    def initialize(self, stormconf, context):
        self.words = cycle(["dog", "cat", "zebra", "elephant"])

    def next_tuple(self):
        self.emit([next(self.words)])
'''
_BOLTS = '''"""The project's bolts."""

from collections import Counter

from dskype.topology.streamparse import Bolt


class WordCountBolt(Bolt):
    """Emits each word with the number of times it has come."""

    outputs = ["word", "count"]

    def initialize(self, conf, ctx):
        self.counter = Counter()

    def process(self, tup):
        (word,) = tup.values
        self.counter[word] += 1
        if self.counter[word] % 10_000 == 0:
            self.logger.info("%s: %d", word, self.counter[word])
        self.emit([word, self.counter[word]])
'''
_TOPOLOGY = '''"""Counts words: dskype local topologies/wordcount.py"""

from {package}.bolts import WordCountBolt
from {package}.spouts import WordSpout

from dskype.topology.streamparse import Grouping, Topology


class WordCount(Topology):
    """The topology; it is called like this file."""

    config = {{"topology.max.spout.pending": 1000}}

    word_spout = WordSpout.spec()
    count_bolt = WordCountBolt.spec(inputs={{word_spout: Grouping.fields("word")}}, par=2)
'''


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser, kafka=False)
    parser.add_argument("name", metavar="NAME", help="the project's folder, which is made")


def run(args: argparse.Namespace) -> int:
    """Write the project.

    :raises UsageError: the folder exists, or its name cannot be that of a package.
    """
    folder = Path(args.name)
    package = folder.name.replace("-", "_")
    if not package.isidentifier() or keyword.iskeyword(package):
        raise UsageError(f"expected a name for the project that Python takes for a package: letters, digits, - and _; given: {args.name!r}")
    if folder.exists():
        raise UsageError(f"{folder} exists; give a name that is free")
    if importlib.util.find_spec(package) is not None:
        raise UsageError(f"expected a name for the project that no installed package has, given: {args.name!r}")
    files = {
        f"src/{package}/__init__.py": "",
        f"src/{package}/bolts.py": _BOLTS,
        f"src/{package}/spouts.py": _SPOUTS,
        "topologies/wordcount.py": _TOPOLOGY.format(package=package),
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    say(f"{folder} has {', '.join(name for name in files if files[name])}")
    say(f"run it: cd {folder} && dskype local topologies/wordcount.py")
    return 0
