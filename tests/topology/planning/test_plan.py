import itertools
import pickle
import re

import pytest

from dskype.topology import Bolt, IllegalArgumentException, InvalidTopologyException, Spout, TopologyBuilder, TopologyPlan
from dskype.topology.planning.plan import dead_letters_topic, inbox_topic, metrics_topic, partition_fixed


class S(Spout):
    def declare_output_fields(self, declarer):
        declarer.declare("a")

    def next_tuple(self):
        pass


class B(Bolt):
    def declare_output_fields(self, declarer):
        declarer.declare("a")

    def execute(self, tup):
        pass


def topology(*components, spout=("spout", 1)):
    """Each component is (id, hint, configuration)."""
    builder = TopologyBuilder()
    builder.set_spout(*spout[:1], S(), *spout[1:])
    for component_id, hint, conf in components:
        builder.set_bolt(component_id, B(), hint).shuffle_grouping("spout").add_configurations(conf)
    return builder.create_topology(check_serializable=False)


def plan(*components, conf=None, **options):
    return TopologyPlan.build("t", "t-1-100", conf, topology(*components, **options))


NO_ACKER = {"topology.acker.executors": 0}


@pytest.mark.parametrize(
    ("parts", "items", "sizes"), [(3, 10, [4, 3, 3]), (1, 4, [4]), (4, 4, [1, 1, 1, 1]), (9, 2, [1, 1]), (4, 6, [2, 2, 1, 1]), (3, 0, []), (0, 3, [])]
)
def test_parts_are_contiguous_and_larger_ones_come_first(parts, items, sizes):
    split = partition_fixed(parts, range(items))
    assert [len(p) for p in split] == sizes
    assert [i for p in split for i in p] == (list(range(items)) if split else [])


def test_task_ids_count_over_component_ids_in_string_order_with_the_acker():
    p = plan(("b", 2, {}), ("Z", 1, {}), ("a10", 1, {}), ("a9", 1, {}), spout=("spout", 2))
    assert p.component_ids == ["Z", "__acker", "a10", "a9", "b", "spout"]
    assert p.task_component == {1: "Z", 2: "__acker", 3: "a10", 4: "a9", 5: "b", 6: "b", 7: "spout", 8: "spout"}
    assert p.num_tasks == 8
    assert p.component_tasks("spout") == [7, 8]
    assert [p.task_index(t) for t in (5, 6, 7, 8)] == [0, 1, 0, 1]
    assert p.component_of(5) == "b"


def test_the_acker_has_as_many_executors_and_tasks_as_there_are_workers():
    assert plan(conf={"topology.workers": 3}).component_tasks("__acker") == [1, 2, 3]
    assert plan(conf={"topology.acker.executors": 2, "topology.max.task.parallelism": 1}).num_executors("__acker") == 2
    assert "__acker" not in plan(conf=NO_ACKER).component_ids


@pytest.mark.parametrize(
    ("hint", "conf", "topology_conf", "tasks", "executors"),
    [
        (None, {}, {}, 1, 1),
        (3, {}, {}, 3, 3),
        (3, {"topology.tasks": 6}, {}, 6, 3),
        (4, {"topology.tasks": 2}, {}, 2, 2),
        (None, {"topology.tasks": 4}, {}, 4, 1),
        (None, {}, {"topology.tasks": 4}, 4, 1),
        (None, {"topology.tasks": 2}, {"topology.tasks": 4}, 2, 1),
        (5, {}, {"topology.max.task.parallelism": 3}, 3, 3),
        (5, {"topology.tasks": 9}, {"topology.max.task.parallelism": 3}, 3, 3),
        (5, {"topology.max.task.parallelism": 4}, {"topology.max.task.parallelism": 3}, 4, 4),
        (2, {"topology.max.task.parallelism": 4}, {}, 2, 2),
    ],
)
def test_tasks_and_executors_follow_hint_tasks_and_the_bound(hint, conf, topology_conf, tasks, executors):
    p = plan(("b", hint, conf), conf={**NO_ACKER, **topology_conf})
    assert len(p.component_tasks("b")) == tasks
    assert p.num_executors("b") == executors


def test_executors_are_contiguous_task_ranges():
    p = plan(("b", 3, {"topology.tasks": 10}), conf=NO_ACKER)
    assert p.executors("b") == [(1, 4), (5, 7), (8, 10)]
    assert list(p.executor_tasks("b", 1)) == [5, 6, 7]
    assert [p.executor_of(t) for t in p.component_tasks("b")] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert p.total_executors == 4


def test_executors_are_dealt_round_robin_over_the_workers():
    p = plan(("b", 3, {"topology.tasks": 4}), ("c", 1, {}), conf={**NO_ACKER, "topology.workers": 2})
    assert [p.worker_of(t) for t in range(1, 7)] == [0, 0, 1, 0, 1, 0]
    assert p.worker_tasks(0) == [1, 2, 4, 6] and p.worker_tasks(1) == [3, 5]
    p.worker_tasks(0).clear()
    assert p.worker_tasks(0) == [1, 2, 4, 6] and p.worker_tasks(2) == []
    assert [p.worker_port(w) for w in (0, 1)] == [6700, 6701]
    assert p.used_workers == 2
    assert plan(conf={**NO_ACKER, "topology.workers": 9}).used_workers == 1


def test_the_components_configuration_goes_over_the_topologys_over_the_defaults():
    p = plan(("b", 1, {"x": "component"}), conf={"x": "topology", "y": 1})
    assert (p.component_conf("b")["x"], p.component_conf("b")["y"]) == ("component", 1)
    assert p.component_conf("spout")["x"] == "topology"
    assert p.component_conf("b")["topology.message.timeout.secs"] == 30
    assert p.spec("b").id == "b"


def test_unknown_components_and_tasks_are_refused():
    p = plan(conf=NO_ACKER)
    with pytest.raises(IllegalArgumentException, match="No such component. given: 'x'; legal: spout"):
        p.component_tasks("x")
    with pytest.raises(IllegalArgumentException, match="No such task. given: 9; legal: 1..1"):
        p.component_of(9)


def test_tasks_without_executors_are_refused():
    broken = topology(("b", 1, {}))
    broken.components["b"].parallelism_hint = 0
    broken.components["b"].conf["topology.tasks"] = 2
    with pytest.raises(InvalidTopologyException, match="^Number of executors must be greater than 0 when number of tasks is greater than 0"):
        TopologyPlan.build("t", "t-1-1", {}, broken)


# --- rebalance --------------------------------------------------------------------------------------------------------


def test_rebalance_changes_executors_and_workers_but_never_tasks():
    old = plan(("b", 2, {"topology.tasks": 6}), conf={"topology.workers": 2})
    new = old.rebalanced({"b": 3}, workers=1)
    assert new.task_component == old.task_component
    assert old.executors("b") == [(3, 5), (6, 8)]
    assert new.executors("b") == [(3, 4), (5, 6), (7, 8)]
    assert {new.worker_of(t) for t in new.task_component} == {0}
    assert new.conf["topology.workers"] == 1
    assert new.component_tasks("__acker") == [1, 2]
    assert new.rebalanced({"b": 99}).num_executors("b") == 6
    assert new.rebalanced().executors("b") == new.executors("b")


def test_rebalance_refuses_with_storms_words():
    p = plan(("b", 2, {}))
    with pytest.raises(InvalidTopologyException, match="^Invalid component x for topology t, valid values are b,spout$"):
        p.rebalanced({"x": 1})
    for bad in (0, -1, 1.5, True):
        with pytest.raises(IllegalArgumentException, match="^Number of executors must be greater than 0; given: .*component: 'b'"):
            p.rebalanced({"b": bad})
        with pytest.raises(IllegalArgumentException, match="^Number of workers must be greater than 0"):
            p.rebalanced(workers=bad)


def test_a_plan_survives_pickling_and_is_the_same():
    p = plan(("b", 2, {"topology.tasks": 6}), conf={**NO_ACKER, "topology.workers": 2}).rebalanced({"b": 4})
    q = pickle.loads(pickle.dumps(p))
    for f in ("task_component", "num_workers", "conf", "component_ids"):
        assert getattr(q, f) == getattr(p, f)
    assert [q.executors("b"), [q.worker_of(t) for t in q.task_component]] == [p.executors("b"), [p.worker_of(t) for t in p.task_component]]


# --- topics -----------------------------------------------------------------------------------------------------------


def test_plain_names_stay_readable():
    assert inbox_topic("word-count", "split_words") == "word-count.split_words"
    assert inbox_topic("t", "__acker") == "t.__acker"
    assert metrics_topic("word-count") == "word-count.metrics"
    assert dead_letters_topic("word-count") == "word-count.dead-letters"
    assert plan().inbox_topic("spout") == "t.spout"


ODD = ["a", "b", "a.b", "a_b", "a b", "a_x20b", "a_x5fx20b", "_x", "__x", "é", "日本", "\n", "", "x", "X", "_", "A/B", "ax", "a_", "_xb"]
ODD += ["metrics", "dead-letters", "_x6detrics", "_x64ead-letters", "Metrics", "m" * 300, "m" * 299, "é" * 200]


def test_topic_names_are_legal_short_and_distinct_and_collide_with_no_other():
    names = [inbox_topic(t, c) for t, c in itertools.product(["a", "b", "a b", "é", "t" * 240], ODD)]
    names += [f(t) for f in (metrics_topic, dead_letters_topic) for t in ("a", "b", "a b", "é", "t" * 240)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", n) and n.count(".") <= 1 for n in names)
    of_one = [inbox_topic("a", c) for c in ODD]
    assert len({n.replace(".", "_") for n in of_one}) == len(of_one)


@pytest.mark.parametrize(
    ("conf", "ids"),
    [
        ({"topology.eventlogger.executors": 2}, {"__acker": [1], "__eventlogger": [2, 3], "bolt": [4], "spout": [5]}),
        ({"topology.eventlogger.executors": None, "topology.workers": 2} | NO_ACKER, {"__eventlogger": [1, 2], "bolt": [3], "spout": [4]}),
        (
            {"topology.metrics.consumer.register": [{"class": "a.B", "parallelism.hint": n} for n in (2, 1)]},
            {"__acker": [1], "__metrics_a.B": [2, 3], "__metrics_a.B#2": [4], "bolt": [5], "spout": [6]},
        ),
    ],
)
def test_event_loggers_and_metrics_consumers_have_the_task_ids_of_storm(conf, ids):
    made = plan(("bolt", 1, {}), conf=conf)
    assert {c: made.component_tasks(c) for c in made.component_ids} == ids
    assert TopologyPlan.build("t", "t-1-100", conf, made.topology).task_component == made.task_component
