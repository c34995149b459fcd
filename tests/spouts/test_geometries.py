"""GeoJSON and WKT become the place of a message, and what a message cannot have is refused."""

import json

import pytest

from dskype.spouts.geometries import GeometryError, from_geojson, from_wkt

RING = [[8, 47], [9, 47], [8.5, 48], [8, 47]]
HOLE = [[8.4, 47.1], [8.6, 47.1], [8.5, 47.2], [8.4, 47.1]]
BOX = [[8, 47], [9, 47], [9, 48], [8, 48], [8, 47]]


def geojson(kind, coordinates):
    return {"type": kind, "coordinates": coordinates}


@pytest.mark.parametrize(
    ("geometry", "place"),
    [
        (geojson("Point", [8.5, 47.3]), {"lat": 47.3, "lon": 8.5}),
        (geojson("Point", [8.5, 47.3, 400]), {"lat": 47.3, "lon": 8.5}),
        (geojson("Polygon", [BOX]), {"bbox": [8, 47, 9, 48]}),
        (geojson("Polygon", [BOX[::-1]]), {"bbox": [8, 47, 9, 48]}),
        (geojson("Polygon", [BOX[:4]]), {"bbox": [8, 47, 9, 48]}),
        (geojson("Polygon", [[[8, 47]] * 4]), {"bbox": [8, 47, 8, 47]}),
        (geojson("Polygon", [RING]), {"region": geojson("Polygon", [RING])}),
        (geojson("Polygon", [RING[:3]]), {"region": geojson("Polygon", [RING])}),
        (geojson("Polygon", [RING, HOLE]), {"region": geojson("Polygon", [RING, HOLE])}),
        (geojson("Polygon", [BOX, HOLE]), {"region": geojson("Polygon", [BOX, HOLE])}),
        (geojson("MultiPolygon", [[RING]]), {"region": geojson("Polygon", [RING])}),
        (geojson("MultiPolygon", [[BOX], [RING, HOLE]]), {"region": geojson("MultiPolygon", [[BOX], [RING, HOLE]])}),
        ({"type": "Feature", "properties": {}, "geometry": geojson("Point", [8.5, 47.3])}, {"lat": 47.3, "lon": 8.5}),
        ({"type": "Feature", "geometry": None}, None),
        (geojson("Point", []), None),
        (geojson("Polygon", []), None),
    ],
)
def test_geojson_says_where_a_message_is(geometry, place):
    assert from_geojson(geometry) == place
    assert from_geojson(json.dumps(geometry)) == place


def test_a_ring_through_the_corners_of_a_rectangle_in_another_order_is_no_rectangle():
    crossed = [[8, 47], [9, 48], [9, 47], [8, 48], [8, 47]]
    assert from_geojson(geojson("Polygon", [crossed])) == {"region": geojson("Polygon", [crossed])}
    twice = [[8, 47], [9, 47], [8, 47], [9, 47], [8, 47]]
    assert from_geojson(geojson("Polygon", [twice])) == {"bbox": [8, 47, 9, 47]}


def test_a_wide_rectangle_is_a_bounding_box_as_in_tweets_and_does_not_cross_the_antimeridian():
    corners = [[-179.2, 13.2], [-179.2, 71.4], [179.9, 71.4], [179.9, 13.2], [-179.2, 13.2]]
    wkt = f"POLYGON (({', '.join(f'{lon} {lat}' for lon, lat in corners)}))"
    assert from_geojson(geojson("Polygon", [corners])) == from_wkt(wkt) == {"bbox": [-179.2, 13.2, 179.9, 71.4]}


@pytest.mark.parametrize(
    "geometry",
    [
        5,
        "",
        "{",
        "[" * 10_000,
        [8.5, 47.3],
        {},
        {"type": "LineString", "coordinates": [[1, 2], [3, 4]]},
        {"type": "GeometryCollection", "geometries": []},
        geojson("Point", [8.5]),
        geojson("Point", None),
        geojson("Point", "8.5 47.3"),
        geojson("Polygon", [8.5, 47.3]),
        geojson("Polygon", [[8.5, 47.3]]),
        geojson("Polygon", [[]]),
        geojson("Polygon", [[[8]]]),
        geojson("MultiPolygon", [RING]),
        {"type": "Feature", "geometry": 5},
    ],
)
def test_other_geojson_is_refused(geometry):
    with pytest.raises(GeometryError) as e:
        from_geojson(geometry)
    assert e.value.words and e.value.given and "Polygon" in e.value.legal


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("POINT(8.5 47.3)", {"lat": 47.3, "lon": 8.5}),
        ("point z (8.5 47.3 400)", {"lat": 47.3, "lon": 8.5}),
        (" SRID=4326;POINT ( -8.5 4.73e1 ) ", {"lat": 47.3, "lon": -8.5}),
        ("POINT EMPTY", None),
        ("POLYGON((8 47, 9 47, 9 48, 8 48, 8 47))", {"bbox": [8, 47, 9, 48]}),
        ("POLYGON((8 47, 9 47, 8.5 48, 8 47), (8.4 47.1, 8.6 47.1, 8.5 47.2, 8.4 47.1))", {"region": geojson("Polygon", [RING, HOLE])}),
        ("MULTIPOLYGON(((8 47,9 47,8.5 48,8 47)),((8 47, 9 47, 9 48, 8 48, 8 47)))", {"region": geojson("MultiPolygon", [[RING], [BOX]])}),
    ],
)
def test_wkt_says_where_a_message_is(text, place):
    assert from_wkt(text) == place


@pytest.mark.parametrize(
    "text",
    [
        *(5, None, "", "POINT", "POINT(1)", "POINT(1 2", "POINT(1 2))", "POINT(1 2) x", "POINT(1,2)", "POINT(1 2,3 4)", "POINT((1 2))", "POINT(a b)"),
        *("POINT EMPTY x", "LINESTRING(1 2,3 4)", "POLYGON(1 2)", "POLYGON((1 2,,3 4))", "POLYGON(())", "POLYGON((1 2)(3 4))", "SRID=3857;POINT(1 2)"),
        *("POLYGON" + "(" * 10_000, "POINT(1 2,)", "MULTIPOLYGON((8 47,9 47,8 47))"),
    ],
)
def test_other_wkt_is_refused(text):
    with pytest.raises(GeometryError):
        from_wkt(text)
