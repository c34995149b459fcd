"""Avro and Protobuf in the wire format of schema registries: a zero byte, the id of the schema in 4 bytes, the record.

The registry is asked through the client of confluent-kafka (extra ``schemas``), once for each schema and process. A schema of an id never changes, so a
record that is read again is the same.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from dskype.spouts.record_values import RecordError, plain_value, refusal
from dskype.topology.errors import IllegalArgumentException, TopologyError, explain

__all__ = ["FORMATS", "SchemaDecoder", "UnreachableRegistryError"]

FORMATS = ("avro", "protobuf")

_HEAD_BYTES = 5
_NOT_FOUND = 404


class UnreachableRegistryError(TopologyError):
    """The schema registry does not answer, or refuses to."""

    retriable = True


class SchemaDecoder:
    """Turns values of Kafka records into records.

    :param format: ``avro`` or ``protobuf``.
    :param config: of ``confluent_kafka.schema_registry.SchemaRegistryClient``: ``url`` and what else it takes.
    :raises IllegalArgumentException: the packages of the extra ``schemas`` are not installed, or the client refuses the configuration.
    """

    def __init__(self, format: str, config: Mapping[str, Any]) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            self._load = {"avro": self._avro, "protobuf": self._protobuf}[format]()
        except ImportError as ex:
            raise IllegalArgumentException(
                f"The format {format} needs packages that are not installed.", given=str(ex), hint="pip install '/path/to/dskype[schemas]'"
            ) from None
        try:
            self._client = SchemaRegistryClient(dict(config))
        except ValueError as ex:
            raise IllegalArgumentException("The client of the schema registry refuses dskype.input.registry.", given=str(ex)) from None
        self._format = format
        self._readers: dict[int, Callable[[bytes], Any]] = {}
        """Id of a schema -> what reads its records."""

    def decode(self, value: bytes | None) -> dict[str, Any]:
        """Return the record in a value.

        :raises RecordError: there is none, or the registry does not know its schema.
        :raises UnreachableRegistryError: the registry did not say.
        """
        if value is None or len(value) < _HEAD_BYTES or value[0] != 0:
            words = "Expected a message in the wire format of schema registries: a zero byte, the id of the schema in 4 bytes, the record"
            raise refusal(f"invalid-{self._format}", words, "nothing" if value is None else repr(value[:20]))
        id = int.from_bytes(value[1:_HEAD_BYTES], "big")
        read = self._readers.get(id) or self._reader(id)
        try:
            record = plain_value(read(value[_HEAD_BYTES:]))
        except Exception as ex:  # whatever a decoder raises for bytes that are none of its schema
            words = f"Expected a record of schema {id} in {self._format} ({type(ex).__name__}: {ex})"
            raise refusal(f"invalid-{self._format}", words[:200], repr(value[_HEAD_BYTES : _HEAD_BYTES + 20])) from None
        if type(record) is not dict:
            raise refusal(f"invalid-{self._format}", f"Expected a record of schema {id}", repr(record)[:80], "a schema whose values have fields")
        return record

    def _reader(self, id: int) -> Callable[[bytes], Any]:
        try:
            read = self._readers[id] = self._load(id)
        except (RecordError, UnreachableRegistryError):
            raise
        except Exception as ex:  # whatever a library raises for what is no schema
            raise refusal("unknown-schema", f"Expected schema {id} to be one of {self._format}", f"{type(ex).__name__}: {ex}"[:200]) from None
        return read

    def _ask(self, ask: Callable[..., Any], *question: Any, **options: Any) -> Any:
        """Ask the registry for a schema."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return ask(*question, **options)
        except SchemaRegistryError as ex:
            if ex.http_status_code == _NOT_FOUND:
                raise RecordError(explain("Expected a schema that the registry knows", given=question[0]), "unknown-schema") from None
            raise UnreachableRegistryError("The schema registry refuses to answer.", given=str(ex)) from None
        except Exception as ex:  # whatever the client's library for HTTP raises
            raise UnreachableRegistryError("The schema registry does not answer.", given=f"{type(ex).__name__}: {ex}") from None

    def _avro(self) -> Callable[[int], Callable[[bytes], Any]]:
        import fastavro

        def parse(schema: Any, named: dict[str, Any]) -> Any:
            for reference in schema.references or ():
                parse(self._ask(self._client.get_version, reference.subject, reference.version).schema, named)
            return fastavro.parse_schema(json.loads(schema.schema_str), named_schemas=named)

        def load(id: int) -> Callable[[bytes], Any]:
            schema = parse(self._ask(self._client.get_schema, id), {})
            return lambda content: fastavro.schemaless_reader(io.BytesIO(content), schema, None)

        return load

    def _protobuf(self) -> Callable[[int], Callable[[bytes], Any]]:
        from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, json_format, message_factory, struct_pb2, wrappers_pb2
        from google.protobuf import timestamp_pb2 as _  # which puts it into the default pool, as the next ones do

        del _, any_pb2, duration_pb2, struct_pb2, wrappers_pb2
        known = descriptor_pool.Default()

        def add(pool: Any, name: str, schema: Any) -> Any:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.schema_str))
            file.name = name
            for reference in schema.references or ():
                add(pool, reference.name, self._ask(self._client.get_version, reference.subject, reference.version, True, "serialized").schema)
            for needed in file.dependency:
                if needed.startswith("google/"):
                    pool.AddSerializedFile(known.FindFileByName(needed).serialized_pb)
            pool.Add(file)
            return file

        def load(id: int) -> Callable[[bytes], Any]:
            pool = descriptor_pool.DescriptorPool()
            file = add(pool, f"schema-{id}.proto", self._ask(self._client.get_schema, id, fmt="serialized"))
            kinds: dict[tuple[int, ...], Any] = {}

            def read(content: bytes) -> Any:
                indexes, begin = _message_indexes(content)
                if indexes not in kinds:
                    kinds[indexes] = message_factory.GetMessageClass(pool.FindMessageTypeByName(_message_name(file, indexes)))
                return json_format.MessageToDict(
                    kinds[indexes].FromString(content[begin:]), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
                )

            return read

        return load


def _message_indexes(content: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message of a file a record is, as indexes from the outermost one, and where it begins."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (value >> 1) ^ -(value & 1)  # zigzag

    count = number()
    if not 0 <= count <= len(content):
        raise ValueError(f"{count} message indexes")
    return tuple(number() for _ in range(count)) or (0,), at


def _message_name(file: Any, indexes: tuple[int, ...]) -> str:
    names, kinds = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if index < 0:
            raise ValueError(f"message index {index}")
        names.append(kinds[index].name)
        kinds = kinds[index].nested_type
    return ".".join(names)
