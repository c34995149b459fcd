"""The streams of DSkype (Table 1 of the journal paper), with their fields.

========  ==================  ==============================  =====================================================
stream    name here           from -> to                      grouping
========  ==================  ==============================  =====================================================
1         ``messages``        message-spout -> distribution   shuffle
2         ``subscriptions``   subscription-spout -> distr.    fields(subscription): an unregister never overtakes
3         ``matching``        distribution -> subscription    direct: the messages that a task needs
3         ``placements``      distribution -> subscription    direct: subscriptions placed on or removed from a task
          ``shortages``       subscription -> distribution    fields(subscription): reports on placements
          ``plans``           subscription-spout -> distr.    all: another plan of the distributor
          ``switched``        subscription -> distribution    all: no task uses routes of older plans any more
          ``transfers``       subscription -> subscription    direct: boolean subscriptions that move, and costs of cells
          ``balance``         subscription -> distribution    direct: the workload of a task, to the task that balances
          ``interest``        distribution -> distribution    direct: routing terms that begin or end to be needed
          ``registrations``   distribution -> result          fields(subscription): what begins, what ends and where
4         ``window``          distribution -> message         direct: each message lives on one task
5         ``requests``        subscription -> message         all: evaluate these subscriptions at a watermark
5         ``progress``        subscription -> message         all: no request below this watermark will follow
6         ``partials``        message -> aggregation          fields(subscription)
7         ``answers``         aggregation -> subscription     direct, to the task that asked
8         ``results``         subscription -> result          fields(subscription): deltas and matches, as columns
8         ``lists``           subscription -> result          fields(subscription): whole lists and events
========  ==================  ==============================  =====================================================
"""

from __future__ import annotations

from dskype.topology.fields import Fields

__all__ = [
    "ANSWERS",
    "BALANCE",
    "FIELDS",
    "INTEREST",
    "LISTS",
    "MATCHING",
    "MESSAGES",
    "PARTIALS",
    "PLACEMENTS",
    "PLANS",
    "PROGRESS",
    "REGISTRATIONS",
    "REQUESTS",
    "RESULTS",
    "SHORTAGES",
    "SUBSCRIPTIONS",
    "SWITCHED",
    "TRANSFERS",
    "WINDOW",
]

MESSAGES, SUBSCRIPTIONS, MATCHING, PLACEMENTS, WINDOW = "messages", "subscriptions", "matching", "placements", "window"
REQUESTS, PROGRESS, PARTIALS, ANSWERS, RESULTS = "requests", "progress", "partials", "answers", "results"
SHORTAGES, PLANS, SWITCHED, REGISTRATIONS, LISTS = "shortages", "plans", "switched", "registrations", "lists"
INTEREST, TRANSFERS, BALANCE = "interest", "transfers", "balance"

_MESSAGE = ("seq", "position", "id", "lat", "lon", "terms", "weights")

FIELDS = {
    MESSAGES: Fields("seq", "position", "id", "lat", "lon", "text", "arrival_ms"),
    SUBSCRIPTIONS: Fields("subscription", "registration", "record"),
    MATCHING: Fields(*_MESSAGE, "arrival_ms"),
    PLACEMENTS: Fields("subscription", "registration", "placement"),
    WINDOW: Fields(*_MESSAGE),
    REQUESTS: Fields("request", "subscription", "watermark", "count", "alpha", "lat", "lon", "terms", "weights"),
    PROGRESS: Fields("watermark"),
    PARTIALS: Fields("request", "subscription", "task", "count", "seqs", "positions", "scores", "ids"),
    ANSWERS: Fields("request", "subscription", "seqs", "positions", "scores", "ids"),
    SHORTAGES: Fields("subscription", "registration", "epoch", "kind", "theta", "placement"),
    PLANS: Fields("version", "plan"),
    SWITCHED: Fields("version"),
    TRANSFERS: Fields("subscription", "registration", "record"),
    INTEREST: Fields("kind", "record"),
    BALANCE: Fields("kind", "record"),
    REGISTRATIONS: Fields("subscription", "registration", "event", "record"),
    RESULTS: Fields("subscription", "registration", "kind", "watermark", "message", "score", "rank", "meta", "seq", "position"),
    LISTS: Fields("subscription", "kind", "record"),
}
"""Fields by stream.

``id`` is the message's id as JSON text (``17`` or ``"a17"``). ``terms`` and ``weights`` are Arrow lists. ``lat`` and ``lon`` are degrees; in
``messages`` and ``matching`` they are pairs of degrees, float64[n, 2], where some messages of a frame are areas
(:func:`dskype.spouts.areas.areas_to_columns`). ``record`` and ``placement`` are None to unregister. In ``partials`` and ``answers`` a tuple is about one
request, with lists in rank order. ``task`` is the id of the subscription task that asked, and ``count`` how many messages it wants.

With a distributor that replicates, a placement says more (``epoch``, ``tasks``, ``guard``, ``plan``, ...), and ``placements`` carries other
messages, which end a subscription or announce a plan: see :mod:`dskype.bolts.replication.messages`. ``shortages``, ``plans``, ``switched`` and
``registrations`` are unused where the distributor does not replicate, ``interest`` where it keeps no summaries, and ``balance`` where
``dskype.balance`` is off."""
