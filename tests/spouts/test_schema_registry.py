"""Avro and Protobuf with the schemas of a registry: what producers of the well-known client write becomes messages."""

import base64
import io
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from dskype.spouts.input_mapping import InputMapping, MessageReader
from dskype.spouts.record_values import RecordError
from dskype.spouts.schema_registry import SchemaDecoder, UnreachableRegistryError
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException
from tests.spouts.test_records import CODES

PLACE = {"type": "record", "name": "Place", "namespace": "geo", "fields": [{"name": "lat", "type": "double"}, {"name": "lon", "type": "double"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "key", "type": "long"},
        {"name": "item", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "where", "type": PLACE},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    ],
}
AVRO = {"id": "$.key", "text": "$.item", "place": {"lat": "$.where.lat", "lon": "$.where.lon"}, "time": {"iso8601": "$.at"}, "attributes": {"price": "$.price"}}
NOON = 1364817600000


class Registry(ThreadingHTTPServer):
    """Answers as a schema registry does to readers.

    :ivar schemas: id -> what it has; :ivar versions: (subject, version) -> the same.
    :ivar asked: how often it was asked.
    :ivar status: an error that it answers with.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.schemas, self.versions, self.asked, self.status = {}, {}, 0, None
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, id, schema, kind, **more):
        """Register a schema: a dict of Avro, or a file of Protobuf."""
        text = json.dumps(schema) if kind == "AVRO" else base64.b64encode(schema.SerializeToString()).decode()
        self.schemas[id] = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind}), **more}


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked += 1
        url = urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        found = self.server.schemas.get(int(parts[2])) if parts[:2] == ["schemas", "ids"] else self.server.versions.get((parts[1], int(parts[3])))
        if found is not None and found.get("schemaType") == "PROTOBUF":
            assert parse_qs(url.query)["format"] == ["serialized"], "others get the text of the .proto file"
        status = self.server.status or (200 if found else 404)
        body = json.dumps(found if status == 200 else {"error_code": status * 100 + 3, "message": "Schema not found"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def registry():
    with Registry() as server:
        yield server
        server.shutdown()


def framed(id, content):
    return b"\0" + struct.pack(">I", id) + content


def avro(schema, record, id=7, named=None):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas=named or {}), record)
    return framed(id, out.getvalue())


def order(**fields):
    return {"key": 5, "item": "Late coffee", "at": NOON, "where": {"lat": 47.3, "lon": 8.5}, "price": "12.50", **fields}


def reader(registry, format, options, **config):
    return MessageReader(Settings(), InputMapping({"format": format, "registry": {"url": registry.url, **config}, **options}))


def written(**fields):
    from decimal import Decimal

    record = order(**fields)
    return avro(ORDER, {**record, "price": Decimal(record["price"])})


def test_a_record_of_avro_becomes_a_message(registry):
    registry.add(7, ORDER, "AVRO")
    read = reader(registry, "avro", AVRO).read
    for _ in range(3):
        assert read(written())[:7] == ("5", "Late coffee", 47.3, 8.5, NOON, None, {"price": 12.5})
    assert registry.asked == 1
    with pytest.raises(RecordError, match=r"at \$.item; given: nothing"):
        read(written(item=None))


def test_schemas_that_refer_to_others_are_found(registry):
    registry.versions["places", 2] = {"subject": "places", "version": 2, "id": 3, "schema": json.dumps(PLACE)}
    outer = {**ORDER, "fields": [{**field, "type": "geo.Place"} if field["name"] == "where" else field for field in ORDER["fields"][:4]]}
    registry.add(7, outer, "AVRO", references=[{"name": "geo.Place", "subject": "places", "version": 2}])
    named = {}
    fastavro.parse_schema(PLACE, named_schemas=named)
    value = avro(outer, {"key": 5, "item": "tea", "at": NOON, "where": {"lat": 47.3, "lon": 8.5}}, named=named)
    assert reader(registry, "avro", AVRO).read(value).lat == 47.3


@pytest.fixture
def shapes():
    """Two files of Protobuf; the first one needs the second one and a well-known one. Return them with the class of messages."""
    field = descriptor_pb2.FieldDescriptorProto
    place = descriptor_pb2.FileDescriptorProto(name="geo/place.proto", package="geo", syntax="proto3")
    kind = place.message_type.add(name="Place")
    for number, name in enumerate(("lat", "lon"), 1):
        kind.field.add(name=name, number=number, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    main = descriptor_pb2.FileDescriptorProto(
        name="main.proto", package="shop", syntax="proto3", dependency=["geo/place.proto", "google/protobuf/timestamp.proto"]
    )
    main.message_type.add(name="Other")
    outer = main.message_type.add(name="Outer").nested_type.add(name="Order")
    outer.field.add(name="key", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    outer.field.add(name="item_text", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    outer.field.add(name="where", number=3, type=field.TYPE_MESSAGE, type_name=".geo.Place", label=field.LABEL_OPTIONAL)
    outer.field.add(name="at", number=4, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (place, main):
        pool.Add(file)
    return place, main, message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Outer.Order"))


PROTOBUF = {"id": "$.key", "text": "$.item_text", "place": {"lat": "$.where.lat", "lon": "$.where.lon"}, "time": {"iso8601": "$.at"}}


def test_a_record_of_protobuf_becomes_a_message(registry, shapes):
    place, main, kind = shapes
    registry.add(9, main, "PROTOBUF", references=[{"name": "geo/place.proto", "subject": "places", "version": 1}])
    registry.versions["places", 1] = {
        "subject": "places",
        "version": 1,
        "id": 3,
        "schemaType": "PROTOBUF",
        "schema": base64.b64encode(place.SerializeToString()).decode(),
    }
    message = kind(key=5, item_text="Late coffee")
    message.where.lon = 8.5  # lat is 0, which is not written
    message.at.FromMilliseconds(NOON)
    value = framed(9, bytes([4, 2, 0]) + message.SerializeToString())
    read = reader(registry, "protobuf", PROTOBUF).read
    assert read(value)[:5] == ('"5"', "Late coffee", 0.0, 8.5, NOON)
    assert read(value).lon == 8.5 and registry.asked == 2


def test_the_first_message_of_a_file_has_a_short_index(registry):
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    kind = file.message_type.add(name="Note")
    for number, (name, type_) in enumerate({"text": field.TYPE_STRING, "lat": field.TYPE_DOUBLE, "lon": field.TYPE_DOUBLE}.items(), 1):
        kind.field.add(name=name, number=number, type=type_, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    note = message_factory.GetMessageClass(pool.FindMessageTypeByName("Note"))(text="tea", lat=1, lon=2)
    registry.add(9, file, "PROTOBUF")
    assert reader(registry, "protobuf", {"id": None}).read(framed(9, b"\0" + note.SerializeToString())).text == "tea"


@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"text": "late"}', b"\0\0\0\0"])
@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_what_has_no_frame_is_refused(registry, format, value):
    with pytest.raises(RecordError, match="wire format of schema registries.*given: ") as e:
        reader(registry, format, {}).read(value)
    assert e.value.code == f"invalid-{format}" and f"`{e.value.code}`" in CODES and registry.asked == 0


@pytest.mark.long
def test_what_is_no_record_of_its_schema_is_refused(registry, shapes):
    registry.add(7, ORDER, "AVRO")
    registry.add(8, {"type": "string"}, "AVRO")
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    file.message_type.add(name="Note")
    registry.add(9, file, "PROTOBUF")
    for format, value in [
        *[("avro", written()[:-n]) for n in (3, 20)],
        ("avro", framed(7, b"\xff" * 30)),
        ("avro", avro("string", "late", 8)),
        *[("protobuf", framed(9, content)) for content in (b"", b"\x02\x08", b"\x02\x01", b"\x01", b"\xff\xff\xff\xff\x0f", b"\0\xff")],
    ]:
        with pytest.raises(RecordError, match="Expected a record of schema [789]") as e:
            reader(registry, format, AVRO).read(value)
        assert e.value.code == f"invalid-{format}" and len(e.value.reason) < 500


def test_a_schema_that_the_registry_does_not_know_is_a_dead_letter(registry):
    with pytest.raises(RecordError, match="Expected a schema that the registry knows; given: 7") as e:
        reader(registry, "avro", {}).read(framed(7, b""))
    assert e.value.code == "unknown-schema" and "`unknown-schema`" in CODES


def test_what_is_no_schema_is_a_dead_letter(registry):
    registry.add(7, {"type": "nothing"}, "AVRO")
    registry.schemas[8] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    for format, id in (("avro", 7), ("protobuf", 8)):
        with pytest.raises(RecordError, match=f"Expected schema {id} to be one of {format}; given: ") as e:
            reader(registry, format, {}).read(framed(id, b""))
        assert e.value.code == "unknown-schema"


def test_a_registry_that_does_not_answer_is_no_fault_of_the_record(registry):
    registry.status = 403
    with pytest.raises(UnreachableRegistryError, match="refuses to answer"):
        reader(registry, "avro", {}).read(framed(7, b""))
    assert UnreachableRegistryError.retriable
    registry.status = None
    registry.add(7, ORDER, "AVRO")
    read = reader(registry, "avro", AVRO, **{"max.retries": 0}).read
    registry.shutdown()
    registry.server_close()
    with pytest.raises(UnreachableRegistryError, match="does not answer"):
        read(written())


def test_a_registry_is_needed_and_its_password_is_not_shown():
    for given in ({}, {"url": ""}, 5):
        with pytest.raises(IllegalArgumentException, match="dskype.input.registry is not usable.*legal: a map with the url"):
            InputMapping({"format": "avro", "registry": given})
    mapping = InputMapping({"format": "avro", "registry": {"url": "http://a", "basic.auth.user.info": "ann:geheim"}})
    assert "geheim" not in repr(mapping)
    assert "geheim" not in repr(
        Settings.from_conf({"dskype.input.format": "avro", "dskype.input.registry": {"url": "http://a", "basic.auth.user.info": "ann:geheim"}})
    )
    with pytest.raises(IllegalArgumentException, match="refuses dskype.input.registry") as e:
        SchemaDecoder("avro", {"url": "http://a", "colour": "geheim"})
    assert "geheim" not in str(e.value)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(IllegalArgumentException, match=r"pip install '/path/to/dskype\[schemas\]'"):
        SchemaDecoder("avro", {"url": "http://a"})
