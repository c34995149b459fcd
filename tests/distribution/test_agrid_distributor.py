"""What only the A-Grid's distributor does: rectangles and partitions, and plans of them."""

import json

import numpy as np
import pytest

from dskype.deploy.client import plan_picture
from dskype.deploy.client.plans import with_partitions
from dskype.deploy.demo import places
from dskype.distribution import distributor_class, make_distributor
from dskype.distribution.agrid.learning import box_of_messages
from dskype.distribution.learning.sampling import make_sample
from dskype.distribution.methods.partitioned import measure
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.areas import centre_of
from dskype.spouts.batch import MessageBatch
from dskype.spouts.records import Message
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import BooleanSubscription as BooleanRecord
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException
from tests.distribution import worlds
from tests.distribution.test_distributors import assert_exact, questions, world

pytestmark = pytest.mark.long

RECTANGLES = [
    [10.0, 45.0, 12.5, 47.25],
    [170.0, -20.0, -170.0, 20.0],
    [180.0, 90.0, 180.0, 90.0],
    [-180.0, -90.0, -180.0, -90.0],
    [-180.0, -90.0, 180.0, 90.0],
    [0.0, 0.0, 0.0, 0.0],
]


@pytest.fixture(scope="module")
def real():
    """Two samples of the world's places with boolean subscriptions: one to learn from, one to measure on."""
    found, rng = places.load(), np.random.default_rng(2)
    tokenizer, settings = Tokenizer(), Settings(extent=8000)
    rows = rng.permutation(len(found))[:20_000]
    texts, lat, lon = found.texts.take(rows).to_pylist(), found.lat[rows].tolist(), found.lon[rows].tolist()
    vocabulary, samples = Vocabulary.build(texts, tokenizer), []
    for part in range(2):
        own, subscriptions = range(10_000 * part, 10_000 * part + 10_000), []
        for i in rng.choice(own, 3000).tolist():
            words = tokenizer.tokens(texts[i]) or ["a"]
            side = float(rng.choice([0.2, 1.0, 5.0]))
            box = (max(-180.0, lon[i] - side), max(-90.0, lat[i] - side), min(180.0, lon[i] + side), min(90.0, lat[i] + side))
            subscriptions.append(BooleanRecord(f"s{i}", box, str(rng.choice(words)), None))
        samples.append(make_sample([Message(None, texts[i], lat[i], lon[i], None) for i in own], subscriptions, vocabulary, settings))
    return samples


def make(tasks, sample=None, options=None):
    return make_distributor("agrid", tasks, options, None if sample is None else distributor_class("agrid").learn(tasks, sample, options))


def boolean(box):
    return BooleanSubscription(box, 0, None, None)


def test_a_sample_has_the_rectangles_of_boolean_subscriptions(real):
    sample = real[0]
    assert sample.boxes.shape == (3000, 4) and (sample.boxes[:, 0] <= sample.lon).all() and (sample.lon <= sample.boxes[:, 2]).all()
    assert [sample.subscription(i).bbox for i in range(3)] == sample.boxes[:3].tolist()
    mixed = make_sample(
        [Message(None, "lake", 1.5, 2.5, None, (2.0, 1.0, 3.0, 2.0))], [BooleanRecord("b", (0.0, 0.0, 9.0, 9.0), "lake", None)], Vocabulary.empty(), Settings()
    )
    assert mixed.messages.areas.tolist() == [[2.0, 1.0, 3.0, 2.0]] and mixed.rectangles().tolist() == [[0.0, 0.0, 9.0, 9.0]]


@pytest.mark.parametrize("tasks", [5, 32])
def test_learned_partitions_are_balanced_and_messages_go_to_one_task(real, tasks):
    sample, other = real
    learned, equal = make(tasks, sample), make_distributor("uniform-space", tasks, plan=distributor_class("uniform-space").learn(tasks, sample))
    found = measure(learned, sample)
    assert (
        np.allclose(found.loads, learned.loads(), rtol=1e-4) and found.communication == 1.0 and found.replication < 2.5
    )  # a third of the rectangles has sides of ten degrees
    assert found.balance <= 1.25 and measure(learned, other).balance <= 1.5  # 310 messages each vary
    assert measure(equal, sample).balance > 2 and np.allclose(measure(equal, sample).loads, equal.loads(), rtol=1e-4)


def test_a_learned_grid_lies_around_the_messages_unless_a_box_is_given():
    """Cells lie where messages are, a few wrong places do not stretch the grid, and another sample of the same stream leads to the same one."""
    rng, kind, grids, n = np.random.default_rng(7), distributor_class("agrid"), [], 5_000
    for _ in range(2):
        lat, lon = np.append(rng.uniform(25, 49, n), [0.0, 89.0]), np.append(rng.uniform(-124, -67, n), [0.0, 170.0])
        some = MessageBatch(*(np.arange(n + 2),) * 2, lat, lon, np.arange(n + 3), np.zeros(n + 2, np.int64), np.ones(n + 2))
        sample = world(0)._replace(messages=some)
        plan = kind.learn(4, sample)
        west, south, east, north = plan["grid"]["box"]
        assert -128 <= west <= -123.8 and -67.2 <= east <= -64 and 23 <= south <= 25.2 and 48.8 <= north <= 51
        found = make_distributor("agrid", 4, plan=plan)
        assert found.message_tasks(some).tasks.shape == (n + 2,), "what lies outside belongs to the border"
        assert measure(found, sample).balance < 1.05
        assert kind.learn(4, sample, {"box": [-180, -90, 180, 90]})["grid"]["box"] == [-180, -90, 180, 90]
        grids.append(plan["grid"])
    assert grids[0] == grids[1]


@pytest.mark.parametrize("lat, lon", [(0.0, 0.0), (90.0, 180.0), (-90.0, -180.0), (0.25, -64.0)])
def test_messages_at_one_place_have_a_small_box(lat, lon):
    west, south, east, north = box_of_messages(np.full(3, lat), np.full(3, lon))
    assert -180 <= west <= lon <= east <= 180 and -90 <= south <= lat <= north <= 90
    assert 0 < east - west < 0.01 and 0 < north - south < 0.01


def test_the_baseline_has_summaries_only_if_asked():
    assert distributor_class("agrid").summarizes({}) and not distributor_class("uniform-space").summarizes({})
    assert distributor_class("uniform-space").summarizes({"summaries": True})


def test_a_rectangle_lives_where_each_of_its_points_goes(real):
    for found in (make(32, real[0]), make(7)):
        for box in RECTANGLES:
            tasks = set(found.place("b", boolean(box)).tasks)
            west, south, east, north = box
            lat, middle = centre_of(*box)
            lons = np.array([west, east, middle])
            for y in (south, lat, north):
                assert set(found.task_of[found.grid.locate(np.full(3, y), lons)].tolist()) <= tasks
        assert found.place("b", boolean(RECTANGLES[4])).tasks == list(range(found.tasks))
        assert len(found.place("b", boolean(RECTANGLES[2])).tasks) == 1


def test_a_topk_subscription_lives_everywhere_until_its_threshold_rules_places_out(real):
    found, sample = make(32, real[0]), world(0)
    near = worlds.subscription(sample, 0)._replace(alpha=0.9, scale_m=None)
    assert found.place("s", near).tasks == found.place("s", near, -np.inf).tasks == list(range(32))
    counts = [len(found.place("s", near, threshold).tasks) for threshold in (0.2, 0.9, 0.99, 1.0)]
    assert counts[0] == 32 and counts == sorted(counts, reverse=True) and counts[-1] < 32
    assert len(found.place("s", near._replace(alpha=0.0), 1.0).tasks) == 32, "only words count"
    assert len(found.place("s", near, np.inf).tasks) >= 1
    counts = [len(found.place("s", near._replace(scale_m=scale_m), 0.5).tasks) for scale_m in (5e3, 2e6, 2e7)]
    assert counts[0] <= 4 and counts == sorted(counts), "beyond the scale, words reach 0.1"


def test_tasks_without_a_partition_have_nothing():
    found = make(4)
    merged = make_distributor("agrid", 4, plan=found.merge(0, 1))
    assert merged.used == [0, 2, 3] and merged.place("s", worlds.subscription(world(0), 0)).tasks == [0, 2, 3]
    assert 1 not in merged.message_tasks(world(0).messages).tasks and merged.loads()[1] == 0 and merged.loads()[0] == 2


# -- changes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned", [False, True], ids=["equal", "learned"])
def test_splits_merges_and_shifts_keep_everything_exact(learned):
    rng, sample = np.random.default_rng([4, learned]), world(0)
    found, done = make(6, sample if learned else None), {"split": 0, "merge": 0, "shift": 0}
    for step in range(90):
        parts = found.partitions()
        one, other = rng.integers(0, len(parts), 2).tolist()
        kind = str(rng.choice(list(done)))
        try:
            if kind == "split":
                plan = found.split(one, int(rng.integers(0, 6)), sample if step % 3 == 0 else None)
            elif kind == "merge":
                plan = found.merge(one, other)
            else:
                cells, taker = found.grid.cells(one), int(rng.choice(found.grid.neighbours(one)))
                beside = found.grid.cells(taker).x0 == cells.x1 or found.grid.cells(taker).x1 == cells.x0
                low, high = (cells.x0, cells.x1) if beside else (cells.y0, cells.y1)
                plan = found.shift(one, taker, None if rng.random() < 0.5 else int(rng.integers(low, high + 1)))
        except (IllegalArgumentException, ValueError):
            continue
        done[kind] += 1
        assert sum(plan["loads"]) == pytest.approx(found.loads().sum(), rel=1e-3)
        found = make_distributor("agrid", 6, plan=json.loads(json.dumps(plan)))
        found.grid._check()
        if step % 10 == 0:
            assert_exact(found, questions(rng, sample, worlds.with_areas(rng, worlds.messages(rng, 80, first=400)), 5))
    assert_exact(found, questions(rng, sample, worlds.messages(rng, 120, first=400), 12))
    assert min(done.values()) > 2, done


def test_a_split_halves_the_cost_and_a_merge_gives_the_plan_back(real):
    found = make(8, real[0])
    for sample in (None, real[0]):
        plan = found.split(3, 6, sample)
        split = make_distributor("agrid", 8, plan=plan)
        assert len(split.partitions()) in (8, 9)
        if sample is not None:
            loads = measure(split, sample).loads
            assert loads[3] == pytest.approx(found.loads()[3] / 2, rel=0.2)
        new = next((p["number"] for p in split.partitions() if p["tasks"] == [6] and p["cells"] not in [q["cells"] for q in found.partitions()]), None)
        if len(split.partitions()) == 9:
            old = next(p["number"] for p in split.partitions() if p["tasks"] == [3])
            again = make_distributor("agrid", 8, plan=split.merge(old, new))
            assert [p["cells"] for p in again.partitions()] == [p["cells"] for p in found.partitions()]


def test_partitions_are_drawn(real):
    plan = make(8, real[0]).plan()
    drawn = plan_picture.draw(plan)
    assert drawn.count("<rect") >= 10 and "agrid: 8 partitions on 8 tasks" in drawn
    boxes = [p["box"] for p in with_partitions(plan).partitions()]
    assert sum(box[0] is None for box in boxes) >= 1 and all(len(box) == 4 for box in boxes)


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"granularity": 0}, "granularity.*given: 0"),
        ({"granularity": True}, "granularity.*given: True"),
        ({"granularity": 9000}, "1 to 8192"),
        ({"granularity": 2}, "at least 6 cells"),
        ({"box": [1, 2, 1, 3]}, "west < east"),
        ({"box": "world"}, "box.*given: 'world'"),
        ({"cells": 3}, "no such option.*given: 'cells'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, text):
    with pytest.raises(IllegalArgumentException, match=text):
        make(6, options=options)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"loads": [1.0]}, "a load for each task is missing"),
        ({"grid": None}, "the grid is missing"),
        ({"grid": {"columns": 8, "rows": 8, "box": [1, 2]}}, "the grid is missing"),
        ({"grid": {"columns": 99_999, "rows": 8, "box": [0, 0, 1, 1]}}, "do not fit.*too many columns or rows"),
        ({"partitions": []}, "the partitions are missing"),
        ({"partitions": [{"cells": [0, 0, 8, 8]}]}, "a partition is not usable"),
        ({"partitions": [{"cells": [0, 0, 8, 8], "task": 3, "load": 1.0}]}, "a partition's task is not usable.*given: 3.*0 to 2"),
        ({"partitions": [{"cells": [0, 0, 8, 7], "task": 0, "load": 1.0}]}, "do not fit.*leave cells out"),
    ],
)
def test_a_damaged_plan_is_refused(change, text):
    plan = make(3, options={"granularity": 8}).plan()
    with pytest.raises(IllegalArgumentException, match=f"plan is damaged.*{text}"):
        make_distributor("agrid", 3, plan={**plan, **change})


def test_changes_that_make_no_sense_are_refused():
    found, coarse = make(3, options={"granularity": 4}), make(4, options={"granularity": 2})
    for change, text in (
        (lambda: coarse.split(0, 1), "of several cells.*legal: none"),
        (lambda: found.split(0, 0), "does not have it.*given: 0.*legal: 1, 2"),
        (lambda: found.split(9, 1), "no such partition.*given: 9"),
        (lambda: found.split(0, 3), "does not have it"),
        (lambda: found.merge(1, 1), "with the same task cannot be merged"),
        (lambda: found.merge(0, -1), "no such partition"),
    ):
        with pytest.raises(IllegalArgumentException, match=text):
            change()
