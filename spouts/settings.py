"""The configuration of DSkype: keys ``dskype.*`` of a topology's configuration, checked once."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

from dskype.spouts.analyzer_settings import AnalyzerSettings, make_analyzer, read_analyzer, read_fields
from dskype.spouts.attributes import Attributes
from dskype.spouts.expression_parser import Language
from dskype.spouts.input_mapping import INPUT_DEFAULTS, InputMapping
from dskype.spouts.records import Limits
from dskype.spouts.result_fields import MOST_BYTES, ResultFields
from dskype.spouts.space import Space
from dskype.spouts.text import MOST_TERMS, Tokenizer
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["CHANGEABLE_SETTINGS", "DEFAULTS", "BalanceSettings", "Settings", "list_bytes"]

DEFAULTS: dict[str, Any] = {
    "dskype.space": [-180.0, -90.0, 180.0, 90.0],
    "dskype.window.messages": None,
    "dskype.window.span.ms": None,
    "dskype.window.lateness.ms": 0,
    "dskype.window.ahead.ms": 60_000,
    "dskype.window.idle.ms": 500,
    **{f"dskype.input.{name}": value for name, value in INPUT_DEFAULTS.items()},
    "dskype.input.topics": {},
    "dskype.vocabulary": None,
    "dskype.stop.words": [],
    "dskype.text.analyzer": "plain",
    "dskype.text.fields": None,
    "dskype.k.max": 100,
    "dskype.meta.max.bytes": 512,
    "dskype.id.max.bytes": 128,
    "dskype.keywords.max": 64,
    "dskype.text.max.bytes": 262_144,
    "dskype.text.max.words": 16_384,
    "dskype.expression.max.depth": 16,
    "dskype.expression.max.terms": 256,
    "dskype.attributes": {},
    "dskype.boolean.prefixes": False,
    "dskype.boolean.wordless": False,
    "dskype.objects": False,
    "dskype.objects.ttl.ms": None,
    "dskype.objects.max": 1_000_000,
    "dskype.limits.subscriptions": 20_000_000,
    "dskype.limits.subscription.cost": None,
    "dskype.limits.subscription.cost.action": "refuse",
    "dskype.limits.results.per.second": 1000,
    "dskype.distributor": "hashing",
    "dskype.distributor.options": {},
    "dskype.balance": "off",
    "dskype.balance.period.ms": 2000,
    "dskype.balance.rest.periods": 1,
    "dskype.balance.aging": 0.7,
    "dskype.balance.beta": 0.2,
    "dskype.balance.tolerance": 0.1,
    "dskype.balance.operations": 64,
    "dskype.balance.cost.min": 100,
    "dskype.balance.selection": "moves",
    "dskype.balance.sample": 16_384,
    "dskype.balance.repartition.ms": 86_400_000,
    "dskype.balance.repartition.gain": 0.2,
    "dskype.balance.takeover.rest": 0.1,
    "dskype.index": "cones",
    "dskype.index.options": {},
    "dskype.buffer": "kmax",
    "dskype.buffer.options": {},
    "dskype.boolean.index": "lanes",
    "dskype.boolean.index.options": {},
    "dskype.window.index": "chunks",
    "dskype.window.index.options": {},
    "dskype.results": "both",
    "dskype.results.matches": "each",
    "dskype.results.fields": None,
    "dskype.results.fields.max.bytes": 1024,
    "dskype.results.topk.interval.ms": 1000,
    "dskype.results.topk.bytes.per.second": 65_536,
    "dskype.results.topk.total.bytes.per.second": 128 << 20,
    "dskype.results.meta.bytes.per.second": 65_536,
    "dskype.results.meta.total.bytes.per.second": 128 << 20,
    "dskype.results.retention.ms": 7 * 86_400_000,
    "dskype.results.retention.bytes": 32 << 30,
    "dskype.store": "kafka",
    "dskype.store.options": {},
}
"""Every key with its default. ``dskype.window.messages`` (a count window of the last messages) and
``dskype.window.span.ms`` (a time window) exclude each other; without either the window holds 100,000 messages.

``dskype.window.lateness.ms``: how far a message may lie behind the newest one's time (time windows).
``dskype.window.ahead.ms``: how far the time of a message may lie ahead of its arrival. Such a message waits for its time, and makes no
others late. Beyond either limit a message becomes a dead letter.
``dskype.text.analyzer``: what becomes of words, ``plain`` or a map (:mod:`dskype.spouts.analyzer_settings`).
``dskype.attributes``: the attributes of messages, name -> type (:class:`~dskype.spouts.attributes.Attributes`).
``dskype.boolean.prefixes``: whether subscriptions may ask for words that begin in some way (``muse*``); messages then carry a term for each beginning of a word.
``dskype.boolean.wordless``: whether there may be subscriptions that a message without any of their words can satisfy (``NOT rain``, ``price < 5``, a region alone).
Each message then has a term that all messages have, and one for each value of a textual attribute. The topology files of this product set it; the default is
false, because with it messages go to other tasks, and a topology of an earlier version must go on as it was.
``dskype.objects``: whether messages may be states of objects that move (:mod:`dskype.bolts.objects`).
``dskype.objects.ttl.ms``: an object without an update for this long ends (time windows); null: none does.
``dskype.objects.max``: the most objects of one task of the distribution bolt; updates of further ones become dead letters.
``dskype.input.*``: where records of other forms have what a message consists of; see :mod:`dskype.spouts.input_mapping`.
``dskype.input.topics``: topic -> what is different there, with the same keys.
``dskype.text.fields``: the text fields of a message, in order: a list of names, or a map from names to analyzers; without them a text is one string.
``dskype.balance``: ``auto``: the partitions follow the load, with a distributor that can do it (``agrid``, ``hybrid``); ``off``: plans change by hand only. The keys
below it are the fields of :class:`BalanceSettings`.
``dskype.limits.subscriptions``: the most subscriptions of one task, which is a task of the subscription bolt with the distributor hashing, and
of the distribution bolt with the others. Further subscriptions become dead letters.
``dskype.limits.subscription.cost``: how many results one message may be expected to cause for a subscription (:mod:`dskype.spouts.costs`);
null: any number. ``dskype.limits.subscription.cost.action``: ``refuse`` or ``warn``.
``dskype.limits.results.per.second``: a subscription with more results is named in an error report; null: none is.
``dskype.results.matches``: whether each match of a boolean subscription is a record, or the matches of a message are ``grouped`` into few.
``dskype.results.fields``: what of a message its results carry: a list of names, or a map from names to sources (:mod:`dskype.spouts.result_fields`).
``dskype.results.fields.max.bytes``: of a message whose fields are longer as JSON, results say ``"fields_omitted": true``.
``dskype.results.topk.bytes.per.second``: a list of more bytes than that times the interval is written less often; null: as often as others.
``dskype.results.topk.total.bytes.per.second``: how many bytes of lists the topology writes per second, each task an equal share; the others wait; null: any number.
``dskype.results.meta.bytes.per.second`` and ``dskype.results.meta.total.bytes.per.second``: how many bytes of ``meta`` the deltas and matches of a subscription, and
all of the topology, each task an equal share, have in a second; the others have none. null: any number.
``dskype.results.retention.ms`` and ``.bytes`` (of a partition): how much of the deltas and matches Kafka keeps; null: everything. They apply when the topic
is created. Registration events are kept as long, and the last one of each subscription for ever.
``dskype.window.idle.ms``: after this long without messages the newest one's millisecond is over (time windows).
"""

CHANGEABLE_SETTINGS = frozenset({"dskype.results.retention.ms", "dskype.results.retention.bytes", "dskype.limits.results.per.second"})
"""Settings that may change when a topology is resumed. Any other may change what a task does with an inbox that it reads again. Even the interval
of lists does: it decides which records are written and numbered."""

_COUNT_DEFAULT = 100_000
_DEEPEST = 16
"""Most parentheses of an expression that may be open at once. Each becomes two nested lists wherever the expression travels."""
_RESULTS = ("deltas", "topk", "both")
_MATCHES = ("each", "grouped")


def _refuse(key: str, given: Any, legal: str, hint: str | None = None) -> IllegalArgumentException:
    return IllegalArgumentException(explain(f"The configuration key {key} is not usable.", given=given, legal=legal, hint=hint))


def _integer(conf: Mapping[str, Any], key: str, least: int, most: int | None = None) -> int:
    value = conf[key]
    if type(value) is not int or value < least or (most is not None and value > most):
        raise _refuse(key, value, f"an integer, {least} or more" if most is None else f"an integer from {least} to {most}")
    return value


def _bound(conf: Mapping[str, Any], key: str) -> int | None:
    value = conf[key]
    if value is not None and (type(value) is not int or not 1 <= value < 1 << 63):
        raise _refuse(key, value, "an integer, 1 or more, or null for no bound")
    return value


def _text(conf: Mapping[str, Any], key: str) -> str:
    value = conf[key]
    if not isinstance(value, str) or not value:
        raise _refuse(key, value, "a name")
    return value


def _options(conf: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = conf[key]
    if not isinstance(value, Mapping):
        raise _refuse(key, value, "a map of options")
    return dict(value)


def _flag(conf: Mapping[str, Any], key: str) -> bool:
    value = conf[key]
    if type(value) is not bool:
        raise _refuse(key, value, "true or false")
    return value


def _objects(conf: Mapping[str, Any], window_kind: str) -> dict[str, Any]:
    ttl_ms = _bound(conf, "dskype.objects.ttl.ms")
    if ttl_ms is not None and window_kind != "time":
        hint = "set dskype.window.span.ms in place of dskype.window.messages: only a time window says what time it is"
        raise _refuse("dskype.objects.ttl.ms", ttl_ms, "null with a count window", hint)
    if ttl_ms is not None and ttl_ms >= 1 << 53:
        raise _refuse("dskype.objects.ttl.ms", ttl_ms, "an integer from 1 to 9007199254740991, or null")
    return {"objects": _flag(conf, "dskype.objects"), "objects_ttl_ms": ttl_ms, "objects_max": _integer(conf, "dskype.objects.max", 1)}


def _number(conf: Mapping[str, Any], key: str, least: float, most: float) -> float:
    value = conf[key]
    if type(value) not in (int, float) or not least <= value <= most:
        raise _refuse(key, value, f"a number from {least:g} to {most:g}")
    return float(value)


def _inputs(conf: Mapping[str, Any]) -> tuple[InputMapping | None, dict[str, InputMapping]]:
    """Return the mapping of records in general, None if they have DSkype's own form, and those of some topics."""
    options = {name: conf[f"dskype.input.{name}"] for name in INPUT_DEFAULTS}
    topics = conf["dskype.input.topics"]
    if not isinstance(topics, Mapping) or not all(isinstance(topic, str) and isinstance(own, Mapping) for topic, own in topics.items()):
        raise _refuse("dskype.input.topics", topics, "a map of topics to maps with some of " + ", ".join(INPUT_DEFAULTS))
    mapping = InputMapping(options)
    found = {topic: InputMapping({**options, **own}, f"dskype.input.topics: {topic}") for topic, own in topics.items()}
    return (None if options == INPUT_DEFAULTS else mapping), found


class BalanceSettings(NamedTuple):
    """Settings of load balancing, ``dskype.balance.*``; see ``docs/concepts/tornado.md`` for an A-Grid, and ``docs/concepts/ps2stream.md`` for hybrid partitioning.

    :ivar period_ms: how often a subscription task reports its workload; it looks at the clock once a second.
    :ivar rest_periods: how many reports of each task are ignored after a change of the partitions.
    :ivar aging: what a cost counts after one more period, above 0 and up to 1.
    :ivar beta: the cost of sending one subscription, in units of costs: a message or a match costs 1.
    :ivar tolerance: tasks with at most ``1 + tolerance`` times the mean cost give nothing away.
    :ivar operations: the most operations of one decision.
    :ivar cost_min: nothing changes while the mean cost of a task is below this.
    :ivar selection: how the parts of zones that move are chosen, see :data:`dskype.distribution.migration.SELECTIONS`.
    :ivar sample: the most messages, and the most subscriptions, that decisions about parts of zones are made from.
    :ivar repartition_ms: how often a plan from scratch is tried; 0: never.
    :ivar repartition_gain: by which share its greatest load has to be less than that of the present plan.
    :ivar takeover_rest: the share of older subscriptions that moves at the end of its takeover.
    """

    period_ms: int
    rest_periods: int
    aging: float
    beta: float
    tolerance: float
    operations: int
    cost_min: float
    selection: str
    sample: int
    repartition_ms: int
    repartition_gain: float
    takeover_rest: float


def list_bytes(entries: Any, ids_bytes: Any) -> Any:
    """Return about how many bytes the record of a top-k list has; of many lists, given as arrays.

    :param ids_bytes: of all ids of messages in it.
    """
    return 128 + 42 * entries + ids_bytes


_SELECTIONS = ("greedy", "moves", "programme", "random", "size")


def _selection(conf: Mapping[str, Any]) -> str:
    name = conf["dskype.balance.selection"]
    if name not in _SELECTIONS:
        raise _refuse("dskype.balance.selection", name, " | ".join(_SELECTIONS))
    return str(name)


def _balance(conf: Mapping[str, Any]) -> BalanceSettings | None:
    mode = conf["dskype.balance"]
    if mode not in ("auto", "off", False):  # YAML reads a bare off as false
        raise _refuse("dskype.balance", mode, "auto | off")
    found = BalanceSettings(
        _integer(conf, "dskype.balance.period.ms", 1),
        _integer(conf, "dskype.balance.rest.periods", 0),
        _number(conf, "dskype.balance.aging", 0.01, 1),
        _number(conf, "dskype.balance.beta", 0, 1e9),
        _number(conf, "dskype.balance.tolerance", 0, 1e9),
        _integer(conf, "dskype.balance.operations", 1),
        _number(conf, "dskype.balance.cost.min", 0, 1e18),
        _selection(conf),
        _integer(conf, "dskype.balance.sample", 16, 1_000_000),
        _integer(conf, "dskype.balance.repartition.ms", 0),
        _number(conf, "dskype.balance.repartition.gain", 0, 1),
        _number(conf, "dskype.balance.takeover.rest", 0, 1),
    )
    return found if mode == "auto" else None


@dataclass(frozen=True)
class Settings:
    """The settings that all components of a DSkype topology share; see :data:`DEFAULTS` for the keys.

    :ivar space: the data space; messages and subscriptions outside are refused.
    :ivar window_kind: ``count`` or ``time``.
    :ivar extent: ``|W|`` in messages, or the span in ms.
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

    space: Space = Space(-180.0, -90.0, 180.0, 90.0)
    window_kind: str = "count"
    extent: int = _COUNT_DEFAULT
    lateness_ms: int = 0
    ahead_ms: int = 60_000
    idle_ms: int = 500
    input: InputMapping | None = None
    inputs: dict[str, InputMapping] = field(default_factory=dict)
    vocabulary: str | None = None
    stop_words: tuple[str, ...] = ()
    text_analyzer: AnalyzerSettings = AnalyzerSettings()
    field_analyzers: tuple[tuple[str, AnalyzerSettings], ...] = ()
    text_fields: tuple[str, ...] = ()
    limits: Limits = Limits()
    attributes: Attributes = field(default_factory=Attributes)
    prefixes: bool = False
    wordless: bool = False
    objects: bool = False
    objects_ttl_ms: int | None = None
    objects_max: int = 1_000_000
    subscriptions_max: int = 20_000_000
    cost_ceiling: float | None = None
    cost_action: str = "refuse"
    results_per_s: int | None = 1000
    distributor: str = "hashing"
    distributor_options: dict[str, Any] = field(default_factory=dict)
    balance: BalanceSettings | None = None
    index: str = "cones"
    index_options: dict[str, Any] = field(default_factory=dict)
    buffer: str = "kmax"
    buffer_options: dict[str, Any] = field(default_factory=dict)
    boolean_index: str = "lanes"
    boolean_index_options: dict[str, Any] = field(default_factory=dict)
    window_index: str = "chunks"
    window_index_options: dict[str, Any] = field(default_factory=dict)
    results: str = "both"
    matches: str = "each"
    result_fields: ResultFields | None = None
    topk_interval_ms: int = 1000
    topk_bytes_per_s: int | None = 65_536
    topk_total_bytes_per_s: int | None = 128 << 20
    meta_bytes_per_s: int | None = 65_536
    meta_total_bytes_per_s: int | None = 128 << 20
    results_retention_ms: int | None = 7 * 86_400_000
    results_retention_bytes: int | None = 32 << 30
    store: str = "kafka"
    store_options: dict[str, Any] = field(default_factory=dict)

    _PLUGINS: ClassVar[dict[str, str]] = {
        "distributor": "distributor",
        "index": "index",
        "buffer": "buffer",
        "boolean_index": "boolean.index",
        "window_index": "window.index",
        "store": "store",
    }

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> Settings:
        """Read and check the keys ``dskype.*`` of a configuration; other keys are ignored.

        :raises IllegalArgumentException: an unknown key, or a value that makes no sense.
        """
        given = {k: v for k, v in conf.items() if isinstance(k, str) and k.startswith("dskype.")}
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
                    explain(
                        f"The configuration key {key} is not known.", given=key, legal=", ".join(DEFAULTS), hint=f"did you mean {near[0]}?" if near else None
                    )
                )
        conf = {**DEFAULTS, **given}
        kind, extent = cls._window(conf)
        analyzer = read_analyzer("dskype.text.analyzer", conf["dskype.text.analyzer"])
        field_analyzers = read_fields("dskype.text.fields", conf["dskype.text.fields"], analyzer)
        limits = cls._limits(conf, (analyzer, *(one for _, one in field_analyzers)))
        ceiling, action = conf["dskype.limits.subscription.cost"], conf["dskype.limits.subscription.cost.action"]
        if ceiling is not None and (type(ceiling) not in (int, float) or not 0 < ceiling < float("inf")):
            raise _refuse("dskype.limits.subscription.cost", ceiling, "a number above 0, or null for no ceiling")
        if action not in ("refuse", "warn"):
            raise _refuse("dskype.limits.subscription.cost.action", action, "refuse | warn")
        if conf["dskype.results"] not in _RESULTS:
            raise _refuse("dskype.results", conf["dskype.results"], " | ".join(_RESULTS))
        if conf["dskype.results.matches"] not in _MATCHES:
            raise _refuse("dskype.results.matches", conf["dskype.results.matches"], " | ".join(_MATCHES))
        if not (conf["dskype.vocabulary"] is None or isinstance(conf["dskype.vocabulary"], str)):
            raise _refuse("dskype.vocabulary", conf["dskype.vocabulary"], "the path of a file, or null")
        words = conf["dskype.stop.words"]
        if not isinstance(words, (list, tuple)) or not all(isinstance(w, str) for w in words):
            raise _refuse("dskype.stop.words", words, "a list of words")
        attributes = Attributes.from_conf(conf["dskype.attributes"])
        plugins = {name: _text(conf, f"dskype.{key}") for name, key in cls._PLUGINS.items()}
        mapping, mappings = _inputs(conf)
        options = {f"{name}_options": _options(conf, f"dskype.{key}.options") for name, key in cls._PLUGINS.items()}
        return cls(
            space=cls._space(conf["dskype.space"]),
            window_kind=kind,
            extent=extent,
            lateness_ms=_integer(conf, "dskype.window.lateness.ms", 0),
            ahead_ms=_integer(conf, "dskype.window.ahead.ms", 0),
            idle_ms=_integer(conf, "dskype.window.idle.ms", 0),
            input=mapping,
            inputs=mappings,
            text_fields=tuple(name for name, _ in field_analyzers),
            vocabulary=conf["dskype.vocabulary"] or None,
            stop_words=tuple(words),
            text_analyzer=analyzer,
            field_analyzers=field_analyzers,
            limits=limits,
            attributes=attributes,
            prefixes=_flag(conf, "dskype.boolean.prefixes"),
            wordless=_flag(conf, "dskype.boolean.wordless"),
            **_objects(conf, kind),
            subscriptions_max=_integer(conf, "dskype.limits.subscriptions", 1),
            cost_ceiling=ceiling,
            cost_action=action,
            balance=_balance(conf),
            results_per_s=_bound(conf, "dskype.limits.results.per.second"),
            results=conf["dskype.results"],
            matches=conf["dskype.results.matches"],
            result_fields=cls._result_fields(conf, tuple(name for name, _ in field_analyzers), attributes, limits.k_max),
            topk_interval_ms=_integer(conf, "dskype.results.topk.interval.ms", 0),
            topk_bytes_per_s=_bound(conf, "dskype.results.topk.bytes.per.second"),
            topk_total_bytes_per_s=_bound(conf, "dskype.results.topk.total.bytes.per.second"),
            meta_bytes_per_s=_bound(conf, "dskype.results.meta.bytes.per.second"),
            meta_total_bytes_per_s=_bound(conf, "dskype.results.meta.total.bytes.per.second"),
            results_retention_ms=_bound(conf, "dskype.results.retention.ms"),
            results_retention_bytes=_bound(conf, "dskype.results.retention.bytes"),
            **plugins,
            **options,
        )

    @staticmethod
    def _limits(conf: Mapping[str, Any], analyzers: tuple[AnalyzerSettings, ...]) -> Limits:
        return Limits(
            k_max=_integer(conf, "dskype.k.max", 1),
            meta_max_bytes=_integer(conf, "dskype.meta.max.bytes", 2),
            id_max_bytes=_integer(conf, "dskype.id.max.bytes", 1, 4096),
            keywords_max=_integer(conf, "dskype.keywords.max", 1),
            text_max_bytes=_integer(conf, "dskype.text.max.bytes", 1),
            words_max=_integer(conf, "dskype.text.max.words", 1, MOST_TERMS),
            segmented=any(one.segmenter for one in analyzers),
            expression_max_depth=_integer(conf, "dskype.expression.max.depth", 1, _DEEPEST),
            expression_max_terms=_integer(conf, "dskype.expression.max.terms", 1),
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
            return "time", _integer(conf, "dskype.window.span.ms", 1)
        if messages is not None:
            return "count", _integer(conf, "dskype.window.messages", 1)
        return "count", _COUNT_DEFAULT

    @staticmethod
    def _result_fields(conf: Mapping[str, Any], text_fields: tuple[str, ...], attributes: Attributes, k_max: int) -> ResultFields | None:
        max_bytes = _integer(conf, "dskype.results.fields.max.bytes", 2, 65_536)
        found = ResultFields.from_conf(conf["dskype.results.fields"], text_fields, attributes, max_bytes)
        if found is not None and k_max * max_bytes > MOST_BYTES:
            legal = f"at most {MOST_BYTES // k_max}, because a list has up to dskype.k.max = {k_max} messages"
            raise _refuse("dskype.results.fields.max.bytes", max_bytes, legal)
        return found

    @staticmethod
    def _space(value: Any) -> Space:
        if not isinstance(value, (list, tuple)) or len(value) != 4 or not all(type(v) in (int, float) for v in value):
            raise _refuse("dskype.space", value, "[west, south, east, north] in degrees")
        return Space(*map(float, value))

    def __repr__(self) -> str:
        # Options of a store may hold a password.
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "store_options")
        return f"Settings({shown}, store_options={sorted(self.store_options)})"


_CHECKED: dict[str, Settings] = {}
"""Text of the keys of a configuration -> its settings, which nobody changes."""
_MOST_CHECKED = 16
