"""Maps of results: valid SVG, readable, small."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from dskype.deploy.demo import result_map
from dskype.deploy.demo.places import load
from dskype.deploy.demo.result_map import Pin, draw, write
from dskype.topology.errors import IllegalArgumentException

SVG = "{http://www.w3.org/2000/svg}"
NO_DOTS = np.zeros(0), np.zeros(0)


def make(pins=(), here=(48.85, 2.35), dots=NO_DOTS, name="Paris", title="saint martin near Paris", **more):
    return draw(*dots, here=here, name=name, pins=list(pins), title=title, **more)


def scattered(n: int, spread: float, seed: int, here=(48.85, 2.35)) -> list[Pin]:
    rng = np.random.default_rng(seed)
    return [Pin(here[0] + y, here[1] + x, f"Saint-Martin-sur-Mer {i}", "France", 1 - i / 100) for i, (y, x) in enumerate(rng.normal(0, spread, (n, 2)))]


def bubbles(svg: str) -> list[tuple[float, float, int]]:
    """Return (x, y, rank) of the numbered circles of the detail."""
    detail, found = ET.fromstring(svg).find(f"{SVG}g[1]"), []
    nodes = list(detail)
    for circle, text in itertools.pairwise(nodes):
        if circle.tag == f"{SVG}circle" and text.get("class") == "rank":
            found.append((float(circle.get("cx")), float(circle.get("cy")), int(text.text)))
    return found


def label_boxes(svg: str) -> list[tuple[float, float, float, float]]:
    boxes = []
    for text in ET.fromstring(svg).find(f"{SVG}g[1]").iter(f"{SVG}text"):
        if "halo" in text.get("class"):
            size, x, y = float(text.get("font-size")), float(text.get("x")), float(text.get("y"))
            width = result_map._text_width(text.text, size)
            left = x - {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor")]
            boxes.append((left, y - size * 0.75, left + width, y + size * 0.2))
    return boxes


@pytest.mark.parametrize(("n", "spread", "seed"), [(20, 3.0, 1), (20, 0.3, 2), (20, 0.0, 3), (60, 1.0, 4), (7, 40.0, 5), (1, 0.0, 6)])
def test_nothing_covers_anything_else(n, spread, seed):
    svg = make(scattered(n, spread, seed))
    circles, labels = bubbles(svg), label_boxes(svg)
    assert labels and (n < 40 or len(circles) > 40)
    for i, (x, y, _) in enumerate(circles):
        assert all(math.hypot(x - a, y - b) >= 2 * 10.5 for a, b, _ in circles[:i])
        assert not any(left < x + 10 and x - 10 < right and top < y + 10 and y - 10 < bottom for left, top, right, bottom in labels)
    for i, a in enumerate(labels):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in labels[:i])


def test_results_have_their_ranks_and_are_listed():
    pins = scattered(12, 2.0, 9)
    svg = make(pins)
    assert sorted(rank for _, _, rank in bubbles(svg)) == list(range(1, 13))
    texts = ["".join(t.itertext()) for t in ET.fromstring(svg).iter(f"{SVG}text")]
    for pin in pins:
        assert f"{pin.name}{pin.region}" in texts and f"{pin.score:.3f}" in texts


def test_a_bubble_that_had_to_move_points_to_its_place():
    pins = [Pin(49.0, 3.0, "Here", "", 0.9), Pin(49.0, 3.0, "Here too", "", 0.8)]
    root = ET.fromstring(make(pins))
    [line] = list(root.iter(f"{SVG}line"))
    [(x, y, _), *_] = [b for b in bubbles(make(pins)) if b[2] == 1]
    assert abs(float(line.get("x1")) - x) < 0.2 and abs(float(line.get("y1")) - y) < 0.2


def test_far_results_are_on_the_world_only_and_said_so():
    svg = make([*scattered(9, 0.5, 1), Pin(-33.9, 151.2, "Saint Martin Street", "Australia", 0.2)])
    assert sorted(rank for _, _, rank in bubbles(svg)) == list(range(1, 10))
    assert "dimmed: only on the map of the world" in svg and "Saint Martin Street" in svg


def test_long_lists_say_how_many_more():
    assert "and 30 more" in make(scattered(50, 1.0, 2))


def test_without_results_it_says_so():
    svg = make()
    assert "nothing yet" in svg and not bubbles(svg)
    ET.fromstring(svg)


def test_text_is_escaped_and_unprintable_characters_are_left_out():
    nasty = "</text><script>alert('x')</script>&\"\x00\x0b\ud800\ufffe😀東京"
    svg = make([Pin(48, 2, nasty, nasty, 0.5)], name=nasty, title=nasty, subtitle=nasty)
    root = ET.fromstring(svg.encode())
    assert not list(root.iter(f"{SVG}script"))
    assert root.find(f"{SVG}title").text == "</text><script>alert('x')</script>&\"😀東京"
    assert "<script" not in svg


@pytest.mark.parametrize("here", [(89.9, 179.9), (-89.9, -179.9), (0.0, 180.0), (-90.0, 0.0)])
def test_subscriptions_at_the_edge_of_the_world_are_drawn(here):
    svg = make(scattered(5, 0.5, 3, here), here=here)
    assert len(bubbles(svg)) == 5 and "nan" not in svg and "inf" not in svg


def test_every_message_is_within_a_dot_of_the_world():
    rng = np.random.default_rng(4)
    lat, lon = rng.uniform(-50, 70, 3000), rng.uniform(-180, 180, 3000)
    svg = make(dots=(lat, lon))
    world = svg[svg.index('<clipPath id="world">') :]
    cells = set()
    for path in re.findall(r'class="dots"[^>]* d="([^"]*)"', world):
        x = y = 0
        for dx, dy, run in re.findall(r"m(-?\d+)\s?(-?\d+)h(\d+)", path):
            x, y = x + int(dx), y + int(dy)
            cells |= {(column, y) for column in range(x, x + int(run))}
            x += int(run)
    width = 1200 - 56
    expected = {(int((b + 180) / 360 * width / 1.9), int((78.5 - a) / 360 * width / 1.9)) for a, b in zip(lat, lon)}
    assert cells == expected


@pytest.mark.long
def test_the_whole_world_stays_small():
    world = load()
    pins = [Pin(float(world.lat[i]), float(world.lon[i]), world.names[i].as_py(), world.region(i), 0.5) for i in range(0, 20_000, 1000)]
    assert len(make(pins, dots=(world.lat, world.lon)).encode()) < 220_000
    assert len(make(pins, dots=(world.lat, world.lon), cell_px=2.6).encode()) < 150_000


def test_a_picture_is_written_as_a_whole(tmp_path):
    assert write(tmp_path / "map.svg", make()).read_text() == make()
    assert [p.name for p in tmp_path.iterdir()] == ["map.svg"]
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "missing" / "map.svg", "")


def test_dots_that_are_too_fine_are_refused():
    with pytest.raises(IllegalArgumentException, match="given: 0"):
        make(cell_px=0)
