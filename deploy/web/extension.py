"""DSkype's part of the web server: what ``dskype ui`` mounts beside Storm's API and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dskype.deploy.web.answers import Answers
from dskype.deploy.web.feeds import Feeds
from dskype.topology.ui.extension import Extension, Page

__all__ = ["make_extension"]

_PAGES = (
    Page("/dskype/map.html", "map.html", "Map"),
    Page("/dskype/subscribe.html", "subscribe.html", "Subscribe"),
    Page("/dskype/subscriptions.html", "subscriptions.html", "Subscriptions"),
    Page("/dskype/load.html", "load.html", "Load"),
)


def make_extension(kafka: Any, source: Any) -> Extension:
    """Return DSkype's pages and answers.

    :param kafka: how to reach the brokers.
    :param source: the topologies; the server's own.
    """
    feeds = Feeds(kafka, source)
    answers = Answers(feeds)
    return Extension(
        "dskype",
        Path(__file__).with_name("static"),
        _PAGES,
        readers=answers.readers(),
        changers=answers.changers(),
        streams=answers.streams(),
        running=(feeds,),
    )
