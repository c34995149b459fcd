"""Distributors: which subscription tasks hold a subscription, and which of them need a message."""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dskype.distribution.base import Distributor, HasPartitions, Placed, Sample
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.plugins import Plugins

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings
    from dskype.spouts.vocabulary import Vocabulary

__all__ = [
    "DISTRIBUTORS",
    "Distributor",
    "HasPartitions",
    "Placed",
    "Sample",
    "check_distributor",
    "distributor_class",
    "distributor_files",
    "distributor_of_plan",
    "make_distributor",
    "read_plan",
    "start_distributor",
    "summarizes",
]

DISTRIBUTORS: Plugins[Distributor] = Plugins(
    "dskype.distributor",
    {
        "hashing": "dskype.distribution.methods.hashing:HashingDistributor",
        "location": "dskype.distribution.methods.location:LocationDistributor",
        "keyword": "dskype.distribution.methods.keyword:KeywordDistributor",
        "prefix": "dskype.distribution.methods.keyword:PrefixDistributor",
        "spatial-first": "dskype.distribution.methods.two_level_hybrids:SpatialFirstDistributor",
        "keyword-first": "dskype.distribution.methods.two_level_hybrids:KeywordFirstDistributor",
        "agrid": "dskype.distribution.agrid.distributor:AGridDistributor",
        "hybrid": "dskype.distribution.hybrid.distributor:HybridDistributor",
    },
)
"""Distributors by their names in ``dskype.distributor``."""


def distributor_class(name: str) -> type[Distributor]:
    """Return a distributor's class by its name.

    :raises IllegalArgumentException: the name is not known.
    """
    kind = DISTRIBUTORS.get(name)
    if kind is None:
        near = difflib.get_close_matches(str(name), DISTRIBUTORS, 1)
        raise IllegalArgumentException(
            "The distributor is not known.", given=name, legal=", ".join(sorted(DISTRIBUTORS)), hint=f"did you mean {near[0]}?" if near else None
        )
    return kind


def make_distributor(name: str, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> Distributor:
    """Return a distributor by its name.

    :raises IllegalArgumentException: the name is not known, or the options or the plan are not usable.
    """
    try:
        return distributor_class(name)(tasks, options, plan)
    except OverflowError as error:
        raise IllegalArgumentException(
            "A number of the plan is too large.", given=str(error), legal="loads, cells, words and tasks that a topology can have"
        ) from None


def distributor_of_plan(settings: Settings, tasks: int, plan: Mapping[str, Any]) -> Distributor:
    """Return the distributor that a topology's settings name, with a plan.

    :raises IllegalArgumentException: the options or the plan are not usable.
    """
    return _shared(settings.distributor, tasks, _source(settings)[1], plan)


def summarizes(settings: Settings) -> bool:
    """Tell whether the distributor in a topology's settings routes by interest (:meth:`Distributor.summarizes`)."""
    return distributor_class(settings.distributor).summarizes(settings.distributor_options)


def check_distributor(settings: Settings, *, must_exist: bool = True) -> None:
    """Refuse settings with which :func:`start_distributor` would fail, without learning a plan.

    :param must_exist: False: do not refuse a missing file. The topology reports it at its first start; a resumed topology has its own copies.
    :raises IllegalArgumentException: the name or an option is not known, or a file is missing.
    """
    kind, source, options = distributor_class(settings.distributor), *_source(settings)
    missing = [file for file in distributor_files(settings).values() if not Path(file).is_file()]
    if "plan" in source:
        if must_exist or not missing:
            plan = read_plan(source["plan"])
            kind(plan["tasks"], options, plan)
    elif kind.name in ("spatial-first", "keyword-first"):
        kind((options.get("n1") or 1) * (options.get("n2") or 1), options)
    else:
        kind(1, options)
    if missing and must_exist:
        raise IllegalArgumentException("A file of dskype.distributor.options is missing.", given=missing[0], legal="a file where the topology runs")


def start_distributor(settings: Settings, tasks: int, vocabulary: Vocabulary, plan: Mapping[str, Any] | None = None) -> Distributor:
    """Return the distributor that a topology's settings ask for. Every task that calls this gets the same one.

    Besides the distributor's own, the options may have ``plan``: a file of ``dskype partition learn``, or
    ``sample``: ``{messages: FILE, subscriptions: FILE}``, records as JSON lines from which this function learns a plan.

    :param tasks: number of tasks of the subscription bolt.
    :param vocabulary: gives the term ids of the sample.
    :param plan: the plan in force; None: the plan that the options name, or else the distributor's default.
    :raises IllegalArgumentException: the name is not known, or the options or the plan are not usable.
    """
    source, options = _source(settings)
    if plan is None and "plan" in source:
        plan = read_plan(source["plan"])
    elif plan is None and "sample" in source:
        from dskype.distribution.learning.sampling import read_sample

        sample = read_sample(source["sample"]["messages"], source["sample"]["subscriptions"], vocabulary, settings)
        plan = distributor_class(settings.distributor).learn(tasks, sample, options)
    return _shared(settings.distributor, tasks, options, plan)


def distributor_files(settings: Settings) -> dict[tuple[str, ...], str]:
    """Return the files that :func:`start_distributor` reads, by their place in the options, e.g. ``("sample", "messages")``."""
    source, _ = _source(settings)
    return {("plan",): source["plan"]} if "plan" in source else {("sample", kind): file for kind, file in source.get("sample", {}).items()}


def read_plan(path: str | Path) -> dict[str, Any]:
    """Read a plan from a file.

    :raises IllegalArgumentException: the file is missing or does not hold a plan.
    """
    try:
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as ex:
        raise IllegalArgumentException(
            "The file of a plan cannot be read.", given=str(path), legal="a file of 'dskype partition learn'", hint=str(ex) or type(ex).__name__
        ) from None
    if not isinstance(plan, dict) or type(plan.get("tasks")) is not int or plan["tasks"] < 1 or not isinstance(plan.get("distributor"), str):
        raise IllegalArgumentException("The file does not hold a plan.", given=str(path), legal="a file of 'dskype partition learn'")
    return plan


def _shared(name: str, tasks: int, options: Mapping[str, Any], plan: Mapping[str, Any] | None) -> Distributor:
    """Return the distributor of a plan that another task of this process has already, or make it: nobody changes one."""
    try:
        key = hashlib.blake2b(json.dumps([name, tasks, options, plan]).encode(), digest_size=16).digest()
    except (TypeError, ValueError, RecursionError):  # a plan that is not usable; what is wrong with it is found below
        return make_distributor(name, tasks, options, plan)
    if (found := _IN_USE.get(key)) is None:
        found = _IN_USE[key] = make_distributor(name, tasks, options, copy.deepcopy(plan))  # the caller may change its plan
    return found


def _source(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the source of the plan (``plan``, ``sample`` or nothing), and the distributor's own options."""
    options = dict(settings.distributor_options)
    source = {key: options.pop(key) for key in ("plan", "sample") if options.get(key) is not None and settings.distributor != "hashing"}
    if len(source) == 2:
        raise IllegalArgumentException("dskype.distributor.options must have either a plan or a sample.", given="both")
    if "plan" in source and not isinstance(source["plan"], str):
        raise IllegalArgumentException("The option plan of dskype.distributor.options is not usable.", given=source["plan"], legal="a file's name")
    files = source.get("sample", {"messages": "", "subscriptions": ""})
    if not isinstance(files, Mapping) or set(files) != {"messages", "subscriptions"} or not all(isinstance(f, str) for f in files.values()):
        raise IllegalArgumentException(
            "The option sample of dskype.distributor.options is not usable.", given=files, legal="{messages: FILE, subscriptions: FILE}"
        )
    return source, options


_IN_USE: weakref.WeakValueDictionary[bytes, Distributor] = weakref.WeakValueDictionary()
"""What the tasks of this process distribute by: a digest of plan and options -> the distributor."""
