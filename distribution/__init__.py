"""Distributors: which subscription bolts a subscription lives on, and which of them need a message."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dskype.distribution.base import Distributor, Placed, Sample
from dskype.distribution.hashing import HashingDistributor
from dskype.distribution.keyword import KeywordDistributor, PrefixDistributor
from dskype.distribution.location import LocationDistributor
from dskype.distribution.partitioned import Partitioned
from dskype.topology.errors import IllegalArgumentException, explain

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings
    from dskype.spouts.vocabulary import Vocabulary

__all__ = ["DISTRIBUTORS", "Distributor", "HashingDistributor", "KeywordDistributor", "LocationDistributor", "Partitioned", "Placed", "PrefixDistributor",
           "Sample", "check_distributor", "distributor_class", "make_distributor", "start_distributor"]

DISTRIBUTORS: dict[str, type[Distributor]] = {kind.name: kind for kind in (HashingDistributor, LocationDistributor, KeywordDistributor, PrefixDistributor)}
"""Distributors by the name that ``dskype.distributor`` gives."""


def distributor_class(name: str) -> type[Distributor]:
    """Return a distributor's class by its name.

    :raises IllegalArgumentException: the name is not known.
    """
    kind = DISTRIBUTORS.get(name)
    if kind is None:
        near = difflib.get_close_matches(str(name), DISTRIBUTORS, 1)
        raise IllegalArgumentException(explain("The distributor is not known.", given=name, legal=", ".join(sorted(DISTRIBUTORS)),
                                               hint=f"did you mean {near[0]}?" if near else None))
    return kind


def make_distributor(name: str, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> Distributor:
    """Return a distributor by its name.

    :raises IllegalArgumentException: the name is not known, or the options or the plan make no sense.
    """
    return distributor_class(name)(tasks, options, plan)


def check_distributor(settings: Settings) -> None:
    """Refuse settings with which :func:`start_distributor` would fail, without learning anything.

    :raises IllegalArgumentException: the name is not known, or the options are not.
    """
    make_distributor(settings.distributor, 1, settings.distributor_options)


def start_distributor(settings: Settings, tasks: int, vocabulary: Vocabulary, plan: Mapping[str, Any] | None = None) -> Distributor:
    """Return the distributor that a topology's settings ask for; every task that calls this gets the same.

    :param tasks: of the subscription bolt.
    :param vocabulary: by which the options' ``sample`` is read.
    :param plan: the one that is in force since the topology began; None: the options say which, or the distributor does.
    :raises IllegalArgumentException: the name is not known, or the options or the plan make no sense.
    """
    return make_distributor(settings.distributor, tasks, settings.distributor_options, plan)
