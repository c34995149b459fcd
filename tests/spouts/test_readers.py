"""Files of records are read in every form, packed or not, in bounded memory, and what is wrong is told with the line."""

import gzip
import io
import json
import random
import sys
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import zstandard

from dskype.spouts import readers
from dskype.spouts.input_mapping import InputMapping
from dskype.spouts.readers import LINE_BYTES, RecordFile, first_lines, plain_lines
from dskype.spouts.record_values import RecordError
from dskype.topology.errors import IllegalArgumentException

RECORDS = [{"id": i, "text": f"Café {i}", "lat": i / 10, "lon": 2.5} for i in range(5)]
CSV = 'text,lat,lon\nlate,1,2\n\n"a, ""b""\nc",3,4\ntea,5,6\n'
ROWS = [(2, ["late", "1", "2"]), (4, ['a, "b"\nc', "3", "4"]), (6, ["tea", "5", "6"])]


def packed(data, ending):
    return {"": lambda d: d, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[ending](data)


def read(tmp_path, data, name="a.jsonl", options=None):
    """Return (number, record or reason) of a file; JSON is read."""
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    found = RecordFile(path, None if options is None else InputMapping(options))
    return [(number, json.loads(value) if isinstance(value, bytes) else str(value) if isinstance(value, RecordError) else value) for number, value in found]


def rows(found):
    return [(number, list(value.values()) if isinstance(value, dict) else value) for number, value in found]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("form", ["lines", "array", "indented", "features", "features in a box"])
def test_json_is_read_in_every_form(tmp_path, form, mark, ending):
    text = {
        "lines": "\n\n".join(json.dumps(record) for record in RECORDS) + "\r\n",
        "array": json.dumps(RECORDS),
        "indented": "\n " + json.dumps(RECORDS, indent=2, ensure_ascii=False) + "\n",
        "features": json.dumps({"type": "FeatureCollection", "crs": {}, "features": RECORDS, "more": [1]}, indent=1),
        "features in a box": json.dumps({"type": "FeatureCollection", "bbox": [0, 1, 2.5, 3], "features": RECORDS}),
    }[form]
    found = read(tmp_path, packed((mark + text).encode(), ending), f"a.json{ending}")
    assert [value for _, value in found] == RECORDS
    assert [number for number, _ in found] == ([1, 3, 5, 7, 9] if form == "lines" else [1, 2, 3, 4, 5])


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("box", [{}, {"bbox": [0, 1, 2.5, 3]}])
def test_members_of_a_feature_collection_may_be_sorted(tmp_path, box, indent):
    features = [{"type": "Feature", "id": 1, "geometry": {"type": "Point", "coordinates": [1, 2]}, "properties": {"text": "a"}}] * 3
    text = json.dumps({"type": "FeatureCollection", "features": features, **box}, sort_keys=True, indent=indent)
    assert text.index("FeatureCollection") > text.index("features")
    assert read(tmp_path, text, "a.json") == [(1, features[0]), (2, features[0]), (3, features[0])]
    record = {"features": [{"name": "sauna"}], "text": "a"}
    assert read(tmp_path, json.dumps(record)) == [(1, record)]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv_with_a_header_is_read(tmp_path, mark, ending):
    found = read(tmp_path, packed((mark + CSV).encode(), ending), f"a.CSV{ending}")
    assert rows(found) == ROWS and list(found[0][1]) == ["text", "lat", "lon"]


def test_columns_may_be_named_in_the_mapping(tmp_path):
    body = CSV.partition("\n")[2]
    columns = {"columns": ["name", "y", "x"]}
    found = read(tmp_path, body, "a.csv", {"csv": columns})
    assert [list(value) for _, value in found] == [["name", "y", "x"]] * 3 and [n for n, _ in found] == [1, 3, 5]
    assert rows(read(tmp_path, CSV, "a.txt", {"format": "csv", "csv": {**columns, "header": True}})) == ROWS


def test_lines_without_quotes_end_with_a_text_that_may_contain_delimiters(tmp_path):
    found = read(tmp_path, 'id,text\n1,"a, b\n2,c\n', "a.csv", {"csv": {"quote": None}})
    assert rows(found) == [(2, ["1", '"a, b']), (3, ["2", "c"])]
    assert rows(read(tmp_path, 'id\ttext\n1\t"a, b\n', "a.tsv")) == [(2, ["1", '"a, b'])]
    assert rows(read(tmp_path, "id;text\n1;a,b\n", "a.csv", {"csv": {"delimiter": ";"}})) == [(2, ["1", "a,b"])]


def test_the_mapping_counts_more_than_the_name_of_a_file(tmp_path):
    assert rows(read(tmp_path, "id\ttext\n1\ta,b\n", "a.csv", {"format": "tsv"})) == [(2, ["1", "a,b"])]


def test_a_wrong_line_of_csv_is_refused_and_the_next_one_is_read(tmp_path):
    data = b'text,lat,lon\nlate,1\n"a"b,1,2\n\xff,1,2\n' + b"x" * (LINE_BYTES + 9) + b"\ntea,5,6\n"
    found = read(tmp_path, data, "a.csv")
    assert [number for number, _ in found] == [2, 3, 4, 5, 6] and found[-1][1] == {"text": "tea", "lat": "5", "lon": "6"}
    reasons = [value for _, value in found[:-1]]
    assert "given: 2 values; legal: 3: text, lat, lon" in reasons[0] and "Expected a line of values (" in reasons[1]
    assert "Expected values in UTF-8" in reasons[2] and "line 5 is longer than 4,194,304 bytes" in reasons[3]


@pytest.mark.parametrize("text", ["", "\n", "a,a\n1,2\n", "a,\n1,2\n", 'a,"b\n1,2\n', "a,b\r1,2\r", b"a,L\xe4nge\n1,2\n", "a,b\n1,2\n".encode("utf-16")])
def test_a_header_without_a_name_for_each_column_is_an_error(tmp_path, text):
    with pytest.raises(IllegalArgumentException, match="names no columns.*hint: dskype.input.csv"):
        read(tmp_path, text, "a.csv")


@pytest.mark.long
@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_packed_file_that_is_cut_is_an_error(tmp_path, ending):
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS * 1000)
    whole = packed(lines.encode(), ending)
    both = whole + packed(b'{"id": 5}\n', ending)
    assert len(read(tmp_path, both, f"a.jsonl{ending}")) == 5001
    for size in (1, 5, 10, len(whole) // 2, len(both) - 9, len(both) - 5):
        with pytest.raises(IllegalArgumentException, match="cannot be read to its end"):
            read(tmp_path, both[:-size], f"a.jsonl{ending}")


@pytest.mark.parametrize(
    ("text", "count", "reason"),
    [
        ("[]", 0, None),
        ("[ ]\n", 0, None),
        ('[{"a": 1}] x', 1, "Expected nothing after the array; given: 'x'"),
        ('[{"a": 1},', 1, "given: the end of the file"),
        ('[{"a": 1}', 1, "Expected another object of the array or its end"),
        ('[{"a": 1} {"b": 2}]', 1, "Expected another object of the array or its end"),
        ('[{"a": 1},]', 1, "Expected another object of the array (Expecting value)"),
        ("[,]", 0, "Expected another object of the array (Expecting value)"),
        ("[", 0, "Expected another object of the array (Expecting value)"),
        ('[{"a": tru}]', 0, "Expected another object of the array (Expecting value)"),
        ("[" + '{"a":' * 100_000, 0, "Expected another object of the array"),
    ],
)
def test_an_array_is_read_as_far_as_it_is_one(tmp_path, text, count, reason):
    found = read(tmp_path, text)
    assert [value for _, value in found[:count]] == [{"a": 1}] * count
    if reason is None:
        assert len(found) == count
    else:
        [(number, told)] = found[count:]
        assert number == count + 1 and reason in told


def test_what_is_no_object_in_an_array_is_refused_alone(tmp_path):
    assert read(tmp_path, '[5, {"a": 1}, 12, "x"]') == [
        (1, "Expected a message as a JSON object; given: 5"),
        (2, {"a": 1}),
        (3, "Expected a message as a JSON object; given: 12"),
        (4, 'Expected a message as a JSON object; given: "x"'),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_an_array_is_read_alike_wherever_its_text_is_cut(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(readers, "_BUFFER_BYTES", random.Random(seed).randint(2, 9))
    draw = random.Random(seed)
    records = [{"a": draw.choice([1, 12.5, "x]", 'é"', [1, {"b": None}], {}])} for _ in range(10)]
    assert [value for _, value in read(tmp_path, json.dumps(records, indent=draw.choice([None, 1])))] == records
    numbers = [draw.randint(0, 10**6) for _ in range(10)]
    assert [value.rpartition(" ")[2] for _, value in read(tmp_path, json.dumps(numbers))] == list(map(str, numbers))


@pytest.mark.long
def test_a_line_or_an_object_that_is_too_long_is_refused(tmp_path):
    long = '{"text": "' + "x" * LINE_BYTES + '"}'
    (first, told), second = read(tmp_path, f'{long}\n{{"a": 1}}\n')
    assert first == 1 and "more than 4,194,304 bytes" in told and second == (2, {"a": 1})
    [(_, told)] = read(tmp_path, f"[{long[:-2]}{long}]")
    assert "Expected another object of the array" in told


def test_parquet_is_read_with_values_as_in_json(tmp_path):
    moment = datetime(2013, 4, 1, 12, tzinfo=UTC)
    table = pa.table(
        {
            "text": ["late", None],
            "at": pa.array([moment, moment], pa.timestamp("ms", "UTC")),
            "price": pa.array([Decimal("12.50"), None], pa.decimal128(5, 2)),
            "score": [float("nan"), 1.5],
            "raw": [b"\xff\x00", b"abc"],
            "place": [{"lat": 1.5, "tags": ["a"]}, None],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    at = "2013-04-01T12:00:00+00:00"
    assert list(RecordFile(tmp_path / "a.parquet")) == [
        (1, {"text": "late", "at": at, "price": 12.5, "score": None, "raw": "ff00", "place": {"lat": 1.5, "tags": ["a"]}}),
        (2, {"text": None, "at": at, "price": None, "score": 1.5, "raw": "abc", "place": None}),
    ]
    assert list(RecordFile(tmp_path / "a.parquet", InputMapping({"format": "csv"}))) == list(RecordFile(tmp_path / "a.parquet"))


def test_columns_of_parquet_have_different_names(tmp_path):
    parquet.write_table(pa.table([["a"], [1], ["b"]], ["text", "n", "text"]), tmp_path / "a.parquet")
    with pytest.raises(IllegalArgumentException, match=r"the same name\.? *.*given: \['text'\]"):
        list(RecordFile(tmp_path / "a.parquet"))


def test_a_row_of_parquet_with_a_value_that_json_cannot_have_is_refused_alone(tmp_path):
    times = pa.array([0, 2**62, 1000], pa.timestamp("us"))
    parquet.write_table(pa.table({"text": ["a", "b", "c"], "at": times}), tmp_path / "a.parquet")
    (_, first), (number, told), (_, last) = RecordFile(tmp_path / "a.parquet")
    assert first == {"text": "a", "at": "1970-01-01T00:00:00"} and last["text"] == "c"
    assert number == 2 and "Expected a row of values that JSON can have; given: date value out of range" in str(told)


def test_damaged_files_are_named(tmp_path):
    lines = "\n".join(json.dumps(record) for record in RECORDS * 1000).encode()
    for name, data in [
        ("a.gz", gzip.compress(lines)[:-200]),
        ("b.gz", b"\x1f\x8b" + b"x" * 50),
        ("a.zst", b"\x28\xb5\x2f\xfd" + b"x" * 50),
        ("a.parquet", b"PAR1" + b"x" * 50),
        ("a.json", b'[{"a": "' + b"\xff" * 5),
    ]:
        with pytest.raises(IllegalArgumentException, match=f"cannot be read to its end.*given: '.*{name}'.*hint: "):
            read(tmp_path, data, name)


def test_a_file_that_is_not_there_is_an_error_at_once():
    for open_it in (RecordFile, plain_lines, first_lines):
        with pytest.raises(FileNotFoundError):
            open_it("/nope/nope")


def test_standard_input_is_read_and_stays_open(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b'{"a": 1}\n'))))
    assert list(RecordFile("-")) == [(1, b'{"a": 1}')]
    assert not sys.stdin.buffer.closed


def test_plain_lines_are_numbered_and_blank_ones_left_out(tmp_path):
    (tmp_path / "f").write_bytes(b"\n a \r\n\n" + b"x" * (LINE_BYTES + 9) + b"\nb")
    found = list(plain_lines(str(tmp_path / "f")))
    assert [(n, line) for n, line in found if isinstance(line, bytes)] == [(2, b"a"), (5, b"b")]
    assert found[1][0] == 4 and "more than 4,194,304 bytes" in str(found[1][1])


@pytest.mark.long
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_long_file_needs_little_memory(tmp_path, name):
    record = {"id": 1, "text": "x" * 900, "lat": 1.5, "lon": 2.5}
    many = [record] * 20_000
    text = json.dumps(many) if name == "a.json" else "id,text\n" + ("1," + "x" * 900 + "\n") * 20_000 if name == "a.csv" else "\n".join(map(json.dumps, many))
    (tmp_path / name).write_bytes(packed(text.encode(), name[7:]))
    del text
    tracemalloc.start()
    try:
        assert sum(1 for _ in RecordFile(tmp_path / name)) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()
