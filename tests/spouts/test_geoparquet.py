"""Columns of geometries in Parquet files are read as GeoJSON; what they say is what shapely says."""

import json
import random
import struct

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import shapely

from dskype.spouts.geometries import from_geojson, wkb_to_geojson
from dskype.spouts.input_mapping import InputMapping, MessageReader
from dskype.spouts.mapping_guess import look
from dskype.spouts.readers import RecordFile
from dskype.spouts.record_values import RecordError
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException

BOX, TRIANGLE = shapely.box(8, 47, 9, 48), shapely.Polygon([(8, 47), (9, 47), (9, 48)], [[(8.8, 47.2), (8.9, 47.2), (8.9, 47.3)]])
SHAPES = [
    shapely.Point(8.5, 47),
    shapely.Point(8.5, 47, 300),
    BOX,
    TRIANGLE,
    shapely.MultiPolygon([BOX, shapely.box(1, 1, 2, 2)]),
    shapely.MultiPolygon([TRIANGLE]),
]


def geo(encoding="WKB", **more):
    return {
        b"geo": json.dumps(
            {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": {"encoding": encoding, "geometry_types": [], **more}}}
        ).encode()
    }


def written(path, column, metadata, **columns):
    n = len(column)
    table = pa.table({"id": list(range(n)), "name": [f"place {i}" for i in range(n)], "geometry": column, **columns})
    parquet.write_table(table.replace_schema_metadata(metadata), path)
    return path


@pytest.mark.parametrize("form", [{}, {"byte_order": 0}, {"flavor": "iso", "output_dimension": 3}, {"include_srid": True}], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_well_known_binary_says_what_shapely_says(shape, form):
    shape = shapely.set_srid(shape, 4326)
    if form.get("output_dimension") == 3:
        shape = shapely.force_3d(shape, 5.0)
    found = wkb_to_geojson(shapely.to_wkb(shape, **form))
    assert json.loads(json.dumps(found)) == json.loads(shapely.to_geojson(shapely.force_2d(shape)))


def test_random_polygons_are_read_to_the_last_bit():
    rng = random.Random(7)
    for _ in range(300):
        ring = [(rng.uniform(-180, 180), rng.uniform(-90, 90)) for _ in range(rng.randint(3, 12))]
        shape = shapely.Polygon(ring)
        assert wkb_to_geojson(shapely.to_wkb(shape))["coordinates"][0] == [list(position) for position in shape.exterior.coords]


def test_what_is_empty_is_no_place_and_what_is_broken_is_refused():
    for empty in ("POINT EMPTY", "POLYGON EMPTY", "MULTIPOLYGON EMPTY"):
        assert from_geojson(wkb_to_geojson(shapely.to_wkb(shapely.from_wkt(empty)))) is None
    assert wkb_to_geojson(None) is None
    whole = shapely.to_wkb(SHAPES[4])
    broken = [whole[:n] for n in range(len(whole))] + [
        whole + b"x",
        b"",
        b"\x02" + whole[1:],
        whole[:5] + b"\xff\xff\xff\xff" + whole[9:],
        b"\x01\x63\x00\x00\x00",
    ]
    broken.append((b"\x01" + struct.pack("<II", 6, 1)) * 5000)  # multipolygons in multipolygons
    assert all(wkb_to_geojson(value) == {"type": "WKB"} for value in broken)
    for line in ("LINESTRING (1 2, 3 4)", "GEOMETRYCOLLECTION (POINT (1 2))"):
        with pytest.raises(ValueError, match="a GeoJSON geometry"):
            from_geojson(wkb_to_geojson(shapely.to_wkb(shapely.from_wkt(line))))


def test_a_file_is_looked_at_and_its_records_become_messages(tmp_path):
    shapes = [shapely.Point(8.5, 47), BOX, TRIANGLE, None, shapely.LineString([(1, 2), (3, 4)])]
    path = written(tmp_path / "a.parquet", [None if shape is None else shapely.to_wkb(shape) for shape in shapes], geo())
    found = look(path)
    assert found.usable()["place"] == {"geojson": "$.geometry"} and found.usable()["text"] == "$.name"
    settings = Settings.from_conf({f"dskype.input.{name}": value for name, value in found.usable().items()})
    file = RecordFile(path, settings.input)
    reader, messages = MessageReader(settings, file.mapping), []
    for _, record in file:
        try:
            messages.append(reader.read(record))
        except RecordError as error:
            messages.append(str(error))
    assert (messages[0].lat, messages[0].lon) == (47.0, 8.5)
    assert messages[1].bbox == (8.0, 47.0, 9.0, 48.0) and messages[1].region is None
    assert messages[2].region is not None and messages[2].bbox == (8.0, 47.0, 9.0, 48.0)
    assert "given: nothing" in messages[3] and 'given: "LineString"' in messages[4]


@pytest.mark.parametrize(
    ("encoding", "column", "expected"),
    [
        (
            "point",
            pa.array([{"x": 8.5, "y": 47.0}, {"x": float("nan"), "y": float("nan")}, None]),
            [{"type": "Point", "coordinates": [8.5, 47.0]}, {"type": "Point", "coordinates": []}, None],
        ),
        (
            "polygon",
            pa.array([[[{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 2.0}, {"x": 1.0, "y": 4.0}]]]),
            [{"type": "Polygon", "coordinates": [[[1.0, 2.0], [3.0, 2.0], [1.0, 4.0]]]}],
        ),
        ("multipolygon", pa.array([[[[{"x": 1.0, "y": 2.0}]]]]), [{"type": "MultiPolygon", "coordinates": [[[[1.0, 2.0]]]]}]),
    ],
)
def test_coordinates_may_be_columns_of_their_own(tmp_path, encoding, column, expected):
    path = written(tmp_path / "a.parquet", column, geo(encoding))
    assert [record["geometry"] for _, record in RecordFile(path)] == expected


@pytest.mark.parametrize("crs", [{"id": {"authority": "EPSG", "code": 4326}}, {"id": {"authority": "OGC", "code": "CRS84"}}, None])
def test_degrees_have_several_names(tmp_path, crs):
    path = written(tmp_path / "a.parquet", [shapely.to_wkb(shapely.Point(1, 2))], geo(crs=crs))
    assert [record["geometry"] for _, record in RecordFile(path)] == [{"type": "Point", "coordinates": [1.0, 2.0]}]


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (geo(crs={"name": "CH1903+ / LV95", "id": {"authority": "EPSG", "code": 2056}}), "have to be degrees. given: 'geometry: EPSG:2056'.*to_crs"),
        (geo(crs={"name": "a system"}), "given: 'geometry: \"a system\"'"),
        (geo("twkb"), "encoding of a column of geometries is not known. given: 'twkb'"),
        ({b"geo": b"{"}, "not that of GeoParquet"),
        ({b"geo": b"[]"}, "not that of GeoParquet"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, metadata, text):
    path = written(tmp_path / "a.parquet", [shapely.to_wkb(shapely.Point(1, 2))], metadata)
    with pytest.raises(IllegalArgumentException, match=text):
        list(RecordFile(path))


def test_parquets_own_type_for_geometries_is_known_and_other_bytes_stay_bytes(tmp_path):
    data = [shapely.to_wkb(shapely.Point(1, 2))]
    table = pa.table({"g": data, "b": data})
    marked = table.schema.field("g").with_metadata({"ARROW:extension:name": "geoarrow.wkb"})
    parquet.write_table(table.cast(pa.schema([marked, table.schema.field("b")])), tmp_path / "a.parquet")
    ((_, record),) = RecordFile(tmp_path / "a.parquet", InputMapping({}))
    assert record["g"] == {"type": "Point", "coordinates": [1.0, 2.0]} and isinstance(record["b"], str)
