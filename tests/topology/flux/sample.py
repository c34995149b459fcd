"""Classes that the Flux tests name through ``allow_modules``."""

from __future__ import annotations

import enum
import json  # noqa: F401 - imported here, not defined here: a file must not reach it
from collections import OrderedDict  # noqa: F401
from subprocess import Popen  # noqa: F401
from typing import Any, Literal

from dskype.topology.builder import TopologyBuilder
from dskype.topology.components import BasicBolt, Spout
from dskype.topology.fields import Fields
from dskype.topology.testing import TestWordSpout

constant = 3


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Part:
    def __init__(self, name: str = "none") -> None:
        self.name = name

    class Inner:
        pass


class Thing:
    """Has a parameter for every type that the tests convert."""

    declared: int

    def __init__(
        self,
        n: int = 0,
        x: float = 0.0,
        flag: bool = False,
        colour: Colour | None = None,
        words: list[str] | None = None,
        mode: Literal["fast", "slow"] = "fast",
        part: Part | None = None,
        options: dict[str, float] | None = None,
        fields: Fields | None = None,
        anything=None,
    ) -> None:
        self.n, self.x, self.flag, self.colour, self.words, self.mode = n, x, flag, colour, words, mode
        self.part, self.options, self.fields, self.anything = part, options, fields, anything
        self.calls: list[Any] = []
        self.public = "old"
        self._private = "kept"

    @classmethod
    def made_by_class(cls, n: int) -> Thing:
        return cls(n * 10)

    @staticmethod
    def makeStatic(n: int, m: int = 1) -> Thing:
        return Thing(n * m)

    def ordinary(self) -> Thing:
        return self

    def set_speed(self, speed: float) -> None:
        self.calls.append(("speed", speed))

    def setLikeJava(self, value: str) -> None:
        self.calls.append(("java", value))

    def with_parts(self, *parts: Part | None) -> None:
        self.calls.append(("parts", [None if p is None else p.name for p in parts]))

    def with_pair(self, a: int, b: str) -> None:
        self.calls.append(("pair", a, b))

    def explode(self) -> None:
        raise RuntimeError("no fuel")

    @property
    def read_only(self) -> int:
        return 1


class Lonely(Spout):
    def __init__(self, thing: Thing | None = None) -> None:
        self.thing = thing

    def next_tuple(self) -> None:
        pass

    def declare_output_fields(self, declarer) -> None:
        declarer.declare("word")


class Echo(BasicBolt):
    def __init__(self, *things: Any, **named: Any) -> None:
        self.things, self.named = things, named

    def execute(self, tup, collector) -> None:
        pass


class Abstract(Spout):
    pass


class Source:
    def get_topology(self, conf):
        builder = TopologyBuilder()
        builder.set_spout("words", TestWordSpout(), conf.get("my.parallelism", 1))
        return builder.create_topology()

    def otherName(self, conf):
        return self.get_topology(conf)

    def none(self, conf):
        return None

    def two(self, conf, more):
        return None

    def broken(self, conf):
        raise RuntimeError("source is broken")
