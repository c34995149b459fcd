import numpy as np
import pytest

from dskype.spouts.areas import centre_of, centres, overlap
from dskype.spouts.batch import MessageBatch
from tests.bolts.boolean.oracle import any_area, any_box, any_place_message, messages_of, place_of, seeded
from tests.naive import in_bbox, overlapping


def same(batch, other):
    return all((a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b)) for a, b in zip(batch, other, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_areas_go_with_their_messages(seed):
    rng = seeded(seed)
    rows = [any_place_message(rng, areas=0.5) for _ in range(30)]
    batch = messages_of(rows)
    assert batch.areas.tolist() == [list(place_of(row)) for row in rows]
    some = np.array(rng.sample(range(30), 12))
    taken = batch.select(some)
    assert taken.areas.tolist() == [list(place_of(rows[i])) for i in some]
    assert same(taken._replace(seq=0, position=0), messages_of([rows[i] for i in some])._replace(seq=0, position=0))
    assert same(batch.slice(5, 9).select(np.arange(4)), batch.select(np.arange(5, 9)))
    assert same(MessageBatch.concat([batch.slice(0, 7), batch.slice(7, 7), batch.slice(7, 30)]), batch)


def test_points_among_areas_become_rectangles_without_extent():
    points, areas = messages_of([(48.0, 11.0, [1]), (49.0, 12.0, [2])]), messages_of([((1.0, 2.0, 3.0, 4.0), [3])])
    for batches in ((points, areas), (areas, points), (points, MessageBatch.empty(), areas)):
        whole = MessageBatch.concat(batches)
        assert sorted(whole.areas.tolist()) == [[1, 2, 3, 4], [11, 48, 11, 48], [12, 49, 12, 49]]
        assert whole.areas.shape == (3, 4)


def test_points_alone_have_no_areas():
    points = messages_of([(48.0, 11.0, [1]), (49.0, 12.0, [2])])
    for batch in (
        points,
        MessageBatch.empty(),
        MessageBatch.concat([points, points]),
        points.select(np.array([1])),
        points.slice(0, 1),
        MessageBatch.concat([]),
    ):
        assert batch.areas is None
    assert points.rectangles().tolist() == [[11, 48, 11, 48], [12, 49, 12, 49]]
    assert MessageBatch.empty().rectangles().shape == (0, 4)


@pytest.mark.parametrize(
    ("area", "centre"),
    [
        ((11, 48, 12, 49), (48.5, 11.5)),
        ((170, -10, -170, 10), (0, 180)),
        ((170, -10, -160, 10), (0, -175)),
        ((160, -10, -170, 10), (0, 175)),
        ((180, 90, -180, 90), (90, 180)),
        ((180, 0, 0, 0), (0, -90)),
        ((0, 0, -180, 0), (0, 90)),
        ((10, 0, 9, 0), (0, -170.5)),
        ((-180, -90, 180, 90), (0, 0)),
        ((-180, -90, -180, -90), (-90, -180)),
        ((180, 90, 180, 90), (90, 180)),
    ],
)
def test_centres(area, centre):
    assert centre_of(*map(float, area)) == centre
    assert [float(c[0]) for c in centres(np.array([area], float))] == list(centre)


def test_a_centre_lies_in_its_area():
    rng = seeded(4)
    areas = [any_area(rng) for _ in range(500)]
    lat, lon = centres(np.array(areas))
    for area, *centre in zip(areas, lat.tolist(), lon.tolist()):
        assert tuple(centre) == centre_of(*area)
        assert in_bbox(area, *centre)
        assert -180 <= centre[1] <= 180


def test_overlaps_are_those_of_the_oracle():
    rng = seeded(5)
    areas, boxes = [any_area(rng) for _ in range(120)], [any_box(rng) for _ in range(120)]
    expected = [[overlapping(area, box) for box in boxes] for area in areas]
    assert overlap(np.array(areas)[:, None], np.array(boxes)).tolist() == expected
    assert 1000 < sum(map(sum, expected)) < 13400
