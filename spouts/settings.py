"""The configuration of DSkype: keys ``dskype.*`` of a topology's configuration, checked once."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dskype.spouts.analyzer_settings import AnalyzerSettings, make_analyzer, read_analyzer, read_fields
from dskype.spouts.attributes import Attributes
from dskype.spouts.expression_parser import Language
from dskype.spouts.input_mapping import INPUT_DEFAULTS, InputMapping
from dskype.spouts.records import Limits
from dskype.spouts.result_fields import MOST_BYTES, ResultFields
from dskype.spouts.space import Space
from dskype.spouts.tenants import Quota, read_tenants
from dskype.spouts.text import MOST_TERMS, Tokenizer
from dskype.topology.errors import IllegalArgumentException

__all__ = ["CHANGEABLE_SETTINGS", "DEFAULTS", "SETTINGS_FROM_START", "BalanceSettings", "Settings", "list_bytes"]

CHANGEABLE_SETTINGS = frozenset(
    {"dskype.results.retention.ms", "dskype.results.retention.bytes", "dskype.limits.results.per.second", "dskype.search.per.second", "dskype.tenants"}
)
"""Settings that may change when a topology is resumed. Any other may change what a task does with an inbox that it reads again. Even the interval
of lists does: it decides which records are written and numbered."""

SETTINGS_FROM_START = frozenset({"dskype.tenants"})
"""Those of them that a topology must have been started with: where subscriptions have not been counted so far, they cannot be counted from now on."""

_COUNT_DEFAULT = 100_000
_DEEPEST = 16
"""Most parentheses of an expression that may be open at once. Each becomes two nested lists wherever the expression travels."""


def _refuse(key: str, given: Any, legal: str, hint: str | None = None) -> IllegalArgumentException:
    return IllegalArgumentException(f"The configuration key {key} is not usable.", given=given, legal=legal, hint=hint)


_Check = Callable[[str, Any], Any]
"""Gets a key and its value; returns the value as it is used, or refuses it."""


def _integer(least: int, most: int | None = None) -> _Check:
    def check(key: str, value: Any) -> int:
        if type(value) is not int or value < least or (most is not None and value > most):
            raise _refuse(key, value, f"an integer, {least} or more" if most is None else f"an integer from {least} to {most}")
        return value

    return check


def _number(least: float, most: float) -> _Check:
    def check(key: str, value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most:
            raise _refuse(key, value, f"a number from {least:g} to {most:g}")
        return float(value)

    return check


def _one_of(*words: str) -> _Check:
    def check(key: str, value: Any) -> str:
        if value not in words:
            raise _refuse(key, value, " | ".join(words))
        return str(value)

    return check


def _bound(key: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value < 1 << 63):
        raise _refuse(key, value, "an integer, 1 or more, or null for no bound")
    return value


def _name(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _refuse(key, value, "a name")
    return value


def _options(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _refuse(key, value, "a map of options")
    return dict(value)


def _flag(key: str, value: Any) -> bool:
    if type(value) is not bool:
        raise _refuse(key, value, "true or false")
    return value


def _cost(key: str, value: Any) -> float | None:
    if value is not None and (type(value) not in (int, float) or not 0 < value < float("inf")):
        raise _refuse(key, value, "a number above 0, or null for no ceiling")
    return value


def _path(key: str, value: Any) -> str | None:
    if not (value is None or isinstance(value, str)):
        raise _refuse(key, value, "the path of a file, or null")
    return value or None


def _words(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
        raise _refuse(key, value, "a list of words")
    return tuple(value)


def _space(key: str, value: Any) -> Space:
    if not isinstance(value, (list, tuple)) or len(value) != 4 or not all(type(v) in (int, float) for v in value):
        raise _refuse(key, value, "[west, south, east, north] in degrees")
    return Space(*map(float, value))


def _setting(key: str, default: Any, check: _Check) -> Any:
    """Return a field that has the value of one key.

    :param default: as a configuration has it.
    """
    return field(default_factory=lambda: check(f"dskype.{key}", default), metadata={"key": f"dskype.{key}", "default": default, "check": check})


def _keys_of(kind: type) -> dict[str, Any]:
    """Return the keys that fields of a dataclass have the values of, each with its default."""
    return {one.metadata["key"]: one.metadata["default"] for one in fields(kind) if one.metadata}


def _values_of(kind: type, conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass that have the values of keys, checked."""
    return {one.name: one.metadata["check"](one.metadata["key"], conf[one.metadata["key"]]) for one in fields(kind) if one.metadata}


def _read(conf: Mapping[str, Any], key: str, check: _Check) -> Any:
    return check(key, conf[key])


def _objects_ttl_ms(value: Any, window_kind: str) -> int | None:
    key = "dskype.objects.ttl.ms"
    ttl_ms = _bound(key, value)
    if ttl_ms is not None and window_kind != "time":
        hint = "set dskype.window.span.ms in place of dskype.window.messages: only a time window says what time it is"
        raise _refuse(key, ttl_ms, "null with a count window", hint)
    if ttl_ms is not None and ttl_ms >= 1 << 53:
        raise _refuse(key, ttl_ms, "an integer from 1 to 9007199254740991, or null")
    return ttl_ms


def _half_life_ms(value: Any, window_kind: str, objects: bool) -> float | None:
    key = "dskype.half.life.s"
    if value is None:
        return None
    if type(value) not in (int, float) or not 0.1 <= value <= 1e10:
        raise _refuse(key, value, "seconds from 0.1 to 1e10, or null: age does not count")
    if window_kind != "time":
        raise _refuse(
            key, value, "null with a count window", "set dskype.window.span.ms in place of dskype.window.messages: only a time window says how old a message is"
        )
    if objects:
        raise _refuse(
            key,
            value,
            "null with dskype.objects",
            "a state of an object counts until the next one, however old it is; dskype.objects.ttl.ms ends those that are too old",
        )
    return float(value) * 1000.0


def _inputs(conf: Mapping[str, Any]) -> tuple[InputMapping | None, dict[str, InputMapping]]:
    """Return the mapping of records in general, None if they have DSkype's own form, and those of some topics."""
    options = {name: conf[f"dskype.input.{name}"] for name in INPUT_DEFAULTS}
    topics = conf["dskype.input.topics"]
    if not isinstance(topics, Mapping) or not all(isinstance(topic, str) and isinstance(own, Mapping) for topic, own in topics.items()):
        raise _refuse("dskype.input.topics", topics, "a map of topics to maps with some of " + ", ".join(INPUT_DEFAULTS))
    mapping = InputMapping(options)
    found = {topic: InputMapping({**options, **own}, f"dskype.input.topics: {topic}") for topic, own in topics.items()}
    return (None if options == INPUT_DEFAULTS else mapping), found


def _is_misspelt(key: str) -> bool:
    """Tell whether a key would be one of ours if its prefix were written right, such as ``dksype.objects``. Other keys belong to somebody else."""
    prefix, _, name = key.partition(".")
    return f"dskype.{name}" in DEFAULTS and bool(difflib.get_close_matches(prefix, ["dskype"], 1, 0.8))


@dataclass(frozen=True)
class BalanceSettings:
    """Settings of load balancing, ``dskype.balance.*``; see ``docs/concepts/tornado.md`` for an A-Grid, and ``docs/concepts/ps2stream.md`` for hybrid partitioning.

    :ivar period_ms: how often a subscription task reports its workload; it looks at the clock once a second.
    :ivar rest_periods: how many reports of each task are ignored after a change of the partitions.
    :ivar aging: what a cost counts after one more period, above 0 and up to 1.
    :ivar beta: the cost of sending one subscription, in units of costs: a message or a match costs 1.
    :ivar tolerance: tasks with at most ``1 + tolerance`` times the mean cost give nothing away.
    :ivar operations: the most operations of one decision.
    :ivar cost_min: nothing changes while the mean cost of a task is below this.
    :ivar selection: how the parts of zones that move are chosen, see :data:`dskype.distribution.hybrid.migration.SELECTIONS`.
    :ivar sample: the most messages, and the most subscriptions, that decisions about parts of zones are made from.
    :ivar repartition_ms: how often a plan from scratch is tried; 0: never.
    :ivar repartition_gain: by which share its greatest load has to be less than that of the present plan.
    :ivar takeover_rest: the share of older subscriptions that moves at the end of its takeover.
    """

    period_ms: int = _setting("balance.period.ms", 2000, _integer(1))
    rest_periods: int = _setting("balance.rest.periods", 1, _integer(0))
    aging: float = _setting("balance.aging", 0.7, _number(0.01, 1))
    beta: float = _setting("balance.beta", 0.2, _number(0, 1e9))
    tolerance: float = _setting("balance.tolerance", 0.1, _number(0, 1e9))
    operations: int = _setting("balance.operations", 64, _integer(1))
    cost_min: float = _setting("balance.cost.min", 100, _number(0, 1e18))
    selection: str = _setting("balance.selection", "moves", _one_of("greedy", "moves", "programme", "random", "size"))
    sample: int = _setting("balance.sample", 16_384, _integer(16, 1_000_000))
    repartition_ms: int = _setting("balance.repartition.ms", 86_400_000, _integer(0))
    repartition_gain: float = _setting("balance.repartition.gain", 0.2, _number(0, 1))
    takeover_rest: float = _setting("balance.takeover.rest", 0.1, _number(0, 1))


def list_bytes(entries: Any, ids_bytes: Any) -> Any:
    """Return about how many bytes the record of a top-k list has; of many lists, given as arrays.

    :param ids_bytes: of all ids of messages in it.
    """
    return 128 + 42 * entries + ids_bytes


def _balance(conf: Mapping[str, Any]) -> BalanceSettings | None:
    mode = conf["dskype.balance"]
    if mode not in ("auto", "off", False):  # YAML reads a bare off as false
        raise _refuse("dskype.balance", mode, "auto | off")
    found = BalanceSettings(**_values_of(BalanceSettings, conf))
    return found if mode == "auto" else None


@dataclass(frozen=True)
class Settings:
    """The settings that all components of a DSkype topology share; see :data:`DEFAULTS` for the keys.

    :ivar space: the data space; messages and subscriptions outside are refused.
    :ivar window_kind: ``count`` or ``time``.
    :ivar extent: ``|W|`` in messages, or the span in ms.
    :ivar half_life_ms: after how long a message counts half as much in top-k lists; None: its age does not count.
    :ivar lateness_ms: time windows: how late a message may be.
    :ivar ahead_ms: time windows: how far in the future a message may be.
    :ivar idle_ms: time windows: after how long without messages the newest one's millisecond is over, and a partition without messages is asked for.
    :ivar input: how records of other forms become messages; None: they have DSkype's own form. It is that of files, and of topics that are not in ``inputs``.
    :ivar inputs: the same of some topics.
    :ivar vocabulary: path of the vocabulary file, readable where the bolts run; None: every word weighs the same.
    :ivar stop_words: words that every analyzer leaves out.
    :ivar text_analyzer: what becomes of words, see :meth:`analyzer`.
    :ivar text_fields: the names of the text fields of a message, in order; none: a text is one string.
    :ivar field_analyzers: the names of the text fields, and what becomes of the words of each.
    :ivar attributes: those that messages may have, by name.
    :ivar prefixes: whether expressions may have prefixes.
    :ivar wordless: whether a message may satisfy an expression by something that is no word.
    :ivar objects: whether messages may be states of objects.
    :ivar objects_ttl_ms: how long an object lasts without an update; None: until it is deleted.
    :ivar objects_max: the most objects of one task of the distribution bolt.
    :ivar subscriptions_max: the most subscriptions of one task; see :data:`DEFAULTS`.
    :ivar cost_ceiling: the most results that one message may be expected to cause for a subscription; None: any number.
    :ivar cost_action: what happens to a subscription above the ceiling: ``refuse`` | ``warn``.
    :ivar balance: settings of load balancing; None: it is off.
    :ivar results_per_s: a subscription with more results per second is named in an error report; None: none is.
    :ivar tenants: the quotas of tenants by name; empty: there are no tenants.
    :ivar searches_per_s: how many searches are taken in a second; None: any number.
    :ivar results: ``deltas`` | ``topk`` | ``both``: what is published.
    :ivar matches: ``each`` | ``grouped``: how matches of boolean subscriptions are published.
    :ivar result_fields: which fields of a message its results carry; None: none.
    :ivar results_retention_ms, results_retention_bytes: how much of the deltas is kept; None: everything.
    :ivar topk_interval_ms: a changed top-k list is written at most this often; 0: whenever a watermark has passed.
    :ivar topk_bytes_per_s: how many bytes of one top-k list are written per second; None: any number.
    :ivar topk_total_bytes_per_s: how many bytes of all top-k lists the topology writes per second; None: any number.
    :ivar meta_bytes_per_s: how many bytes of ``meta`` the deltas and matches of a subscription have in a second; None: any number.
    :ivar meta_total_bytes_per_s: how many bytes of ``meta`` all that the topology writes have in a second; None: any number.
    """

    space: Space = _setting("space", [-180.0, -90.0, 180.0, 90.0], _space)
    window_kind: str = "count"
    extent: int = _COUNT_DEFAULT
    half_life_ms: float | None = None
    lateness_ms: int = _setting("window.lateness.ms", 0, _integer(0))
    ahead_ms: int = _setting("window.ahead.ms", 60_000, _integer(0))
    idle_ms: int = _setting("window.idle.ms", 500, _integer(0))
    input: InputMapping | None = None
    inputs: dict[str, InputMapping] = field(default_factory=dict)
    vocabulary: str | None = _setting("vocabulary", None, _path)
    stop_words: tuple[str, ...] = _setting("stop.words", [], _words)
    text_analyzer: AnalyzerSettings = AnalyzerSettings()
    field_analyzers: tuple[tuple[str, AnalyzerSettings], ...] = ()
    text_fields: tuple[str, ...] = ()
    limits: Limits = Limits()
    attributes: Attributes = field(default_factory=Attributes)
    prefixes: bool = _setting("boolean.prefixes", False, _flag)
    wordless: bool = _setting("boolean.wordless", False, _flag)
    objects: bool = _setting("objects", False, _flag)
    objects_ttl_ms: int | None = None
    objects_max: int = _setting("objects.max", 1_000_000, _integer(1))
    subscriptions_max: int = _setting("limits.subscriptions", 20_000_000, _integer(1))
    cost_ceiling: float | None = _setting("limits.subscription.cost", None, _cost)
    cost_action: str = _setting("limits.subscription.cost.action", "refuse", _one_of("refuse", "warn"))
    results_per_s: int | None = _setting("limits.results.per.second", 1000, _bound)
    tenants: dict[str, Quota] = _setting("tenants", None, read_tenants)
    searches_per_s: int | None = _setting("search.per.second", 100, _bound)
    distributor: str = _setting("distributor", "hashing", _name)
    distributor_options: dict[str, Any] = _setting("distributor.options", {}, _options)
    balance: BalanceSettings | None = None
    index: str = _setting("index", "cones", _name)
    index_options: dict[str, Any] = _setting("index.options", {}, _options)
    buffer: str = _setting("buffer", "kmax", _name)
    buffer_options: dict[str, Any] = _setting("buffer.options", {}, _options)
    boolean_index: str = _setting("boolean.index", "lanes", _name)
    boolean_index_options: dict[str, Any] = _setting("boolean.index.options", {}, _options)
    window_index: str = _setting("window.index", "chunks", _name)
    window_index_options: dict[str, Any] = _setting("window.index.options", {}, _options)
    results: str = _setting("results", "both", _one_of("deltas", "topk", "both"))
    matches: str = _setting("results.matches", "each", _one_of("each", "grouped"))
    result_fields: ResultFields | None = None
    topk_interval_ms: int = _setting("results.topk.interval.ms", 1000, _integer(0))
    topk_bytes_per_s: int | None = _setting("results.topk.bytes.per.second", 65_536, _bound)
    topk_total_bytes_per_s: int | None = _setting("results.topk.total.bytes.per.second", 128 << 20, _bound)
    meta_bytes_per_s: int | None = _setting("results.meta.bytes.per.second", 65_536, _bound)
    meta_total_bytes_per_s: int | None = _setting("results.meta.total.bytes.per.second", 128 << 20, _bound)
    results_retention_ms: int | None = _setting("results.retention.ms", 7 * 86_400_000, _bound)
    results_retention_bytes: int | None = _setting("results.retention.bytes", 32 << 30, _bound)
    store: str = _setting("store", "kafka", _name)
    store_options: dict[str, Any] = _setting("store.options", {}, _options)

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> Settings:
        """Read and check the keys ``dskype.*`` of a configuration; other keys are ignored.

        :raises IllegalArgumentException: an unknown key, or a value that makes no sense.
        """
        given = {k: v for k, v in conf.items() if isinstance(k, str) and (k.startswith("dskype.") or _is_misspelt(k))}
        if (found := _CHECKED.get(key := repr(given))) is None:  # every task reads them each time it starts
            if len(_CHECKED) == _MOST_CHECKED:
                _CHECKED.clear()
            found = _CHECKED[key] = cls._checked(copy.deepcopy(given))  # the caller may change what is in it
        return found

    @classmethod
    def _checked(cls, given: Mapping[str, Any]) -> Settings:
        """Check the keys ``dskype.*`` of a configuration."""
        for key in given:
            if key not in DEFAULTS:
                near = difflib.get_close_matches(key, DEFAULTS, 1)
                raise IllegalArgumentException(
                    f"The configuration key {key} is not known.", given=key, legal=", ".join(DEFAULTS), hint=f"did you mean {near[0]}?" if near else None
                )
        conf = {**DEFAULTS, **given}
        kind, extent = cls._window(conf)
        analyzer = read_analyzer("dskype.text.analyzer", conf["dskype.text.analyzer"])
        field_analyzers = read_fields("dskype.text.fields", conf["dskype.text.fields"], analyzer)
        limits = cls._limits(conf, (analyzer, *(one for _, one in field_analyzers)))
        text_fields = tuple(name for name, _ in field_analyzers)
        attributes = Attributes.from_conf(conf["dskype.attributes"])
        mapping, mappings = _inputs(conf)
        return cls(
            window_kind=kind,
            extent=extent,
            half_life_ms=_half_life_ms(conf["dskype.half.life.s"], kind, conf["dskype.objects"] is True),
            input=mapping,
            inputs=mappings,
            text_fields=text_fields,
            text_analyzer=analyzer,
            field_analyzers=field_analyzers,
            limits=limits,
            attributes=attributes,
            objects_ttl_ms=_objects_ttl_ms(conf["dskype.objects.ttl.ms"], kind),
            balance=_balance(conf),
            result_fields=cls._result_fields(conf, text_fields, attributes, limits.k_max),
            **_values_of(cls, conf),
        )

    @staticmethod
    def _limits(conf: Mapping[str, Any], analyzers: tuple[AnalyzerSettings, ...]) -> Limits:
        return Limits(
            k_max=_read(conf, "dskype.k.max", _integer(1)),
            meta_max_bytes=_read(conf, "dskype.meta.max.bytes", _integer(2)),
            id_max_bytes=_read(conf, "dskype.id.max.bytes", _integer(1, 4096)),
            keywords_max=_read(conf, "dskype.keywords.max", _integer(1)),
            text_max_bytes=_read(conf, "dskype.text.max.bytes", _integer(1)),
            words_max=_read(conf, "dskype.text.max.words", _integer(1, MOST_TERMS)),
            segmented=any(one.segmenter for one in analyzers),
            expression_max_depth=_read(conf, "dskype.expression.max.depth", _integer(1, _DEEPEST)),
            expression_max_terms=_read(conf, "dskype.expression.max.terms", _integer(1)),
        )

    def analyzer(self) -> Tokenizer:
        """Return a new analyzer for the texts of messages and the words of subscriptions; files of synonyms are read.

        :raises IllegalArgumentException: a file of synonyms cannot be used.
        :raises TopologyError: a package of the extra ``languages`` is needed and not installed.
        """
        return make_analyzer(self.text_analyzer, self.field_analyzers, self.stop_words)

    def mapping_of(self, topic: str, own: str) -> InputMapping | None:
        """Return how the records of a topic become messages; None: they have DSkype's own form, as in the topology's ``own`` topic of messages."""
        return None if topic == own else self.inputs.get(topic, self.input)

    @property
    def reading(self) -> dict[str, Any]:
        """How subscriptions are read: arguments of :func:`dskype.spouts.records.parse_subscription`, all but the tokenizer."""
        return {"space": self.space, "limits": self.limits, "language": self.language, "objects": self.objects}

    @property
    def language(self) -> Language:
        """What expressions may speak of."""
        return Language(self.attributes, self.text_fields, self.prefixes, self.wordless, self.limits.expression_max_depth, self.limits.expression_max_terms)

    @property
    def topk_pause_max_ms(self) -> int:
        """The longest pause between two writes of a changed top-k list, of ids whose escapes at most double them."""
        fields_bytes = 0 if self.result_fields is None else self.result_fields.max_bytes
        longest = list_bytes(self.limits.k_max, self.limits.k_max * (2 * self.limits.id_max_bytes + fields_bytes))
        return max(self.topk_interval_ms, 0 if self.topk_bytes_per_s is None else longest * 1000 // self.topk_bytes_per_s)

    @staticmethod
    def _window(conf: Mapping[str, Any]) -> tuple[str, int]:
        messages, span = conf["dskype.window.messages"], conf["dskype.window.span.ms"]
        if messages is not None and span is not None:
            raise _refuse(
                "dskype.window.messages", messages, "either dskype.window.messages or dskype.window.span.ms", "a window is counted or timed, not both"
            )
        if span is not None:
            return "time", _read(conf, "dskype.window.span.ms", _integer(1))
        if messages is not None:
            return "count", _read(conf, "dskype.window.messages", _integer(1))
        return "count", _COUNT_DEFAULT

    @staticmethod
    def _result_fields(conf: Mapping[str, Any], text_fields: tuple[str, ...], attributes: Attributes, k_max: int) -> ResultFields | None:
        max_bytes = _read(conf, "dskype.results.fields.max.bytes", _integer(2, 65_536))
        found = ResultFields.from_conf(conf["dskype.results.fields"], text_fields, attributes, max_bytes)
        if found is not None and k_max * max_bytes > MOST_BYTES:
            legal = f"at most {MOST_BYTES // k_max}, because a list has up to dskype.k.max = {k_max} messages"
            raise _refuse("dskype.results.fields.max.bytes", max_bytes, legal)
        return found

    def __repr__(self) -> str:
        # Options of a store may hold a password.
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "store_options")
        return f"Settings({shown}, store_options={sorted(self.store_options)})"


DEFAULTS: dict[str, Any] = {
    "dskype.window.messages": None,
    "dskype.window.span.ms": None,
    "dskype.half.life.s": None,
    **{f"dskype.input.{name}": value for name, value in INPUT_DEFAULTS.items()},
    "dskype.input.topics": {},
    "dskype.text.analyzer": "plain",
    "dskype.text.fields": None,
    "dskype.text.max.bytes": 262_144,
    "dskype.text.max.words": 16_384,
    "dskype.k.max": 100,
    "dskype.meta.max.bytes": 512,
    "dskype.id.max.bytes": 128,
    "dskype.keywords.max": 64,
    "dskype.expression.max.depth": 16,
    "dskype.expression.max.terms": 256,
    "dskype.attributes": {},
    "dskype.objects.ttl.ms": None,
    "dskype.results.fields": None,
    "dskype.results.fields.max.bytes": 1024,
    "dskype.balance": "off",
    **_keys_of(BalanceSettings),
    **_keys_of(Settings),
}
"""Every key with its default; ``deploy/topologies/dskype.yaml`` says what each means, and the reference of settings is made from it. The keys of fields of
:class:`Settings` and :class:`BalanceSettings` are with the fields; the others have something to do with each other, or become objects.

``dskype.window.messages`` (a count window of the last messages) and ``dskype.window.span.ms`` (a time window) exclude each other; without either the window holds
100,000 messages. The topology files of this product set ``dskype.boolean.wordless``; the default is false, because with it messages go to other tasks, and a
topology of an earlier version must go on as it was.
"""

_CHECKED: dict[str, Settings] = {}
"""Text of the keys of a configuration -> its settings, which nobody changes."""
_MOST_CHECKED = 16
