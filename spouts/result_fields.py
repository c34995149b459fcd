"""The fields of a message that its results carry (``dskype.results.fields``).

They travel as part of the message's *label*, the text that stands for it wherever the topology speaks of a message: its id as JSON and, only where results carry
fields, ``,"fields":{...}`` behind it. Records are joined from texts, and ``{"message":`` with a label behind it is what a consumer reads. So no stream, window, list or
snapshot has a column for fields, and without them nothing is different. No id contains :data:`BEHIND_ID`: inside a JSON text a quotation mark has a backslash before it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dskype.spouts.record_paths import LEGAL_PATH, RecordPath
from dskype.spouts.record_values import encode_json, plain_value
from dskype.topology.errors import IllegalArgumentException

if TYPE_CHECKING:
    from dskype.spouts.records import Message

__all__ = ["AT_ONCE_BYTES", "BEHIND_ID", "FIELDS_OMITTED", "MOST_BYTES", "ResultFields"]

BEHIND_ID = ',"fields'
"""Where the id ends in a label with fields."""
FIELDS_OMITTED = ',"fields_omitted":true'
"""What a label has behind the id if the fields are too long."""
MOST_BYTES = 1 << 20
"""``dskype.k.max`` times ``dskype.results.fields.max.bytes`` is not above this, so that lists and answers fit into records."""
AT_ONCE_BYTES = 64 << 20
"""About how many bytes of fields are put into records at once."""
_KEY = "dskype.results.fields"
_OWN = ("text", "place", "time")
_PLACE = ("lat", "lon", "bbox", "region")

_Find = Callable[["Message", dict[str, Any], dict[str, Any], int], Any]


@dataclass(frozen=True)
class ResultFields:
    """Which fields results carry, and where a message has them.

    :ivar sources: pairs (name in results, source), in order. A source is ``text``, ``place``, ``time``, the name of a text field or of an attribute, or a path into the
        record as it came, which begins with ``$``.
    :ivar text_fields: the names of the text fields of a message.
    :ivar max_bytes: the most bytes of the JSON of a message's fields.
    """

    sources: tuple[tuple[str, str], ...]
    text_fields: tuple[str, ...] = ()
    max_bytes: int = 1024

    @classmethod
    def from_conf(cls, given: Any, text_fields: tuple[str, ...], attributes: Mapping[str, Any], max_bytes: int) -> ResultFields | None:
        """Read ``dskype.results.fields``: a list of sources that are names, or a map name -> source; None if it is null or empty.

        :param attributes: those that are declared.
        :raises IllegalArgumentException: a source is not known.
        """
        listed = isinstance(given, (list, tuple))
        named = {source: source for source in given if isinstance(source, str)} if listed else given
        if given is None or given == {} or given == []:
            return None
        known = (*_OWN, *text_fields, *attributes)
        legal = f"a list of some of {', '.join(known)}, or a map from names to these or to paths such as $.user.name"
        if not isinstance(named, Mapping) or len(named) < len(given) or not all(isinstance(name, str) and name for name in named):
            raise IllegalArgumentException(f"The configuration key {_KEY} is not usable.", given=given, legal=legal)
        for source in named.values():
            if isinstance(source, str) and source.startswith("$") and not listed:
                try:
                    RecordPath(source)
                except IllegalArgumentException:
                    raise IllegalArgumentException(f"The configuration key {_KEY} is not usable.", given=source, legal=LEGAL_PATH) from None
            elif source not in known:
                near = difflib.get_close_matches(str(source), known, 1)
                hint = 'a path needs a name: {author: "$.user.name"}' if str(source).startswith("$") else f"did you mean {near[0]}?" if near else None
                raise IllegalArgumentException(f"The configuration key {_KEY} is not usable.", given=source, legal=legal, hint=hint)
        return cls(tuple(named.items()), text_fields, max_bytes)

    def reader(self) -> Callable[[Message, dict[str, Any], dict[str, Any], int], str]:
        """Return the function that makes what a label has behind the id: (message, its record in DSkype's own form, its record as it came, arrival in ms) -> text."""
        finders = [(name, self._finder(source)) for name, source in self.sources]
        most = self.max_bytes

        def read(message: Message, own: dict[str, Any], original: dict[str, Any], arrival_ms: int) -> str:
            found = {name: value for name, find in finders if (value := find(message, own, original, arrival_ms)) is not None}
            try:
                text = _json(found)
                size = len(text) if text.isascii() else len(text.encode())
            except RecursionError:
                return FIELDS_OMITTED
            return FIELDS_OMITTED if size > most else f'{BEHIND_ID}":{text}'

        return read

    def _finder(self, source: str) -> _Find:
        if source.startswith("$"):
            path = RecordPath(source)
            return lambda message, own, original, arrival_ms: path(original)
        if source == "text":
            return self._text
        if source == "place":
            return lambda message, own, original, arrival_ms: {name: own[name] for name in _PLACE if name in own}
        if source == "time":
            return lambda message, own, original, arrival_ms: arrival_ms if message.ts is None else message.ts
        if source in self.text_fields:
            return lambda message, own, original, arrival_ms: self._texts(own).get(source)
        return lambda message, own, original, arrival_ms: (message.attributes or {}).get(source)

    def _text(self, message: Message, own: dict[str, Any], original: dict[str, Any], arrival_ms: int) -> Any:
        return self._texts(own) if self.text_fields else own["text"]

    def _texts(self, own: dict[str, Any]) -> dict[str, str]:
        """Return the texts of the fields that a message has."""
        text = own["text"]
        return {self.text_fields[0]: text} if isinstance(text, str) else {name: text[name] for name in self.text_fields if name in text}


def _json(value: Any) -> str:
    """Return compact JSON that can be written in UTF-8: halves of surrogate pairs as escapes, infinities as null."""
    try:
        text: str = encode_json(value)
    except ValueError:  # 1e999 is read as infinity
        value = plain_value(value)
        text = encode_json(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return json.dumps(value, separators=(",", ":"))
    return text
