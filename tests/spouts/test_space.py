import doctest
import math

import pytest

from dskype.spouts import space as module
from dskype.spouts.space import WORLD, Space
from dskype.topology.errors import IllegalArgumentException

NAN, INF = math.nan, math.inf


def test_the_world_holds_every_legal_place_and_no_other():
    assert all(WORLD.contains(lat, lon) for lat, lon in ((0, 0), (90, 180), (-90, -180)))
    assert not any(WORLD.contains(lat, lon) for lat, lon in ((90.001, 0), (0, 180.001), (NAN, 0), (0, INF)))
    assert WORLD.diagonal_deg == pytest.approx(402.4922359)


def test_borders_belong_to_a_space():
    space = Space(1, 2, 3, 4)
    assert space.contains(2, 1) and space.contains(4, 3) and not space.contains(1.999, 2) and not space.contains(3, 3.001)
    assert space.diagonal_deg == math.sqrt(8) and isinstance(space.west, float)


def test_spaces_compare_by_their_borders_and_cannot_be_changed():
    assert Space(1, 2, 3, 4) == Space(1.0, 2.0, 3.0, 4.0) and len({Space(1, 2, 3, 4), Space(1, 2, 3, 4)}) == 1
    with pytest.raises(AttributeError):
        Space(1, 2, 3, 4).west = 0


@pytest.mark.parametrize(
    "borders",
    [
        (1, 2, 1, 4),
        (3, 2, 1, 4),
        (1, 4, 3, 2),
        (-181, 0, 1, 1),
        (0, 0, 181, 1),
        (0, -91, 1, 1),
        (0, 0, 1, 91),
        (NAN, 0, 1, 1),
        (0, 0, INF, 1),
        (True, 0, 2, 1),
        ("0", 0, 1, 1),
        (None, 0, 1, 1),
        (170, 0, -170, 1),
    ],
    ids=str,
)
def test_what_is_no_rectangle_of_the_globe_is_refused(borders):
    with pytest.raises(IllegalArgumentException, match=r"Expected a data space \[west, south, east, north\] in degrees; given: .*legal: -180 <= west < east"):
        Space(*borders)


def test_the_examples_run():
    assert doctest.testmod(module).failed == 0
