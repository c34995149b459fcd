"""Creates objects from Flux definitions: resolves references, converts arguments, and calls constructors and methods.

Java chooses among overloads by the types of the parameters. Python has one signature; its type hints, if there are any,
determine how a value from YAML is converted:

=====================  ==========================================================================================
hint                   accepts from YAML
=====================  ==========================================================================================
none, ``Any``          anything
``int``                integers, and floats without a fraction
``float``              integers and floats
``bool``, ``str``      the same type only
an ``Enum``            the exact name of a member
``list``, ``Sequence``, a list, each item by the item's hint
``tuple``, ``set`` ...
``dict``, ``Mapping``  a map
``Fields``             a list of strings
``Literal``            one of its values
``A | B``              what A accepts, else what B accepts
any other class        its instances (references)
``*args``              one list for all of them, like a Java array
=====================  ==========================================================================================

Methods and properties are found by their names as written, or in snake_case (``withFoo`` -> ``with_foo``).
"""

from __future__ import annotations

import collections.abc
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

from dskype.topology.fields import Fields
from dskype.topology.flux.errors import FluxException
from dskype.topology.flux.model import ListRef, ObjectDef, PropertyDef, Ref
from dskype.topology.flux.permissions import refuse_command
from dskype.topology.flux.registry import Registry
from dskype.topology.model import Component

__all__ = ["ObjectBuilder", "find_member"]

_LIFECYCLE = {
    *("open", "next_tuple", "emit_records", "ack", "fail", "activate", "deactivate", "close"),
    *("prepare", "execute", "execute_batch", "execute_tick", "on_watermark", "restore", "cleanup"),
}
"""Methods of a component that do work. A file that is only loaded must not start any."""


def _id(definition: ObjectDef) -> str:
    return getattr(definition, "id", None) or definition.where


class _NoMatch(Exception):
    """A value does not fit a hint, or the arguments do not fit a signature."""


class ObjectBuilder:
    """Creates the objects of one file, and keeps those created so far.

    :param registry: the classes that the file may name.
    :param allow_modules: modules whose classes it may name as well.
    :param allow_commands: whether its objects may start programs.
    """

    def __init__(self, registry: Registry, allow_modules: tuple[str, ...] = (), allow_commands: bool = False) -> None:
        self._registry = registry
        self._allow_modules = allow_modules
        self._allow_commands = allow_commands
        self.components: dict[str, Any] = {}
        self.modules: set[str] = set()

    def resolve(self, name: str, where: str) -> type:
        """Return a class that the file names; see :meth:`~dskype.topology.flux.registry.Registry.resolve`."""
        cls = self._registry.resolve(name, where, self._allow_modules)
        if any(cls.__module__ == m or cls.__module__.startswith(m + ".") for m in self._allow_modules):
            self.modules.add(cls.__module__)
        return cls

    def build(self, definition: ObjectDef) -> Any:
        """Create an object by its constructor or factory, then set its properties, then call its configuration methods.

        :raises FluxException: the class, an argument, a property or a method does not fit.
        """
        cls = self.resolve(definition.class_name, definition.where)
        obj = self._create(cls, definition)
        if not self._allow_commands:  # before a method of the object is called
            refuse_command(_id(definition), obj, self._allow_modules)
        for prop in definition.properties:
            self._set_property(obj, prop, definition)
        for method in definition.config_methods:
            args = self._resolve(method.args, definition)
            words = f"Unable to find configuration method '{method.name}' in class '{definition.class_name}' with arguments {_show(args)}."
            bound = find_member(obj, method.name)
            if bound is None or not callable(bound):
                raise FluxException(words, component=_id(definition), hint=_members(obj, callable))
            if isinstance(obj, Component) and bound.__name__ in _LIFECYCLE:
                raise FluxException(words, component=_id(definition), hint="the topology calls this method, when its component runs")
            self._call(bound, args, words, definition)
        return obj

    def _create(self, cls: type, definition: ObjectDef) -> Any:
        if definition.constructor_args or definition.factory is None:
            args = self._resolve(definition.constructor_args, definition)
            words = f"Couldn't find a suitable constructor for class '{definition.class_name}' with arguments '{_show(args)}'."
            if cls is Fields and definition.class_name.startswith("org.") and not (len(args) == 1 and isinstance(args, list) and isinstance(args[0], list)):
                # Java's parameter is an array, for which Flux wants a list.
                raise FluxException(words, component=_id(definition), hint="write the names as one list: constructorArgs: [[a, b]]")
            if inspect.isabstract(cls):
                missing = ", ".join(sorted(cast("Any", cls).__abstractmethods__))
                raise FluxException(words, component=_id(definition), hint=f"the class does not define {missing}")
            return self._call(cls, args, words, definition)
        args = self._resolve(definition.factory_args, definition)
        words = f"Couldn't find a suitable static method '{definition.factory}' for class '{definition.class_name}' with arguments '{_show(args)}'."
        for name in _spellings(definition.factory):
            if isinstance(inspect.getattr_static(cls, name, None), (staticmethod, classmethod)):
                return self._call(getattr(cls, name), args, words, definition)
        raise FluxException(words, component=_id(definition), hint="a factory is a @staticmethod or a @classmethod")

    def _resolve(self, args: list[Any] | dict[str, Any], definition: ObjectDef) -> list[Any] | dict[str, Any]:
        if isinstance(args, Mapping):
            return {name: self._value(arg, name, definition) for name, arg in args.items()}
        return [self._value(arg, i, definition) for i, arg in enumerate(args)]

    def _value(self, arg: Any, index: int | str, definition: ObjectDef) -> Any:
        if isinstance(arg, ListRef):
            return [self.components.get(id) for id in arg.ids]  # an unknown id is a null element, as in Storm
        if not isinstance(arg, Ref):
            return arg
        value = self.components.get(arg.id)
        if value is None:
            raise FluxException(
                f"argument shouldn't be null - index: {index}",
                given={"ref": arg.id},
                component=_id(definition),
                legal=", ".join(self.components) or "no component is defined before this one",
                hint="a component must be defined before it is referred to",
            )
        return value

    def _set_property(self, obj: Any, prop: PropertyDef, definition: ObjectDef) -> None:
        value = self._value(prop.value, 0, definition)
        setter = None if prop.name.startswith("_") else find_member(obj, f"set{prop.name[:1].upper()}{prop.name[1:]}")
        words = f"No such field: {prop.name} in class '{definition.class_name}'."
        try:
            if callable(setter):
                bound = _bind(setter, [value])
                self._run(lambda: setter(*bound.args, **bound.kwargs), definition)
                return
            attribute = _attribute(obj, prop.name)
            if attribute is None:
                raise FluxException(
                    words,
                    component=_id(definition),
                    legal=_members(obj, lambda m: not callable(m)) or None,
                    hint=f"the class needs a method set_{_snake(prop.name)} or an attribute {_snake(prop.name)}",
                )
            hint = _hints(type(obj)).get(attribute, Any)
            self._run(lambda: setattr(obj, attribute, _coerce(value, hint)), definition)
        except _NoMatch as ex:
            raise FluxException(
                f"Property '{prop.name}' of class '{definition.class_name}' does not take this value: {ex}", given=value, component=_id(definition)
            ) from ex

    def _call(self, function: Callable[..., Any], args: list[Any] | dict[str, Any], words: str, definition: ObjectDef) -> Any:
        try:
            bound = _bind(function, args)
        except _NoMatch as ex:
            raise FluxException(words, component=_id(definition), hint=str(ex)) from ex
        return self._run(lambda: function(*bound.args, **bound.kwargs), definition)

    def _run(self, call: Callable[[], Any], definition: ObjectDef) -> Any:
        try:
            return call()
        except (FluxException, _NoMatch):
            raise
        except Exception as ex:  # the component's own code
            raise FluxException(f"{definition.where} ({definition.class_name}) raised {type(ex).__name__}: {ex}") from ex


# --- names ------------------------------------------------------------------------------------------------------------


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _spellings(name: str) -> list[str]:
    if name.startswith("_") or not name.isidentifier():
        return []
    return list(dict.fromkeys((name, _snake(name))))


def find_member(obj: Any, name: str) -> Any:
    """Return a public member by its name as written, or in snake_case; None if there is none."""
    for spelling in _spellings(name):
        found = getattr(obj, spelling, None)
        if found is not None:
            return found
    return None


def _attribute(obj: Any, name: str) -> str | None:
    """Return the name of an attribute that may be set: one that the object has or its class declares, but no method."""
    declared = _hints(type(obj))
    for spelling in _spellings(name):
        static = inspect.getattr_static(obj, spelling, None)
        if isinstance(static, property) and static.fset is None:
            continue
        if spelling in declared or (static is not None and not callable(static)) or spelling in getattr(obj, "__dict__", ()):
            return spelling
    return None


def _members(obj: Any, wanted: Callable[[Any], bool]) -> str:
    names = [n for n in dir(obj) if not n.startswith("_") and wanted(inspect.getattr_static(obj, n, None))]
    return "there are " + ", ".join(names[:12]) if names and wanted is callable else ", ".join(names[:12])


def _show(args: list[Any] | dict[str, Any]) -> str:
    text = str(args) if isinstance(args, Mapping) else "[" + ", ".join(map(str, args)) + "]"
    return text if len(text) <= 200 else text[:197] + "..."


# --- types ------------------------------------------------------------------------------------------------------------


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # hints may use names that exist for type checkers only
        return {}


def _bind(function: Callable[..., Any], args: list[Any] | dict[str, Any]) -> inspect.BoundArguments:
    """Bind arguments to a signature, and convert them by its hints."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as ex:
        raise _NoMatch(f"its signature is not known: {ex}") from ex
    positional = [] if isinstance(args, Mapping) else list(args)
    parameters = list(signature.parameters.values())
    starred = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), None)
    if starred is not None and len(positional) == starred + 1 and isinstance(positional[starred], list):
        positional[starred:] = positional[starred]
    try:
        bound = signature.bind(*positional, **(args if isinstance(args, Mapping) else {}))
    except TypeError as ex:
        raise _NoMatch(f"{ex}; the signature is {signature}") from ex
    source: Any = cast("Any", function).__init__ if isinstance(function, type) else function
    hints = _hints(source)
    for name, value in bound.arguments.items():
        kind, hint = signature.parameters[name].kind, hints.get(name, Any)
        try:
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_coerce(v, hint) for v in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {k: _coerce(v, hint) for k, v in value.items()}
            else:
                bound.arguments[name] = _coerce(value, hint)
        except _NoMatch as ex:
            raise _NoMatch(f"parameter {name!r}: {ex}") from ex
    return bound


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _coerce(value: Any, hint: Any) -> Any:
    """Convert a value from YAML to the type of a hint.

    :raises _NoMatch: the value does not fit.
    """
    if hint is Any or isinstance(hint, (typing.TypeVar, str)) or hint is inspect.Parameter.empty:
        return value
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _coerce(value, typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return _coerce_union(value, typing.get_args(hint))
    if origin is typing.Literal:
        if value in typing.get_args(hint):
            return value
        raise _NoMatch(f"expected one of {', '.join(map(repr, typing.get_args(hint)))}; given: {value!r}")
    if hint is None or hint is type(None):
        if value is None:
            return None
        raise _NoMatch(f"expected null; given: {value!r}")
    base = origin or hint
    if value is None or not isinstance(base, type):
        return value  # None fits every class, like Java's null; other kinds of hints cannot be checked
    return _coerce_class(value, hint, base)


def _coerce_class(value: Any, hint: Any, base: type) -> Any:
    if base is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if base is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if base in (int, float) and isinstance(value, bool):
        raise _NoMatch(f"expected {base.__name__}; given: {value!r}")
    if issubclass(base, enum.Enum) and isinstance(value, str):
        if value in base.__members__:
            return base[value]
        raise _NoMatch(f"No enum constant {base.__qualname__}.{value}; legal: {', '.join(base.__members__)}")
    if base is Fields and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return Fields(value)
    args = typing.get_args(hint)
    if isinstance(value, list):
        converted = _coerce_list(value, base, args)
        if converted is not None:
            return converted
    if isinstance(value, dict) and issubclass(dict, base) and len(args) == 2:
        return {_coerce(k, args[0]): _coerce(v, args[1]) for k, v in value.items()}
    if base is collections.abc.Callable:
        if callable(value):
            return value
    else:
        try:
            if isinstance(value, base):
                return value
        except TypeError:  # a protocol may not be checkable at run time
            return value
    raise _NoMatch(f"expected {_name(hint)}; given: {value!r}")


def _coerce_list(value: list[Any], base: type, args: tuple[Any, ...]) -> Any:
    for made in (list, tuple, set, frozenset):
        if base is made or (made is list and base is not object and issubclass(list, base)):
            if made is tuple and args and args[-1] is not ...:
                if len(args) != len(value):
                    raise _NoMatch(f"expected {len(args)} items; given: {value!r}")
                return tuple(_coerce(v, a) for v, a in zip(value, args, strict=True))
            item = args[0] if args else Any
            return made(_coerce(v, item) for v in value)
    return None


def _coerce_union(value: Any, members: tuple[Any, ...]) -> Any:
    for member in members:  # an exact fit first: 1 stays an integer for ``float | int``
        base = typing.get_origin(member) or member
        if isinstance(base, type) and type(value) is base and not typing.get_args(member):
            return value
    problems = []
    for member in members:
        if value is None and member is not type(None):
            continue
        try:
            return _coerce(value, member)
        except _NoMatch as ex:
            problems.append(str(ex))
    raise _NoMatch("; or ".join(dict.fromkeys(problems)) or "expected a value; given: None")
