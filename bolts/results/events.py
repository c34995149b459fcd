"""Names in records of results, registrations of subscriptions, and the records of their events.

Clients use this, so it needs no pyarrow; :mod:`~dskype.bolts.results.formats` describes all records.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring_ascii

from dskype.topology.errors import IllegalArgumentException

__all__ = [
    "ADD",
    "ENTER",
    "EVENTS",
    "INITIAL",
    "INSIDE",
    "LEAVE",
    "LIMITED_KEY",
    "LISTS",
    "MATCH",
    "MATCHES",
    "METAS",
    "OMITTED",
    "OPS",
    "REGISTERED",
    "REMOVE",
    "SCORE",
    "SCORED_MATCH",
    "SUBSCRIPTION",
    "WATERMARK",
    "event_record",
    "limited_record",
    "parse_registration",
]

ADD, REMOVE, MATCH, ENTER, INSIDE, LEAVE, SCORE, SCORED_MATCH, INITIAL = 0, 1, 2, 3, 6, 7, 8, 9, 10
OPS = ("add", "remove", "match", "enter", "", "", "inside", "leave", "score", "match", "match")
"""Names of the op codes. 4 and 5 are changes of one replica's list (:data:`dskype.bolts.protocol.PART`)."""
MATCHES = (MATCH, ENTER, INSIDE, LEAVE, SCORED_MATCH, INITIAL)
"""Op codes of results of boolean and threshold subscriptions; a match of the latter has a score, and ``INITIAL`` is one that was there when the subscription became active."""
EVENTS = ("active", "updated", "removed")
"""Events of which a registration has each once, but only one of ``active`` and ``updated``. A fourth one, ``limited``, may come several times."""
LIMITED_KEY = b"\xff"
"""With what the key of an event ``limited`` begins: no id begins like this, because it is not UTF-8."""
LISTS = ("dskype.results.topk.bytes.per.second", "dskype.results.topk.total.bytes.per.second")
METAS = ("dskype.results.meta.bytes.per.second", "dskype.results.meta.total.bytes.per.second")
"""The settings of which events ``limited`` tell: for a subscription, and for the topology."""
OMITTED = "-"
"""In place of the JSON text of a ``meta`` that is left out."""

SUBSCRIPTION, REGISTERED, WATERMARK = '{"v":1,"subscription":', ',"registration":"', ',"watermark":'
"""The JSON before the parts that several records have."""

_REGISTRATION = re.compile("[0-9]+-[0-9]+").fullmatch


def parse_registration(registration: str) -> tuple[int, int]:
    """Return (partition, offset) of a registration ``"p-o"``.

    :raises IllegalArgumentException: it does not have that form.
    """
    if not isinstance(registration, str) or _REGISTRATION(registration) is None:
        raise IllegalArgumentException(
            "A registration is the place of a record in the topic of subscriptions.", given=registration, legal='"<partition>-<offset>", for example "0-17"'
        )
    partition, _, offset = registration.partition("-")
    return int(partition), int(offset)


def event_record(subscription: str, registration: str, event: str, watermark: int) -> tuple[bytes, bytes, bytes]:
    """Return the record of a registration event: (key, value, result id).

    :param event: ``active`` (results cover messages after the watermark), ``updated`` (they do, and those up to it were covered by the registration before) or
        ``removed`` (results cover messages up to it).
    :raises IllegalArgumentException: an unknown event, or a malformed registration.
    """
    parse_registration(registration)
    if event not in EVENTS:
        raise IllegalArgumentException("A registration event is not known.", given=event, legal=" | ".join(EVENTS))
    name = encode_basestring_ascii(subscription)
    value = f'{SUBSCRIPTION}{name}{REGISTERED}{registration}","event":"{event}"{WATERMARK}{watermark}}}'
    return subscription.encode(), value.encode(), f"{registration}/{name}/{watermark}/{event}".encode()


def limited_record(subscription: str, registration: str, watermark: int, setting: str) -> tuple[bytes, bytes, bytes]:
    """Return the record of the event ``limited``: (key, value, result id).

    :param watermark: of the task when it happened.
    :param setting: the key of the setting whose limit has cut in.
    """
    name = encode_basestring_ascii(subscription)
    value = f'{SUBSCRIPTION}{name}{REGISTERED}{registration}","event":"limited"{WATERMARK}{watermark},"limit":"{setting}"}}'
    return LIMITED_KEY + subscription.encode(), value.encode(), f"{registration}/{name}/{watermark}/limited/{setting}".encode()
