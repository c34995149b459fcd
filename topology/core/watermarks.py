"""Which components send watermarks to which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dskype.topology.components import BaseBolt
from dskype.topology.model import StormTopology

__all__ = ["takes_watermarks", "watermark_sources"]


def _reachable(topology: StormTopology, start: str) -> set[str]:
    """Return the components from which ``start`` gets tuples, directly or through others."""
    seen: set[str] = set()
    stack = [start]
    while stack:
        for source in _sources(topology, stack.pop()):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return seen


def _sources(topology: StormTopology, component: str) -> set[str]:
    """Return the direct sources of a component, without those that only send it feedback."""
    spec = topology.components[component]
    feedback = getattr(spec.obj, "feedback_streams", ())
    return {source for source, stream in spec.inputs if source in topology.components and stream not in feedback}


def watermark_sources(topology: StormTopology, component: str) -> list[str]:
    """Return the components whose watermarks make up the watermark of ``component``, sorted.

    These are its direct sources that carry watermarks (spouts with ``emits_watermarks = True``, and bolts downstream of
    one) and do not depend on ``component`` themselves: a watermark that waited for its own feedback would never advance.
    If two components feed each other, the class of the upstream one names the streams that lead back to it in
    ``feedback_streams``; its watermark does not wait for these streams.
    """

    def carries(name: str) -> bool:
        return any(
            getattr(topology.components[c].obj, "emits_watermarks", False)
            for c in {name, *_reachable(topology, name)}
            if topology.components[c].kind == "spout"
        )

    return sorted(s for s in _sources(topology, component) if s != component and component not in _reachable(topology, s) and carries(s))


def takes_watermarks(topology: StormTopology, component: str, conf_of: Callable[[str], Mapping[str, Any]] | None = None) -> bool:
    """Tell whether a component needs watermarks: it overrides ``on_watermark``, or passes them on to a component that does.

    Other components get none, because an empty micro-batch costs as much as a full one. A bolt that needs watermarks only with
    some configurations has a method ``wants_watermarks(conf)``.

    :param conf_of: returns the configuration of a component; None counts every bolt that overrides ``on_watermark``.
    """

    def wants(name: str) -> bool:
        bolt = topology.components[name].obj
        if getattr(type(bolt), "on_watermark", BaseBolt.on_watermark) is BaseBolt.on_watermark:
            return False
        return conf_of is None or not hasattr(bolt, "wants_watermarks") or bolt.wants_watermarks(conf_of(name))

    seen, stack = {component}, [component]
    while stack:
        name = stack.pop()
        if wants(name):
            return True
        for other, spec in topology.components.items():
            if other not in seen and spec.kind == "bolt" and name in watermark_sources(topology, other):
                seen.add(other)
                stack.append(other)
    return False
