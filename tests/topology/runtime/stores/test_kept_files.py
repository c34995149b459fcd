"""Files that tasks read are copied when a topology starts; changed files are refused when it is resumed."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dskype.topology import BasicBolt, Fields, Spout, TopologyBuilder
from dskype.topology.errors import TopologyError
from dskype.topology.nimbus.manager import TopologyManager
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.nimbus import nimbus_topic
from dskype.topology.runtime.stores.kept_files import declared_files, keep_files


class Words(Spout):
    def next_tuple(self):
        pass

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("word"))


class Reader(BasicBolt):
    """Reads a file that a key names, and those that a map below another key names."""

    def execute(self, tup, collector):
        pass

    def files(self, conf):
        return {("words.file",): conf["words.file"], **{("more", "files", name): path for name, path in conf.get("more", {}).get("files", {}).items()}}


def topology_of(own=None):
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    for name in ("one", "two"):
        builder.set_bolt(name, Reader()).shuffle_grouping("words")
    if own:
        builder.set_bolt("three", Reader()).shuffle_grouping("words").add_configurations(own)
    return builder.create_topology()


def plan_of(conf, own=None):
    return TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **conf}, topology_of(own))


@pytest.fixture
def words(tmp_path):
    file = tmp_path / "words.tsv"
    file.write_text("lake 1\n")
    return file


def read(plan, component, *keys):
    found = plan.component_conf(component)
    for key in keys:
        found = found[key]
    return Path(found).read_text()


def test_every_component_reads_a_copy_from_the_first_start_on(tmp_path, words):
    other = tmp_path / "other"
    other.write_text("st 2\n")
    plan = plan_of({"words.file": str(words), "more": {"n": 1, "files": {"a": str(other)}}}, own={"words.file": str(other)})
    kept = keep_files(plan, tmp_path / "folder", False)
    words.unlink()
    other.write_text("changed")
    assert [read(kept, c, "words.file") for c in ("one", "two", "three")] == ["lake 1\n", "lake 1\n", "st 2\n"]
    assert read(kept, "one", "more", "files", "a") == "st 2\n" and kept.component_conf("one")["more"]["n"] == 1
    assert plan.conf["words.file"] == str(words)
    digest = hashlib.sha256(b"lake 1\n").hexdigest()
    assert Path(kept.conf["words.file"]) == tmp_path / "folder" / "files" / f"{digest[:16]}-words.tsv"
    assert kept.rebalanced(workers=2).component_conf("three") == {**kept.component_conf("three"), "topology.workers": 2}


def test_a_topology_without_files_gets_no_folder(tmp_path):
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    plan = TopologyPlan.build("t", "t-1-0", {}, builder.create_topology())
    assert keep_files(plan, tmp_path, False) is plan and keep_files(plan, tmp_path, True) is plan and not list(tmp_path.iterdir())


def test_a_resume_uses_the_copies_though_the_files_are_gone(tmp_path, words):
    keep_files(plan_of({"words.file": str(words)}), tmp_path, False)
    words.unlink()
    assert read(keep_files(plan_of({"words.file": str(words)}), tmp_path, True), "one", "words.file") == "lake 1\n"
    moved = tmp_path / "moved"
    moved.write_text("lake 1\n")
    assert read(keep_files(plan_of({"words.file": str(moved)}), tmp_path, True), "one", "words.file") == "lake 1\n"


def test_a_resume_with_a_rewritten_file_is_refused_with_both_digests_and_what_may_be_done(tmp_path, words):
    keep_files(plan_of({"words.file": str(words)}), tmp_path, False)
    words.write_text("st 1\n")
    with pytest.raises(TopologyError) as refused:
        keep_files(plan_of({"words.file": str(words)}), tmp_path, True)
    expected, given = (hashlib.sha256(text).hexdigest() for text in (b"lake 1\n", b"st 1\n"))
    for part in (
        expected,
        f"given: '{given}'",
        str(words),
        "words.file",
        "'t'",
        "--fresh",
        "docs/guides/data.md",
        f"cp {tmp_path}/files/{expected[:16]}-words.tsv {words}",
    ):
        assert part in str(refused.value)
    assert read(keep_files(plan_of({"words.file": str(words)}), tmp_path, False), "one", "words.file") == "st 1\n", "a fresh start takes it"
    assert [p.name for p in (tmp_path / "files").glob("*.tsv")] == [f"{given[:16]}-words.tsv"], "and leaves nothing of the old one"


@pytest.mark.parametrize(("then", "given"), [({"more": {"files": {"a": "x"}}}, "given: 'x'"), ({}, "given: None")])
def test_a_resume_with_more_or_fewer_files_is_refused(tmp_path, words, then, given):
    first = {} if then else {"more": {"files": {"a": str(words)}}}
    keep_files(plan_of({"words.file": str(words), **first}), tmp_path, False)
    with pytest.raises(TopologyError, match="other files.*more / files / a") as refused:
        keep_files(plan_of({"words.file": str(words), **then}), tmp_path, True)
    assert given in str(refused.value)


def test_a_damaged_copy_is_made_again_from_the_same_file_or_refused(tmp_path, words):
    plan = plan_of({"words.file": str(words)})
    copy = Path(keep_files(plan, tmp_path, False).conf["words.file"])
    for damage in (copy.unlink, lambda: copy.write_text("x")):
        damage()
        assert read(keep_files(plan, tmp_path, True), "one", "words.file") == "lake 1\n"
    copy.unlink()
    words.unlink()
    with pytest.raises(TopologyError, match="damaged or gone.*--fresh"):
        keep_files(plan, tmp_path, True)
    (tmp_path / "files" / "index.json").write_text('{"v": 1, "fi')
    with pytest.raises(TopologyError, match="index.json is damaged; expected the index of the files.*--fresh"):
        keep_files(plan, tmp_path, True)


def test_a_first_start_without_the_file_is_refused_and_leaves_no_index(tmp_path, words):
    words.unlink()
    with pytest.raises(TopologyError, match=r"words.file.*cannot be read.*given: .*words.tsv.*component: 'one'"):
        keep_files(plan_of({"words.file": str(words)}), tmp_path, False)
    assert not list((tmp_path / "files").iterdir())


def test_a_start_that_was_broken_off_leaves_nothing_that_a_resume_would_trust(tmp_path, words, monkeypatch):
    monkeypatch.setattr(
        "dskype.topology.runtime.stores.kept_files.write_json", lambda path, document: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space"):
        keep_files(plan_of({"words.file": str(words)}), tmp_path, False)
    monkeypatch.undo()
    words.write_text("st 1\n")
    kept = keep_files(plan_of({"words.file": str(words)}), tmp_path, False)
    assert read(kept, "one", "words.file") == "st 1\n" and len(json.loads((tmp_path / "files" / "index.json").read_text())["files"]) == 2


def test_files_are_told_by_component_and_key(words):
    assert declared_files(plan_of({"words.file": str(words)})) == {("one", ("words.file",)): str(words), ("two", ("words.file",)): str(words)}


class Backend:
    """A backend that raises when it is opened."""

    stats = None

    def __init__(self, plan):
        self.plan, self.removed = plan, None

    def activate(self):
        raise TopologyError("the file has changed")

    def close(self, *, remove):
        self.removed = remove


def test_a_resume_that_is_refused_removes_nothing(words):
    topology = topology_of()
    made, changes = [], []
    first = TopologyManager(lambda plan: made.append(Backend(plan)) or made[-1], lambda: 0, on_change=lambda managed, removed=False: changes.append(removed))
    with pytest.raises(TopologyError):
        first.submit("t", {"words.file": str(words)}, topology)
    assert made[-1].removed and changes == [False, True]
    state = first.nimbus.submit("t", {"words.file": str(words)}, topology.components, 0)[0]
    again = TopologyManager(
        lambda plan: made.append(Backend(plan)) or made[-1], lambda: 0, on_change=lambda managed, removed=False: changes.append(removed), resumed=[state]
    )
    for _ in range(2):
        with pytest.raises(TopologyError, match="has changed"):
            again.submit("t", {"words.file": str(words)}, topology)
        assert made[-1].removed is False and made[-1].plan.topology_id == state.id
    assert changes == [False, True], "what is stored of it stays as it was"


def test_a_topology_that_is_resumed_is_up_since_its_present_start(words):
    class Runs(Backend):
        warnings = ()

        def activate(self):
            pass

        def health(self):
            return {"state": "running", "why": [], "restarts": 0}

    topology, now = topology_of(), [1_000_000]
    state = TopologyManager(Runs, lambda: now[0]).submit("t", {"words.file": str(words)}, topology).state
    now[0] += 600_000
    again = TopologyManager(Runs, lambda: now[0], resumed=[state])
    again.submit("t", {"words.file": str(words)}, topology)
    now[0] += 7_000
    summary = again.summary("t")
    assert (summary["uptime_secs"], summary["started_ms"], summary["submitted_ms"]) == (7, 1_600_000, 1_000_000)


def test_who_looks_from_outside_sees_the_copies_where_they_can_be_read(tmp_path, words):
    conf = {"words.file": str(words), "more": {"files": {"a": str(words)}}}
    kept = keep_files(plan_of(conf, own={"words.file": str(words)}), tmp_path, False)
    record = {"state": {"conf": conf}, "files": json.loads(json.dumps(nimbus_topic._files(SimpleNamespace(plan=kept))))}
    copy = kept.conf["words.file"]
    assert nimbus_topic.conf_of(record) == {"words.file": copy, "more": {"files": {"a": copy}}}
    assert nimbus_topic.conf_of({"state": {"conf": conf}}) == conf, "of a topology of an earlier version"
    for odd in (3, [3], [["words.file", 3]], [[["no", "such"], copy]], [[[], copy]], [[["words.file", "x"], copy]]):
        assert nimbus_topic.conf_of({**record, "files": odd}) == conf
    Path(copy).unlink()
    assert nimbus_topic.conf_of(record) == conf
