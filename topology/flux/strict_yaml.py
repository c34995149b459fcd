"""A YAML parser for untrusted files: plain data only, with limits on size, depth and expansion.

Besides invalid YAML, it refuses every tag (``!x``, ``!!python/object/apply``, even ``!!str``), duplicate keys, keys that
are not scalars, several documents, aliases that contain themselves, and documents beyond :class:`Limits`. Dates stay
strings, because a configuration must be representable as JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dskype.topology.flux.errors import FluxException

__all__ = ["Limits", "parse"]


@dataclass(frozen=True)
class Limits:
    """Bounds of one document.

    :param bytes: size of the text, after substitution; default 1 MiB.
    :param depth: nesting of lists and maps; default 50.
    :param nodes: number of scalars, lists and maps, with aliases expanded; default 100,000.
    """

    bytes: int = 1 << 20
    depth: int = 50
    nodes: int = 100_000


_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"
_VALUE = "tag:yaml.org,2002:value"


class _StrictLoader(yaml.SafeLoader):
    limits = Limits()
    source = "text"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def fail(self, words: str, node_or_event: Any, **facts: Any) -> FluxException:
        mark = node_or_event.start_mark
        return FluxException(f"{self.source}, line {mark.line + 1}, column {mark.column + 1}: {words}", **facts)

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise self.fail("YAML tags are not allowed.", event, given=event.tag, hint="write plain values; classes are named by className")
        self._depth += 1
        if self._depth > self.limits.depth:
            raise self.fail("nested too deeply.", event, legal=f"at most {self.limits.depth} levels")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def check_expansion(self, root: Node) -> None:
        """Refuse alias bombs before anything is built, by counting each node wherever an alias repeats it."""
        sizes: dict[int, int] = {}
        open_nodes: set[int] = set()

        def size(node: Node) -> int:
            key = id(node)
            if key in sizes:
                return sizes[key]
            if key in open_nodes:
                raise self.fail("an alias contains itself.", node)
            open_nodes.add(key)
            total = 1
            if isinstance(node, SequenceNode):
                total += sum(map(size, node.value))
            elif isinstance(node, MappingNode):
                total += sum(size(k) + size(v) for k, v in node.value)
            if total > self.limits.nodes:
                raise self.fail("too many values, aliases expanded.", node, legal=f"at most {self.limits.nodes}", hint="anchors that repeat anchors multiply")
            open_nodes.discard(key)
            sizes[key] = total
            return total

        size(root)

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, Any] = {}
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            if not isinstance(key_node, ScalarNode):
                raise self.fail("a key must be a scalar.", key_node)
            key = self.construct_object(key_node)
            if key in seen:
                raise self.fail(f"duplicate key {key!r}.", key_node, hint=f"the first is in line {seen[key]}")
            seen[key] = key_node.start_mark.line + 1
        self.flatten_mapping(node)
        # Merged keys come first, so that the map's own keys win.
        return {self.construct_object(k, deep): self.construct_object(v, deep) for k, v in node.value}

    def construct_yaml_map(self, node: MappingNode) -> Any:
        data: dict[Any, Any] = {}
        yield data
        data.update(self.construct_mapping(node))


_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0b_*[01][01_]*|0_*[0-7][0-7_]*|0|[1-9][0-9_]*(?::[0-5]?[0-9])*|0x_*[0-9a-fA-F][0-9a-fA-F_]*)$", re.ASCII),
    "tag:yaml.org,2002:float": re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+|(?::[0-5]?[0-9])+\.[0-9_]*)|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
        r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN))$",
        re.ASCII,
    ),
}
"""What is a number for SnakeYAML, which reads Storm's files. PyYAML wants a point and a sign in ``1.0e+3``, and takes ``1e3`` and ``-.5`` for texts."""

_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in resolvers if tag not in (_TIMESTAMP, _VALUE)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is not None and tag.rsplit(":", 1)[-1] in ("null", "bool", "int", "float", "str", "seq")
}
_StrictLoader.add_constructor("tag:yaml.org,2002:map", _StrictLoader.construct_yaml_map)


def parse(text: str, source: str = "text", limits: Limits = Limits()) -> Any:
    """Parse one YAML document.

    :param text: the document.
    :param source: the name of its source, which begins every error message.
    :param limits: its limits.
    :returns: dicts, lists and scalars; None for an empty document.
    :raises FluxException: the document is refused; the message has source, line and column.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.bytes:
        raise FluxException(f"{source}: the file is too large.", given=f"{size} bytes", legal=f"at most {limits.bytes} bytes")
    loader = None
    try:
        loader = _StrictLoader(text)
        loader.source, loader.limits = source, limits
        root = loader.get_single_node()
        if root is None:
            return None
        loader.check_expansion(root)
        return loader.construct_document(root)
    except yaml.MarkedYAMLError as ex:
        mark = ex.problem_mark or ex.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        words = ", ".join(part for part in (ex.context, ex.problem) if part)
        raise FluxException(f"{source}{where}: not YAML: {words}") from ex
    except yaml.YAMLError as ex:  # a character that YAML does not allow
        raise FluxException(f"{source}: not YAML: {ex}".splitlines()[0]) from ex
    except (ValueError, OverflowError) as ex:
        if isinstance(ex, FluxException):
            raise
        raise FluxException(f"{source}: a value cannot be read: {ex}") from ex
    finally:
        if loader is not None:
            loader.dispose()
