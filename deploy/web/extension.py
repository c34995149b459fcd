"""DSkype's part of the web server: what ``dskype ui`` mounts beside Storm's API and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dskype.deploy.web.answers import Answers
from dskype.deploy.web.feeds import Feeds
from dskype.topology.ui.budget import Budget
from dskype.topology.ui.extension import Extension, Page

__all__ = ["make_extension"]

_PAGES = (
    Page("/", "map.html", "Map"),
    Page("/dskype/map.html", "map.html"),
    Page("/dskype/subscribe.html", "map.html"),
    Page("/dskype/subscriptions.html", "subscriptions.html", "Subscriptions"),
    Page("/dskype/load.html", "load.html", "Load"),
)
_FOR_TENANTS = frozenset(
    {*(f"GET {path}" for path in ("topologies", "subscription", "subscriptions", "language", "draft", "search", "results", "messages"))}
    | {"POST subscriptions", "POST subscriptions/remove"}
)
"""Each of these answers keeps to the subscriptions of the tenant. Messages belong to nobody: a tenant that may register subscriptions gets all that it asks for."""


def make_extension(kafka: Any, source: Any, budget: Budget | None = None, *, tenants: bool = False) -> Extension:
    """Return DSkype's pages and answers.

    :param kafka: how to reach the brokers.
    :param source: the topologies; the server's own.
    :param budget: what readers may use; default: the usual limits.
    :param tenants: whether some readers are tenants.
    """
    feeds = Feeds(kafka, source, budget, tenants=tenants)
    answers = Answers(feeds)
    return Extension(
        "dskype",
        Path(__file__).with_name("static"),
        _PAGES,
        readers=answers.readers(),
        reads_topics=frozenset({"subscription", "subscriptions", "partitions", "plan.svg", "draft", "search"}),
        changers=answers.changers(),
        streams=answers.streams(),
        for_tenants=_FOR_TENANTS,
        metrics=(feeds.sent,),
        running=(feeds,),
    )
