"""Which components a component takes watermarks from."""

from __future__ import annotations

from dskype.topology.builder import StormTopology

__all__ = ["watermark_sources"]


def _reachable(topology: StormTopology, start: str) -> set[str]:
    """Return the components that ``start`` gets tuples from, directly or through others."""
    seen: set[str] = set()
    stack = [start]
    while stack:
        for source, _stream in topology.components[stack.pop()].inputs:
            if source in topology.components and source not in seen:
                seen.add(source)
                stack.append(source)
    return seen


def watermark_sources(topology: StormTopology, component: str) -> list[str]:
    """Return the components whose watermarks make up the watermark of ``component``, sorted.

    These are its direct sources that carry watermarks (spouts with ``emits_watermarks = True``, and
    bolts downstream of one) and do not depend on ``component`` themselves: a watermark that waited
    for its own feedback would never advance.
    """

    def carries(name: str) -> bool:
        return any(getattr(topology.components[c].obj, "emits_watermarks", False)
                   for c in {name, *_reachable(topology, name)} if topology.components[c].kind == "spout")

    direct = {source for source, _ in topology.components[component].inputs if source in topology.components}
    return sorted(s for s in direct if s != component and component not in _reachable(topology, s) and carries(s))
