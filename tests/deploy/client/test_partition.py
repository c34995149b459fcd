"""``dskype partition``: plans by hand and by the monitor."""

import itertools
import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from dskype.deploy.cli.commands import partition
from dskype.deploy.cli.main import main
from dskype.deploy.client import calibration
from dskype.deploy.client.balancing import Band, Change, decide, watch
from dskype.deploy.client.plans import PlanOvertakenError, plan_in_force, read_current, send_plan
from dskype.distribution import distributor_class, make_distributor, read_plan
from dskype.distribution.hybrid.loads import LoadModel
from dskype.distribution.methods.partitioned import measure
from dskype.spouts.records import PLAN_VERSION_MAX
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException, TopologyError
from tests.distribution import worlds


@pytest.fixture
def files(tmp_path):
    """Files of a sample."""
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in range(60)]

    def some(n):
        return (words[-1 - (z - 1) % 60] for z in rng.zipf(1.4, n).tolist())

    (tmp_path / "m").write_text(
        "".join(json.dumps({"text": " ".join(some(4)), "lat": rng.uniform(-60, 60), "lon": rng.uniform(-170, 170)}) + "\n" for _ in range(400))
    )
    (tmp_path / "s").write_text(
        "".join(
            json.dumps(
                {"id": f"s{i}", "type": "topk", "keywords": list(some(2)), "k": 2, "alpha": 0.3, "lat": rng.uniform(-60, 60), "lon": rng.uniform(-170, 170)}
            )
            + "\n"
            for i in range(300)
        )
    )
    assert main(["vocabulary", "build", str(tmp_path / "m"), "-o", str(tmp_path / "v")]) == 0
    return tmp_path


def learn(files, name="prefix", tasks=4, *more):
    return main(
        [
            "partition",
            "learn",
            "--distributor",
            name,
            "--tasks",
            str(tasks),
            "--messages",
            str(files / "m"),
            "--subscriptions",
            str(files / "s"),
            "--vocabulary",
            str(files / "v"),
            "-o",
            str(files / "plan"),
            *more,
        ]
    )


@pytest.mark.parametrize("name", ["hashing", "keyword", "keyword-first", "location", "prefix", "spatial-first"])
def test_a_plan_is_learned_shown_and_drawn(files, capsys, name):
    assert learn(files, name) == 0
    assert "tasks per subscription" in capsys.readouterr().err
    assert main(["partition", "show", str(files / "plan")]) == 0
    assert capsys.readouterr().out.startswith(f"{name} on 4 tasks; greatest load / mean 1.")
    assert main(["partition", "show", str(files / "plan"), "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (
        shown["tasks"] == 4
        and len(shown["loads"]) == 4
        and {t for p in shown["partitions"] for t in p["tasks"]} == (set() if name == "hashing" else set(range(4)))
    )
    drawn = main(["partition", "show", str(files / "plan"), "--picture", str(files / "p.svg"), "--messages", str(files / "m")])
    if name == "hashing":
        assert drawn == 1 and "no partitions" in capsys.readouterr().err
    else:
        import xml.etree.ElementTree as ElementTree

        assert drawn == 0 and ElementTree.parse(files / "p.svg").getroot().tag.endswith("svg")


@pytest.mark.long
def test_options_reach_the_distributor_and_files_are_not_replaced_by_accident(files, capsys):
    assert learn(files, "spatial-first", 4, "--option", "n1=4") == 0
    assert learn(files) == 1
    assert "exists already" in capsys.readouterr().err
    assert learn(files, "prefix", 4, "--force", "--option", "slack=0") == 0
    assert learn(files, "prefix", 4, "--force", "--option", "slak=0") == 1
    assert "did you mean slack" in capsys.readouterr().err
    assert learn(files, "prefux", 4, "--force") == 1
    assert "did you mean prefix" in capsys.readouterr().err


def test_what_is_left_out_of_a_sample_is_counted(files, capsys):
    with (files / "m").open("a") as m, (files / "s").open("a") as s:
        m.write('{"text": "w1", "lat": 91, "lon": 0}\n{"text"\n')
        s.write('{"id": "x", "type": "topk", "keywords": ["w1"], "k": 0, "alpha": 0.3, "lat": 0, "lon": 0}\n')
    assert learn(files) == 0
    said = capsys.readouterr().err
    assert f"2 of 402 records of {files / 'm'} are left out of the sample; the first one: record 401: " in said
    assert f"1 of 301 records of {files / 's'} are left out of the sample; the first one: record 301: " in said


def test_partitions_are_split_and_merged_by_hand(files, capsys):
    learn(files, "prefix", 4, "--option", "method=balanced")  # a partition for each task
    plan, out = str(files / "plan"), str(files / "out")
    before = make_distributor("prefix", 4, plan=read_plan(plan)).partitions()
    assert main(["partition", "split", "0", "3", "--plan", plan, "-o", out]) == 0
    after = make_distributor("prefix", 4, plan=read_plan(out)).partitions()
    assert len(after) == len(before) + 1 and [p["tasks"] for p in after[:2]] == [[0], [3]] and after[1]["terms"][1] == before[0]["terms"][1]
    assert main(["partition", "merge", "0", "1", "--plan", out, "-o", out, "--force"]) == 0
    assert [p["terms"] for p in make_distributor("prefix", 4, plan=read_plan(out)).partitions()] == [p["terms"] for p in before]
    capsys.readouterr()
    for arguments, text in (
        (["split", "0", "0"], "does not have it"),
        (["split", "99", "1"], "no such partition"),
        (["merge", "0", "0"], "with the same tasks cannot be merged"),
    ):
        assert main(["partition", *arguments, "--plan", plan, "-o", out, "--force"]) == 1
        assert text in capsys.readouterr().err
    assert main(["partition", "split", "0", "1", "--plan", plan]) == 1
    assert "expected -o OUT, --publish" in capsys.readouterr().err


@pytest.mark.long
def test_the_border_of_two_partitions_is_shifted_by_hand(files, capsys):
    plan, out = str(files / "grid"), str(files / "shifted")
    before = make_distributor("agrid", 2, {"granularity": 8})
    (files / "grid").write_text(json.dumps(before.plan()))
    assert main(["partition", "shift", "0", "1", "--at", "3", "--plan", plan, "-o", out]) == 0
    after = make_distributor("agrid", 2, plan=read_plan(out))
    assert [p["cells"] for p in after.partitions()] == [[0, 0, 3, 8], [3, 0, 8, 8]] != [p["cells"] for p in before.partitions()]
    assert main(["partition", "shift", "0", "1", "--at", "8", "--plan", plan, "-o", out, "--force"]) == 1
    assert "No cells can be shifted" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["partition", "show", out, "--map"]) == 0
    assert capsys.readouterr().out.splitlines()[-18:] == ["0" * 27 + "1" * 45] * 18
    learn(files, "prefix", 4)
    assert main(["partition", "shift", "0", "1", "--at", "3", "--plan", str(files / "plan"), "-o", out, "--force"]) == 1
    assert "legal: agrid" in capsys.readouterr().err


def test_the_words_of_a_region_are_divided_by_hand(files, capsys):
    plan, out = str(files / "regions"), str(files / "divided")
    (files / "regions").write_text(json.dumps(make_distributor("hybrid", 2, {"granularity": 8}).plan()))
    assert main(["partition", "divide", "0", "1", "--plan", plan, "-o", out]) == 0
    assert main(["partition", "show", out, "--picture", str(files / "picture.svg")]) == 0
    assert "0 words and 50% of all others" in capsys.readouterr().out and (files / "picture.svg").stat().st_size > 500
    assert main(["partition", "split", "0", "1", "--plan", out, "-o", str(files / "split")]) == 0
    shares = [row.get("share") for row in make_distributor("hybrid", 2, plan=read_plan(str(files / "split"))).partitions()]
    assert shares == [0.25, 0.75, None]
    learn(files, "prefix", 4)
    assert main(["partition", "divide", "0", "1", "--plan", str(files / "plan"), "-o", out, "--force"]) == 1
    assert "legal: hybrid, space-partitioning, text-partitioning" in capsys.readouterr().err


def test_loads_are_adjusted_by_a_recent_sample(files, capsys):
    plan, out, sample = (
        str(files / "regions"),
        str(files / "adjusted"),
        ["--messages", str(files / "m"), "--subscriptions", str(files / "s"), "--vocabulary", str(files / "v")],
    )
    before = make_distributor("hybrid", 3, {"granularity": 8, "box": [-180, -90, 900, 90]})  # the last task has nothing to do
    (files / "regions").write_text(json.dumps(before.plan()))
    assert main(["partition", "adjust", "--plan", plan, *sample, "-o", out, "--selection", "programme"]) == 0
    assert "of the sample moved, in" in capsys.readouterr().err
    after = make_distributor("hybrid", 3, plan=read_plan(out))
    assert after.loads().max() < 0.9 * after.loads().sum() and after.plan() != before.plan()
    learn(files, "prefix", 4)
    assert main(["partition", "adjust", "--plan", str(files / "plan"), *sample, "-o", out, "--force"]) == 1
    assert "legal: hybrid" in capsys.readouterr().err


@pytest.mark.long
def test_what_a_machine_takes_is_calibrated(capsys, monkeypatch):
    monkeypatch.setattr(partition, "calibrate", lambda index, seed: calibration.calibrate(index, (300, 600), seed))
    assert main(["partition", "calibrate", "-o", "json"]) == 0
    costs = json.loads(capsys.readouterr().out)
    assert LoadModel.checked("hybrid", costs) == LoadModel(**costs) and costs["insert_us"] > 0
    assert costs["pair_us"] + costs["check_us"] + costs["message_us"] > 0, "on a busy machine the line through two measurements may begin at 0"
    assert main(["partition", "calibrate", "--index", "gi2"]) == 0
    assert "--option 'costs={" in capsys.readouterr().out


def test_constants_are_those_of_the_line_through_the_measurements():
    points = [calibration.Point(n, n / 100, 2.0 + 0.5 * n / 100, 4.0, 1.0) for n in (100, 200, 400)]
    assert calibration.fitted(points) == pytest.approx(LoadModel(0.005, 0.5, 2.0, 4.0, 1.0), rel=0.01)
    falling = [calibration.Point(n, n / 100, 5.0 - n / 100, 4.0, 1.0) for n in (100, 200)]
    assert calibration.fitted(falling)[:3] == (0.0, 0.0, 4.0), "a slope is no less than 0"


def test_what_needs_a_topology_says_so(capsys, monkeypatch):
    monkeypatch.delenv("DSKYPE_BOOTSTRAP_SERVERS", raising=False)
    for arguments in (["watch"], ["show"], ["split", "0", "1", "--publish"]):
        assert main(["partition", *arguments]) == 1
        assert "No cluster is named" in capsys.readouterr().err


class FakeClient:
    """A running topology whose topic of plans is a list of (key, value)."""

    name = "t"
    topics = type("Topics", (), {"plans": "t.plans"})
    tasks = 3

    def __init__(self, plan):
        self.settings = Settings.from_conf({"dskype.distributor": plan["distributor"]})
        self.records = [(b"plan", b"{")]
        self.add(3, plan)
        self.add(2, {})

    def add(self, version, plan, key=b"balance"):
        self.records.append((key, json.dumps({"v": 1, "version": version, "plan": plan}).encode()))

    def running_conf(self):
        return {}

    def running(self):
        bolt = {"kind": "bolt", "executors": [[1, self.tasks, 6700]], "inputs": [], "streams": []}
        return {"plan": {"subscription-bolt": bolt}} if self.tasks else {}

    def scan(self, topic):
        assert topic == "t.plans"
        return [SimpleNamespace(key=key, value=value) for key, value in self.records]

    def send_plan(self, value):
        self.records.append((b"plan", value))

    def flush(self):
        pass


def sent(plan):
    return json.loads(json.dumps(plan))


def test_the_newest_version_is_in_force_and_the_next_one_follows_it():
    found = make_distributor("prefix", 3)
    client = FakeClient(found.plan())
    assert read_current(client) == (3, sent(found.plan()))
    assert send_plan(client, 3, found.split(0, 1)) == 4
    assert read_current(client) == (4, sent(found.split(0, 1)))


def test_records_that_the_topology_refuses_are_no_plans():
    found = make_distributor("prefix", 3)
    client = FakeClient(found.plan())
    client.records += [(b"plan", value) for value in (None, b"{", b"[" * 100_000, b'{"v": 1, "version": 9}')]
    client.records += [(b"plan", b'{"v": 1, "version": %b, "plan": {}}' % version) for version in (b"1e999", b"9.0", b'"9"', b"true", b"1" + b"0" * 400)]
    assert read_current(client) == (3, sent(found.plan()))
    assert send_plan(client, 3, found.split(0, 1)) == 4


@pytest.mark.parametrize(
    "refused",
    [{}, make_distributor("prefix", 4).plan(), make_distributor("keyword", 3).plan(), {**make_distributor("prefix", 3).plan(), "takeover": 2}],
    ids=["empty", "tasks", "distributor", "takeover"],
)
def test_a_plan_that_the_topology_refuses_is_not_in_force_and_its_number_is_not_used_again(refused, monkeypatch, tmp_path, capsys):
    found = make_distributor("prefix", 3)
    client = FakeClient(found.plan())
    client.add(4, refused)
    assert read_current(client) == (3, sent(found.plan())) == plan_in_force(client)
    monkeypatch.setattr(partition, "open_client", lambda args: nullcontext(client))
    assert main(["partition", "show"]) == 0 and "version 3;" in capsys.readouterr().out
    assert main(["partition", "split", "0", "1", "--publish"]) == 0 and "version 5 is sent" in capsys.readouterr().err
    assert read_current(client) == (5, sent(found.split(0, 1)))
    (tmp_path / "plan").write_text(json.dumps(found.split(0, 2)))
    client.add(6, refused)
    assert main(["partition", "publish", str(tmp_path / "plan")]) == 0 and read_current(client) == (7, sent(found.split(0, 2)))


def test_a_change_of_a_plan_from_a_file_has_to_fit_the_topology(tmp_path, monkeypatch, capsys):
    client = FakeClient(make_distributor("prefix", 3).plan())
    monkeypatch.setattr(partition, "open_client", lambda args: nullcontext(client))
    (tmp_path / "plan").write_text(json.dumps(make_distributor("prefix", 4).plan()))
    for arguments in (["split", "0", "1", "--publish", "--plan"], ["publish"]):
        assert main(["partition", *arguments, str(tmp_path / "plan")]) == 1
        assert "does not fit the running topology. given: 'tasks 4'; legal: 3" in capsys.readouterr().err
    assert len(client.records) == 3


def test_behind_the_highest_version_no_plan_is_sent():
    found = make_distributor("prefix", 3)
    client = FakeClient(found.plan())
    client.add(PLAN_VERSION_MAX, found.plan())
    with pytest.raises(TopologyError, match="highest version"):
        send_plan(client, PLAN_VERSION_MAX, found.split(0, 1))


def test_the_plan_of_the_start_is_known_before_a_task_has_reported():
    client = FakeClient(make_distributor("prefix", 3).plan())
    client.records = []
    assert read_current(client) == (0, make_distributor("prefix", 3).plan())


def test_where_the_number_of_tasks_is_not_known_a_plan_may_be_for_any():
    client = FakeClient(make_distributor("prefix", 3).plan())
    client.tasks = None
    client.add(4, make_distributor("prefix", 5).plan())
    assert read_current(client)[0] == 4


def test_a_plan_that_another_one_overtakes_is_refused(monkeypatch):
    found = make_distributor("prefix", 3)
    client = FakeClient(found.plan())
    first, second = found.split(0, 1), found.split(0, 2)
    client.add(4, first)  # of load balancing, for example
    had = list(client.records)
    with pytest.raises(PlanOvertakenError, match="not sent.*another one came first.*a change of version 3.*a change of version 4.*partition show"):
        send_plan(client, 3, second)
    assert client.records == had and read_current(client) == (4, sent(first))
    assert send_plan(client, 4, second) == 5
    assert read_current(client) == (5, sent(second))


@pytest.mark.parametrize(("key", "again"), [(b"balance", 0), (b"plan", 1)])
def test_of_two_plans_that_are_sent_at_once_the_first_one_counts_and_survives_compaction(monkeypatch, key, again):
    found = make_distributor("prefix", 3)
    client = FakeClient(found.plan())
    first, second, write = found.split(0, 1), found.split(0, 2), client.send_plan

    def overtaken(value):
        client.add(4, first, key)
        monkeypatch.setattr(client, "send_plan", write)
        write(value)

    monkeypatch.setattr(client, "send_plan", overtaken, raising=False)
    had = len(client.records)
    with pytest.raises(PlanOvertakenError, match="ignored.*another one came first.*given: 4.*partition show"):
        send_plan(client, 3, second)
    assert read_current(client) == (4, sent(first)) and len(client.records) == had + 2 + again
    last = {key: number for number, (key, _) in enumerate(client.records)}
    client.records = [client.records[number] for number in sorted(last.values())]  # compacted
    assert read_current(client) == (4, sent(first))


def test_a_plan_takes_over_and_is_finished_by_hand(tmp_path, monkeypatch, capsys):
    found = make_distributor("prefix", 3)
    client = FakeClient(found.plan())
    monkeypatch.setattr(partition, "open_client", lambda args: nullcontext(client))
    file = tmp_path / "plan"
    file.write_text(json.dumps(found.split(0, 1)))
    assert main(["partition", "publish", str(file), "--takeover", "0.25"]) == 0
    assert json.loads(client.records[-1][1])["plan"]["takeover"] == 0.25
    assert read_current(client) == (4, json.loads(json.dumps(found.split(0, 1)))), "changes by hand that follow are no takeovers"
    assert main(["partition", "finish"]) == 0
    assert json.loads(client.records[-1][1]) == {"v": 1, "version": 5, "plan": json.loads(json.dumps(found.split(0, 1)))}
    assert main(["partition", "publish", str(file), "--takeover", "2"]) == main(["partition", "publish", str(file), "--takeover", "soon"]) == 2
    assert capsys.readouterr().err.count("expected a share from 0 to 1, given: ") == 2


def test_a_change_that_cannot_be_written_is_not_published(tmp_path, monkeypatch, capsys):
    client = FakeClient(make_distributor("prefix", 3).plan())
    monkeypatch.setattr(partition, "open_client", lambda args: nullcontext(client))
    there = tmp_path / "plan"
    there.touch()
    assert main(["partition", "split", "0", "1", "-o", str(there), "--publish"]) == 1
    assert "exists already" in capsys.readouterr().err and len(client.records) == 3


@pytest.mark.long
def test_a_plan_that_no_record_holds_is_refused():
    ranges = [{"from": i, "node": {"tasks": [i % 2], "load": 1.0, "marks": {}}} for i in range(20_000)]
    plan = {**make_distributor("prefix", 2).plan(), "root": {"ranges": ranges}}
    client = FakeClient(plan)
    with pytest.raises(TopologyError, match="too large for a record.*20,000 partitions.*legal: up to 1,000,000 bytes"):
        send_plan(client, 3, plan)
    assert len(client.records) == 3


# -- the monitor ----------------------------------------------------------------------------------


def part(number, tasks, load=1.0):
    return {"number": number, "tasks": tasks, "load": load}


@pytest.mark.parametrize(
    ("loads", "partitions", "given", "halved"),
    [
        ([9, 1], [part(0, [0]), part(1, [1])], {}, {0: 1}),  # one partition: half of it
        ([9, 1], [part(0, [0], 5), part(1, [0], 4), part(2, [1])], {1: [1]}, {}),  # two: that which has the right size
        ([9, 1], [part(0, [0], 8.9), part(1, [0], 0.1), part(2, [1])], {}, {0: 1}),  # none has: half of the larger
        ([9, 1], [part(0, [0], 3), part(1, [0], 3), part(2, [0], 2), part(3, [0], 1)], {0: [1], 3: [1]}, {}),  # several together have it
        ([9, 1, 2], [part(0, [0], 3), part(1, [0], 4), part(2, [0], 2)], {0: [1], 2: [2]}, {}),  # to several tasks
        ([9, 8, 1, 2], [part(0, [0], 5), part(1, [0], 4), part(2, [1], 5), part(3, [1], 3)], {1: [2], 3: [3]}, {}),  # from several tasks
        ([9, 2, 1], [part(0, [0, 2]), part(1, [1])], {}, {0: 1, 1: 2}),  # shared with the idlest: the next one, which gives as well
        ([9, 5, 1], [part(0, [0, 1], 8), part(1, [0], 5)], {0: [2, 1]}, {}),
    ],
)  # shared: another one in its place
def test_decisions_take_from_the_busiest_for_the_idlest(loads, partitions, given, halved):
    assert decide(np.array(loads, float), partitions) == Change(given, halved)


@pytest.mark.parametrize(
    ("loads", "partitions"),
    [([9, 1], [part(0, [0, 1])]), ([9, 1], [part(1, [1])]), ([2, 2], [part(0, [0]), part(1, [1])]), ([0, 0], [part(0, [0])]), ([3], [part(0, [0])])],
)
def test_nothing_is_decided_where_nothing_helps(loads, partitions):
    assert decide(np.array(loads, float), partitions) is None


def test_changes_begin_above_the_band_and_end_below_it():
    band = Band(1.5, 1.2, 2)
    assert [band.due(x) for x in (1.6, 1.4, 1.6, 1.6)] == [False, False, False, True]  # twice in a row
    assert [band.due(x) for x in (2.0, 2.0, 1.3, 1.0, 1.0, 1.1)] == [False, False, True, False, False, False]  # a rest after each; on until below low
    assert [band.due(x) for x in (1.3, 1.45, 1.3, 1.3)] == [False] * 4  # inside the band nothing begins
    with pytest.raises(IllegalArgumentException, match="1 <= low <= high"):
        Band(1.2, 1.5)


def test_changes_in_vain_end_until_it_is_worse():
    band = Band(1.5, 1.2, 1, futile=2)
    rest = False
    assert [band.due(x) for x in (2.0, rest, 1.8, rest, 1.9, rest, 1.8, rest, 1.85)] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
        False,
        False,
    ]  # no better than 1.8
    assert [band.due(x) for x in (1.9, 1.95, 1.99, rest, 1.1, 1.6)] == [False, False, True, False, False, True]  # by a tenth worse than it was: again


@pytest.mark.long
@pytest.mark.parametrize("name", ["keyword", "keyword-first", "location", "prefix", "spatial-first"])
def test_the_monitor_balances_what_has_moved(name):
    before, after = (worlds.sample(np.random.default_rng([seed, 3]), 1500, 1200) for seed in (1, 2))  # other clusters, other frequent words
    after = after._replace(terms=(after.terms * 7) % 300, messages=after.messages._replace(terms=(after.messages.terms * 7) % 300))
    after = sorted_terms(after)
    state = {"version": 0, "plan": distributor_class(name).learn(8, before), "busy": np.zeros(8)}

    def busy():
        found = measure(make_distributor(name, 8, plan=state["plan"]), after)
        state["busy"] = state["busy"] + 1e4 * found.subscriptions * found.messages
        return {10 + t: int(ns) for t, ns in enumerate(state["busy"])}

    def send(version, plan):
        assert version == state["version"]
        state.update(version=version + 1, plan=json.loads(json.dumps(plan)))
        return state["version"]

    told = []
    changes = watch(
        busy,
        range(10, 18),
        lambda: (state["version"], state["plan"]),
        send,
        Band(1.5, 1.2, 1),
        interval_s=1,
        count=60,
        sleep=lambda s: None,
        report=told.append,
    )
    balances = [float(line.rpartition(" ")[2]) for line in told if line.startswith("busy")]
    assert changes == state["version"] < 20 and balances[-1] <= 1.5 < balances[0], balances


def test_the_monitor_decides_again_when_another_plan_came_first():
    plan = make_distributor("prefix", 2).plan()
    busy = iter([{1: 0, 2: 0}, {1: 9, 2: 1}, {1: 18, 2: 2}, {1: 27, 2: 3}])
    told, sent = [], []

    def send(version, plan):
        sent.append(version)
        if len(sent) == 1:
            raise PlanOvertakenError("another one came first")
        return version + 1

    band = Band(1.5, 1.2, 1)
    band.due = lambda measured: True
    assert watch(lambda: next(busy), [1, 2], lambda: (len(sent), plan), send, band, interval_s=1, count=3, sleep=lambda s: None, report=told.append) == 2
    assert sent == [0, 1, 2] and "another one came first" in told


def sorted_terms(sample):
    """Return a sample whose terms rise again, each once, with weights of unit norm."""

    def again(offsets, terms):
        rows = [np.unique(terms[a:b]) for a, b in itertools.pairwise(offsets)]
        return np.cumsum([0, *map(len, rows)]), np.concatenate(rows), np.concatenate([np.full(len(r), len(r) ** -0.5) for r in rows if len(r)])

    own, others = again(sample.offsets, sample.terms), again(sample.messages.offsets, sample.messages.terms)
    messages = sample.messages._replace(offsets=others[0], terms=others[1], weights=others[2])
    return sample._replace(messages=messages, offsets=own[0], terms=own[1], weights=own[2])


def test_a_dry_run_changes_nothing():
    plan = make_distributor("prefix", 2).plan()
    busy = iter([{1: 0, 2: 0}, {1: 9, 2: 1}, {1: 18, 2: 2}])
    told = []
    assert watch(lambda: next(busy), [1, 2], lambda: (0, plan), None, Band(1.5, 1.2, 1), interval_s=1, count=2, sleep=lambda s: None, report=told.append) == 1
    assert any("(not sent)" in line for line in told)


def test_no_change_overtakes_the_one_before():
    plan, busy, told, sent = make_distributor("prefix", 2).plan(), iter([{1: 9 * i, 2: i} for i in range(9)]), [], []
    watch(
        lambda: next(busy),
        [1, 2],
        lambda: (3, plan),
        lambda *p: sent.append(p),
        Band(1.5, 1.2, 1),
        interval_s=1,
        count=5,
        in_force=iter([2, 2, 3]).__next__,
        sleep=lambda s: None,
        report=told.append,
    )
    assert [line for line in told if "in force" in line] == ["version 3 is not in force yet"] * 2 and [version for version, _ in sent] == [3]


def test_idle_tasks_are_left_alone():
    plan, busy, sent = make_distributor("prefix", 2).plan(), iter([{1: 9e7 * i, 2: i} for i in range(9)]), []
    assert (
        watch(
            lambda: next(busy),
            [1, 2],
            lambda: (0, plan),
            lambda *p: sent.append(p),
            Band(1.5, 1.2, 1),
            interval_s=1,
            count=5,
            least=0.1,
            sleep=lambda s: None,
            report=lambda line: None,
        )
        == 0
        and not sent
    )


def test_areas_are_drawn_at_their_centres(tmp_path):
    from dskype.deploy.client.plan_picture import places_of

    lines = [{"lat": 1, "lon": 2}, {"bbox": [170, -10, -160, 10]}, {"text": "no place"}, {"bbox": [1, 2]}]
    (tmp_path / "m").write_text("".join(json.dumps(line) + "\n" for line in lines))
    lat, lon = places_of(str(tmp_path / "m"), Settings())
    assert (lat.tolist(), lon.tolist()) == ([1, 0], [2, -175])
