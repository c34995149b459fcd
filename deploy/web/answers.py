"""The answers below ``/api/dskype/``: results and messages as events, subscriptions, measurements, and the distribution plan."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka.errors import KafkaError
from starlette.requests import Request

from dskype.bolts.results import STORES
from dskype.deploy.client.plans import PlanOvertakenError, send_plan, with_partitions
from dskype.deploy.client.topic_reader import UnreachableError
from dskype.deploy.metrics.flows import flows
from dskype.deploy.metrics.meter import measure
from dskype.deploy.metrics.reader import describe
from dskype.deploy.web.directory import Entry
from dskype.deploy.web.drafts import language_of
from dskype.deploy.web.feeds import Feeds, TopologyFeed
from dskype.deploy.web.findings import id_text
from dskype.deploy.web.message_feed import MessageFollower
from dskype.deploy.web.own_results import OwnResults
from dskype.deploy.web.paced_feed import SUBSCRIPTIONS_MOST, PacedFollower, pace_of_text
from dskype.deploy.web.partitions import partitions_of
from dskype.deploy.web.result_feed import ResultFollower
from dskype.deploy.web.trend import EARLIER, EARLIER_MS, WatchedReports
from dskype.spouts.records import RecordError
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import IllegalArgumentException, NotAliveException, TopologyError
from dskype.topology.ui.events import last_event_id
from dskype.topology.ui.extension import Picture
from dskype.topology.ui.rights import tenant_of
from dskype.topology.ui.view import TopologyView

__all__ = ["Answers"]

_SUBSCRIPTION = tuple(
    "id type text keywords lat lon k min_score alpha distance scale_m where bbox region expression inside initial ttl_s update tenant meta".split()
)
_MESSAGE = ("id", "text", "lat", "lon", "bbox", "region", "attributes", "ts", "object", "deleted")
_SEARCH = ("text", "keywords", "lat", "lon", "k", "alpha", "distance", "scale_m", "where", "bbox", "region", "expression")
"""The fields that a body may have; each is an argument of the client's method, and nothing else from the web may be one."""
_SEARCH_S = 5.0
"""How long a search waits for its answer: it keeps one of few places for answers."""
_SUBSCRIPTIONS = 1000
"""Subscriptions that one client may name."""
_PAGE, _LONGEST_PAGE = 50, 500
"""Subscriptions of one page of the list: by default, and at most."""


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() in ("true", "1")


def _reaching(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Turn errors of Kafka's client into a refusal that says that the brokers are away."""

    def answered(*arguments: Any) -> Any:
        try:
            return answer(*arguments)
        except KafkaError as error:
            raise UnreachableError("The brokers do not answer.", hint=f"{error or type(error).__name__}; try again") from error

    return answered


def _body(request: Request, fields: tuple[str, ...], what: str) -> dict[str, Any]:
    """Return the JSON object of a POST; see :func:`_object`."""
    return _object(request.state.body, "The body", fields, what)


def _object(text: bytes, where: str, fields: tuple[str, ...], what: str) -> dict[str, Any]:
    """Return the JSON object of a request.

    :param where: it is, for example "The body".
    :param fields: those that it may have.
    :param what: it is, for example "a message".
    :raises IllegalArgumentException: it is something else.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IllegalArgumentException(f"{where} must be a JSON object.", given=text[:100].decode(errors="replace"), legal='{"name": value, ...}')
    if unknown := sorted(found.keys() - set(fields)):
        raise IllegalArgumentException(f"This is not {what}: it has a field that is unknown.", given=unknown[0], legal=", ".join(fields))
    return found


def _rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return subscriptions as the answer ``subscriptions`` has them."""
    return [{**e.registered.as_json(), **({} if e.refused is None else {"status": "refused", "error": e.refused})} for e in entries]


class Answers:
    """The answers, by path.

    :param feeds: the topologies.
    """

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds

    def _feed(self, request: Request) -> TopologyFeed:
        return self._feeds.of(request.query_params.get("topology"))

    def readers(self) -> dict[str, Callable[[Request], Any]]:
        """Return path -> what answers a GET."""
        answers = {
            "topologies": self._topologies,
            "subscription": self._subscription,
            "subscriptions": self._subscriptions,
            "language": self._language,
            "draft": self._draft,
            "search": self._search,
            "measures": self._measures,
            "flows": self._flows,
            "trend": lambda request: self._watched(request)[1].trend.columns(),
            "partitions": lambda request: self._feed(request).partitions(),
            "plan.svg": lambda request: Picture(self._feed(request).picture()),
        }
        return {path: _reaching(answer) for path, answer in answers.items()}

    def changers(self) -> dict[str, Callable[[Request], Any]]:
        """Return path -> what answers a POST."""
        answers = {
            "subscriptions": self._register,
            "subscriptions/remove": self._remove,
            "messages": self._publish,
            "partitions/split": self._split,
            "partitions/merge": self._merge,
        }
        return {path: _reaching(answer) for path, answer in answers.items()}

    def streams(self) -> dict[str, Callable[[Request], Any]]:
        """Return path -> what answers a GET with events."""
        return {path: _reaching(answer) for path, answer in {"results": self._results, "messages": self._messages}.items()}

    # -- events ----------------------------------------------------------------------------------------------------------

    def _results(self, request: Request) -> ResultFollower | OwnResults | PacedFollower:
        query = request.query_params
        ids = query.getlist("sub")
        if len(ids) > _SUBSCRIPTIONS:
            raise IllegalArgumentException("Too many subscriptions.", given=len(ids), legal=f"up to {_SUBSCRIPTIONS}, or none for the results of all")
        wanted = frozenset(ids) or None
        pace = pace_of_text(query["pace"], query.get("timezone", "UTC")) if "pace" in query else None
        if pace is not None and not 0 < len(ids) <= SUBSCRIPTIONS_MOST:
            raise IllegalArgumentException("Results at a pace are those of some subscriptions.", given=len(ids), legal=f"sub, 1 to {SUBSCRIPTIONS_MOST} times")
        begin = query.get("start", "now"), last_event_id(request.headers, query)
        follower = self._feed(request).results(wanted, *begin, _flag(request, "messages"), tenant_of(request))
        return follower if pace is None else PacedFollower(follower, pace)

    def _messages(self, request: Request) -> MessageFollower:
        return self._feed(request).messages()

    # -- measurements ------------------------------------------------------------------------------------------------------

    def _watched(self, request: Request) -> tuple[TopologyView, WatchedReports]:
        """Return a running topology and what is measured of it."""
        name = self._feeds.name_of(request.query_params.get("topology"))
        view = next((view for view in self._feeds.source.topologies() if view.name == name), None)
        if view is None or not isinstance(view.reports, WatchedReports):
            raise NotAliveException.for_topology(name)
        return view, view.reports

    def _measures(self, request: Request) -> dict[str, Any] | None:
        """Answer what ``dskype stats -o json`` prints; with ``ago_s`` what it printed next to that long ago, null if nothing is kept that is old enough."""
        view, reports = self._watched(request)
        if "ago_s" in request.query_params:
            return self._earlier(request, reports)
        with self._feeds.source.lock:
            return measure(reports.meter, describe(view.record, view.alive), ends=view.ends)

    def _flows(self, request: Request) -> dict[str, Any]:
        """Answer how many tuples went from which task to which."""
        reports = self._watched(request)[1]
        with self._feeds.source.lock:
            return {"time_ms": (time_ms := now_ms()), "flows": flows(reports.meter, time_ms)}

    def _earlier(self, request: Request, reports: WatchedReports) -> dict[str, Any] | None:
        """Answer what was measured then, with the numbers of the plan that was in force, as far as Kafka still has it."""
        ago_s, most = request.query_params["ago_s"], EARLIER * EARLIER_MS // 1000
        if not (ago_s.isdecimal() and len(ago_s) <= len(str(most)) and 1 <= int(ago_s) <= most):
            raise IllegalArgumentException("So long ago nothing is kept.", given=ago_s, legal=f"ago_s, whole seconds from 1 to {most}")
        found = reports.earlier.at(now_ms() - int(ago_s) * 1000, now_ms() - EARLIER_MS)
        if found is not None and found["plan"] is not None:
            found["plan"] |= self._feed(request).plan_numbers(found["plan"]["version"])
        return found

    # -- the distribution plan -----------------------------------------------------------------------------------------------

    def _split(self, request: Request) -> dict[str, Any]:
        """Give half of a partition to another task; the body has ``partition``, ``task`` and the ``version`` of the plan that they refer to."""
        return self._changed(request, ("partition", "task"), lambda plan, partition, task: plan.split(partition, task))

    def _merge(self, request: Request) -> dict[str, Any]:
        """Give partition ``other`` to the tasks of partition ``one``; the body has the ``version`` of the plan, too."""
        return self._changed(request, ("one", "other"), lambda plan, one, other: plan.merge(one, other))

    def _changed(self, request: Request, names: tuple[str, str], change: Callable[..., Mapping[str, Any]]) -> dict[str, Any]:
        body, feed = _body(request, (*names, "version"), "a change of the plan"), self._feed(request)
        if not all(type(body.get(name)) is int for name in (*names, "version")):
            legal = f"{', '.join(names)} and version, each an integer"
            raise IllegalArgumentException("Expected numbers.", given=body, legal=legal, hint="GET partitions has them")
        version, plan = feed.plan(renewed=True)
        if body["version"] != version:
            raise IllegalArgumentException("The plan is another one by now.", given=body["version"], legal=str(version), hint="look at it again")
        try:
            send_plan(feed.client, version, change(with_partitions(plan), *(body[name] for name in names)))
        except PlanOvertakenError as error:  # since it was read
            raise IllegalArgumentException(str(error)) from None
        return partitions_of(feed.plan(renewed=True))

    # -- subscriptions -----------------------------------------------------------------------------------------------------

    def _topologies(self, request: Request) -> dict[str, Any]:
        return {"topologies": self._feeds.names()}

    def _subscription(self, request: Request) -> dict[str, Any]:
        """Answer what is known of a subscription, and its newest published list."""
        id, feed = request.query_params.get("id"), self._feed(request)
        if id is None:
            raise IllegalArgumentException("Expected the parameter id.", given=None, legal="the id of a subscription")
        in_log, tenant = STORES[feed.client.settings.store].in_log, tenant_of(request)
        entry = next(iter(feed.directory.entries([id], lists=in_log, tenant=tenant)), None)
        if entry is None:
            return {"subscription": id, "registered": None}
        registered, topk = entry.registered, entry.topk
        found = {"subscription": id, "time_ms": now_ms(), "registered": registered.as_json(), "refused": entry.refused, "topk": None, "note": None}
        if registered.type == "topk":
            try:
                state = topk if in_log else feed.client.topk(id)
            except TopologyError as error:
                return {**found, "note": str(error)}
            mine = state is None or tenant is None or feed.directory.owned(tenant, [(id, state.registration or "")]) == [True]
            if state is not None and mine and registered.has_list(state):
                entries = [feed.describe({**entry, "message_id": id_text(entry["message"])}) for entry in state.as_json()["topk"]]
                found["topk"] = {**state.as_json(), "topk": entries}
        return found

    def _subscriptions(self, request: Request) -> dict[str, Any]:
        """Answer a page of the registered subscriptions by id, or those that are named, each as in the answer ``subscription``."""
        query, feed, tenant = request.query_params, self._feed(request), tenant_of(request) or request.query_params.get("tenant")
        if tenant is not None and not feed.directory.tenants:
            hint = "dskype.tenants gives it quotas, dskype ui --tenants gives it a token"
            raise IllegalArgumentException("The topology has no tenants.", given=tenant, legal="no parameter tenant", hint=hint)
        if named := query.getlist("id"):
            if len(named) > _LONGEST_PAGE:
                raise IllegalArgumentException("Too many subscriptions.", given=len(named), legal=f"up to {_LONGEST_PAGE}")
            rows = _rows(feed.directory.entries(list(dict.fromkeys(named)), tenant=tenant))
            return {"time_ms": now_ms(), "subscriptions": rows, "total": len(rows), "after": None}
        limit = query.get("limit", str(_PAGE))
        if not (limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= _LONGEST_PAGE):
            raise IllegalArgumentException("A page cannot have so many subscriptions.", given=limit, legal=f"1..{_LONGEST_PAGE}")
        page = feed.directory.select(query.get("prefix", ""), query.get("after", ""), int(limit), tenant)
        entries = feed.directory.entries(page.ids, tenant=tenant) if page.ids else []
        return {"time_ms": now_ms(), "subscriptions": _rows(entries), "total": page.total, "after": page.ids[-1] if page.more else None}

    def _draft(self, request: Request) -> dict[str, Any]:
        """Answer which of the newest messages a subscription would have matched, or why the topology would refuse it."""
        text = request.query_params.get("fields", "").encode(errors="surrogatepass")
        return self._feed(request).draft(_object(text, "The parameter fields", _SUBSCRIPTION, "a subscription"))

    def _search(self, request: Request) -> dict[str, Any]:
        """Answer what a subscription would have found in the window, exactly, at a watermark."""
        text = request.query_params.get("fields", "").encode(errors="surrogatepass")
        fields, feed = _object(text, "The parameter fields", _SEARCH, "a search"), self._feed(request)
        try:
            found = feed.client.search(**fields, timeout_s=_SEARCH_S).as_json()
        except (RecordError, TypeError) as error:
            raise IllegalArgumentException(str(error)) from None
        matches = [
            feed.describe({**match, "message_id": id_text(match["message"]), **({"rank": rank} if "score" in match else {})})
            for rank, match in enumerate(found["matches"], 1)
        ]
        return {**found, "time_ms": now_ms(), "matches": matches}

    def _language(self, request: Request) -> dict[str, Any]:
        """Return :func:`language_of`, and ``tenants``: those that have quotas, for an operator who may register for any; null: nobody is told apart, or the reader is a tenant."""
        feed = self._feed(request)
        offered = feed.directory.tenants and tenant_of(request) is None
        return {**language_of(feed.client), "tenants": sorted(feed.client.settings.tenants) if offered else None}

    def _register(self, request: Request) -> dict[str, Any]:
        """Register the subscription of the body; its ``id`` is optional."""
        fields = _body(request, _SUBSCRIPTION, "a subscription")
        id = fields.pop("id", None)
        if id is not None and not isinstance(id, str):
            raise IllegalArgumentException("The id of a subscription is a text.", given=id, legal="a text, or no id: then one is made")
        tenant = tenant_of(request)
        if tenant is None:
            return {"subscription": self._sent(request, lambda feed: feed.client.subscribe(id or None, wait=True, **fields))}
        if fields.setdefault("tenant", tenant) != tenant:
            raise IllegalArgumentException("The subscription would belong to somebody else.", given=fields["tenant"], legal=f"{tenant}, or no 'tenant'")
        own = id or uuid.uuid4().hex
        return {"subscription": self._sent(request, lambda feed: feed.changed_by(tenant, own, lambda: feed.client.subscribe(own, wait=True, **fields)))}

    def _remove(self, request: Request) -> dict[str, Any]:
        id = _body(request, ("id",), "the id of a subscription").get("id")
        if not isinstance(id, str):
            raise IllegalArgumentException("Expected the id of a subscription.", given=id, legal='{"id": "..."}')
        tenant = tenant_of(request)
        if tenant is None:
            self._sent(request, lambda feed: feed.client.unsubscribe(id, wait=True))
        else:
            self._sent(request, lambda feed: feed.changed_by(tenant, id, lambda: feed.client.unsubscribe(id, wait=True)))
        return {"subscription": id}

    def _publish(self, request: Request) -> dict[str, Any]:
        """Publish the message of the body, or the end of an object."""
        fields = _body(request, _MESSAGE, "a message")
        if type(deleted := fields.pop("deleted", False)) is not bool:
            raise IllegalArgumentException("Expected 'deleted' as a boolean.", given=deleted, legal="true, and the 'object' that ends, or false")
        if deleted and (fields.get("object") is None or fields.keys() - {"object", "id", "ts"}):
            raise IllegalArgumentException("This is not the end of an object.", given=sorted(fields), legal="deleted and object; id, ts")
        if not deleted and not isinstance(fields.get("text"), (str, dict)):
            raise IllegalArgumentException("This is not a message.", given=sorted(fields), legal="text, and lat and lon, or bbox; id, ts")
        id = self._sent(request, lambda feed: (feed.client.delete_object if deleted else feed.client.publish)(**fields, wait=True))
        return {"message": id, "message_id": id_text(id)}

    def _sent(self, request: Request, send: Callable[[TopologyFeed], Any]) -> Any:
        """Return what ``send`` returns, which waits until Kafka has the record. Requests share a client, so what becomes of others' records must not count."""
        feed = self._feed(request)
        try:
            return send(feed)
        except (RecordError, TypeError) as error:
            raise IllegalArgumentException(str(error)) from None
