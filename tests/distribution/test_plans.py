"""Plans: what is learned, and how it is changed."""

import itertools
import json

import numpy as np
import pytest

from dskype.deploy.demo import places
from dskype.distribution import distributor_class, make_distributor
from dskype.distribution.learning.cuts import Cost, Postings, learn_ranges, learn_tree
from dskype.distribution.learning.sampling import make_sample
from dskype.distribution.methods.partitioned import measure
from dskype.distribution.plans import leaves
from dskype.distribution.trials import try_out
from dskype.spouts.records import Message, parse_message, parse_subscription
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import TopkSubscription
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException
from tests.distribution import worlds
from tests.distribution.test_distributors import PARTITIONED, assert_exact, questions, world

every_partitioned = pytest.mark.parametrize("name", PARTITIONED)


@pytest.fixture(scope="module")
def real():
    """Two samples of the world's places: one to learn from, one to measure on; and as many messages again."""
    found = places.load()
    rng = np.random.default_rng(1)
    tokenizer, settings = Tokenizer(), Settings(extent=8000)
    rows = rng.permutation(len(found))[:32_000]
    texts, lat, lon = found.texts.take(rows).to_pylist(), found.lat[rows].tolist(), found.lon[rows].tolist()
    vocabulary = Vocabulary.build(texts, tokenizer)
    samples = []
    for part in range(2):
        own = range(8000 * part, 8000 * part + 8000)
        subscriptions = []
        for i in rng.choice(own, 5000).tolist():
            words = list(dict.fromkeys(tokenizer.tokens(texts[i]))) or ["a"]
            keywords = rng.choice(words, min(len(words), int(rng.integers(1, 6))), replace=False).tolist()
            k, alpha = int(rng.integers(1, 6)), float(rng.random())
            subscriptions.append(TopkSubscription(f"s{i}", keywords, alpha, lat[i], lon[i], k=k))
        samples.append(make_sample([Message(None, texts[i], lat[i], lon[i], None) for i in own], subscriptions, vocabulary, settings))
    return samples


@pytest.fixture(scope="module")
def asked(real):
    return questions(np.random.default_rng(2), real[1], real[0].messages.slice(0, 400), 25)


@pytest.mark.long
@every_partitioned
def test_what_matters_reaches_its_task_on_real_places(name, real, asked):
    found = make_distributor(name, 32, plan=distributor_class(name).learn(32, real[0]))
    assert_exact(found, asked)


@pytest.mark.long
@every_partitioned
@pytest.mark.parametrize("tasks", [5, 32])
def test_loads_are_balanced_after_learning(name, tasks, real):
    sample, other = real
    found = make_distributor(name, tasks, plan=distributor_class(name).learn(tasks, sample))
    learned = measure(found, sample)
    assert np.allclose(found.loads(), learned.loads)
    assert learned.balance <= 1.25 and measure(found, other).balance <= (1.25 if tasks == 5 else 1.5)  # 250 messages and 160 subscriptions each vary
    if name in ("keyword", "prefix"):
        assert learned.communication <= 0.3 * tasks or tasks < 32


@pytest.mark.parametrize("name", ["keyword", "prefix"])
def test_plans_may_balance_work(name, real):
    plans = [distributor_class(name).learn(32, real[0], {"method": "balanced", "cost": cost}) for cost in ("work", "product")]
    work, product = (make_distributor(name, 32, {"cost": "work"}, plan) for plan in plans)
    learned = measure(work, real[0])
    assert np.allclose(work.loads(), learned.loads) and learned.balance <= 1.25 < measure(product, real[0]).balance
    assert make_distributor(name, 32, {"cost": "work"}, work.split(0, 5, real[0])).partitions()[1]["tasks"] == [5]


@pytest.mark.long
@pytest.mark.parametrize("name", ["keyword", "prefix"])
def test_words_that_occur_together_are_together_and_both_loads_balanced(name, real):
    sample, other = real
    ranges, words = (make_distributor(name, 32, {}, distributor_class(name).learn(32, sample, {"method": method})) for method in ("balanced", "together"))
    before, after = measure(ranges, other), measure(words, other)
    assert after.replication < before.replication - 0.05 and after.communication < before.communication
    assert all(measure(make_distributor(name, 32, {"cost": cost}, words.plan()), sample).balance <= 1.25 for cost in ("product", "work"))
    assert len(json.dumps(words.plan())) < 400_000


def test_words_of_groups_that_never_meet_are_on_one_task_each():
    rng = np.random.default_rng(6)
    sample = worlds.sample(rng, 900, 800, vocabulary=160, unknown=0)
    group, nth = rng.integers(0, 4, 160), np.arange(160)
    assert (group != nth * 4 // 160).any()  # groups are no ranges

    def within(offsets, terms):
        """Return documents whose words are all of the group of their first one."""
        rows = [np.unique(terms[a:b]) for a, b in itertools.pairwise(offsets)]
        rows = [row[group[row] == group[row[0]]] if len(row) else row for row in rows]
        return np.cumsum([0, *map(len, rows)]), np.concatenate(rows), np.concatenate([np.full(len(row), max(1, len(row)) ** -0.5) for row in rows])

    own, others = within(sample.offsets, sample.terms), within(sample.messages.offsets, sample.messages.terms)
    sample = sample._replace(
        offsets=own[0],
        terms=own[1],
        weights=own[2],
        thresholds=np.full(sample.n, -np.inf),
        filled=np.ones(sample.n),
        messages=sample.messages._replace(offsets=others[0], terms=others[1], weights=others[2]),
    )
    found, ranges = (
        measure(make_distributor("keyword", 4, {}, distributor_class("keyword").learn(4, sample, {"method": method})), sample)
        for method in ("together", "balanced")
    )
    assert found.replication - 1 < 0.5 * (ranges.replication - 1) and found.communication < ranges.communication


@pytest.mark.long
def test_ranges_have_the_least_cap():
    rng = np.random.default_rng(3)
    for _ in range(30):
        vocabulary, tasks = int(rng.integers(3, 12)), int(rng.integers(2, 5))
        documents = [[np.flatnonzero(rng.random(vocabulary) < 0.3) for _ in range(30)] for _ in range(2)]
        s, m = (Postings.from_documents(np.cumsum([0, *map(len, rows)]), np.concatenate(rows), vocabulary) for rows in documents)

        def cost(begin, end):
            return np.prod([sum(bool(((row >= begin) & (row < end)).any()) for row in rows) for rows in documents]) / 30

        def best(begin, left):
            return (
                min((max(cost(begin, end), best(end, left - 1)) for end in range(begin + 1, vocabulary + 1)), default=0.0)
                if left > 1
                else cost(begin, vocabulary)
            )

        parts = [(part.terms, part.node) for part in leaves(learn_ranges(Cost(s, m, -1.0), range(tasks), shared=False))]
        found = [cost(begin, vocabulary if end is None else end) for (begin, end), _ in parts]
        assert found == [node["load"] for _, node in parts]
        assert max(found) <= best(0, tasks) * 1.002


def test_a_word_that_is_too_much_for_one_task_is_shared():
    words = [np.array([i % 50, 99]) if i % 2 else np.array([i % 50]) for i in range(1000)]
    posted = Postings.from_documents(np.cumsum([0, *map(len, words)]), np.concatenate(words), 100)
    shared, alone = (list(leaves(learn_ranges(Cost(posted, posted, -1.0), range(8), shared=shared))) for shared in (True, False))
    assert len(shared[-1].node["tasks"]) > 1 and shared[-1].terms[0] > 49 and all(len(part.node["tasks"]) == 1 for part in alone)
    greatest = [max(part.node["load"] / len(part.node["tasks"]) for part in parts) for parts in (shared, alone)]
    assert greatest[0] < 0.6 * greatest[1]


def test_places_that_are_all_the_same_are_shared():
    same = np.full(100, 7.0)
    assert next(iter(leaves(learn_tree(same, same, same, same, range(3))))).node["tasks"] == [0, 1, 2]


@every_partitioned
def test_a_sample_of_nothing_gives_the_plan_without_one(name):
    nothing = worlds.sample(np.random.default_rng(1), 0, 0)
    assert distributor_class(name).learn(4, nothing)["root"] == make_distributor(name, 4).plan()["root"]


# -- changes --------------------------------------------------------------------------------------


@every_partitioned
@pytest.mark.parametrize("learned", [False, True], ids=["uniform", "learned"])
def test_splits_and_merges_keep_everything_exact(name, learned):
    rng, sample = np.random.default_rng([4, learned]), world(0)
    found = make_distributor(name, 6, plan=distributor_class(name).learn(6, sample) if learned else None)
    before = found.loads().sum()
    for step in range(24):
        parts = found.partitions()
        one, other = rng.integers(0, len(parts), 2).tolist()
        free = [t for t in range(6) if t not in parts[one]["tasks"]]
        if rng.random() < 0.6 and free:
            task = int(rng.choice(free))
            plan = found.split(one, task, sample if step % 3 == 0 else None)
            assert task in make_distributor(name, 6, plan=plan).message_tasks(sample.messages).tasks if name != "location" else True
        elif parts[one]["tasks"] != parts[other]["tasks"]:
            plan = found.merge(one, other)
        else:
            continue
        found = make_distributor(name, 6, plan=json.loads(json.dumps(plan)))
        if step % 6 == 0:
            assert_exact(found, questions(rng, sample, worlds.messages(rng, 80, first=400), 5))
    assert_exact(found, questions(rng, sample, worlds.messages(rng, 120, first=400), 12))
    assert found.loads().sum() > 0 and before > 0


@every_partitioned
def test_a_split_gives_half_to_the_other_task(name):
    sample = world(0)
    found = make_distributor(name, 4, plan=distributor_class(name).learn(4, sample, {"method": "balanced"}))  # a partition for each task
    partition = next(p for p in found.partitions() if p["tasks"] == [1])["number"]
    for given in (None, sample):
        split = make_distributor(name, 4, plan=found.split(partition, 2, given))
        before, after = (measure(d, sample).loads for d in (found, split))
        assert after[1] < 0.85 * before[1] and after[2] > before[2]


@every_partitioned
def test_merging_what_was_split_gives_the_plan_back(name):
    found = make_distributor(name, 4, plan=distributor_class(name).learn(4, world(0)))
    number = next(p for p in found.partitions() if p["tasks"] == [1])["number"]
    split = make_distributor(name, 4, plan=found.split(number, 2))
    parts = split.partitions()
    assert len(parts) in (len(found.partitions()), len(found.partitions()) + 1)
    if len(parts) == len(found.partitions()) + 1:
        again = make_distributor(name, 4, plan=split.merge(number, number + 1))
        assert [{k: p.get(k) for k in ("tasks", "box", "terms")} for p in again.partitions()] == [
            {k: p.get(k) for k in ("tasks", "box", "terms")} for p in found.partitions()
        ]


@every_partitioned
def test_several_changes_at_once_are_as_one_after_the_other(name):
    found = make_distributor(name, 4, plan=distributor_class(name).learn(4, world(0), {"method": "balanced"}))
    first, second, *_, last = [p for p in found.partitions() if len(p["tasks"]) == 1]
    to = [(task + 1) % 4 for task in (*first["tasks"], *second["tasks"])]
    both = make_distributor(name, 4, plan=found.rearranged({first["number"]: to[:1]}, {last["number"]: (last["tasks"][0] + 2) % 4}))
    one = make_distributor(name, 4, plan=found.split(last["number"], (last["tasks"][0] + 2) % 4))  # the last one: numbers before it stay
    other = next(p for p in one.partitions() if p["tasks"] == to[:1])
    two = make_distributor(name, 4, plan=one.merge(other["number"], first["number"]))
    assert both.partitions() == two.partitions() and np.allclose(both.loads(), two.loads())
    assert_exact(both, questions(np.random.default_rng(8), world(0), worlds.messages(np.random.default_rng(7), 80, first=400), 8))


@every_partitioned
def test_measured_loads_are_divided_among_partitions_by_a_sample(name):
    sample = world(0)
    found = make_distributor(name, 4, plan=distributor_class(name).learn(4, sample))
    for given in (None, sample):
        told = make_distributor(name, 4, plan=found.with_loads(np.array([4.0, 3.0, 2.0, 1.0]), given))
        assert np.allclose(told.loads() / told.loads().sum(), [0.4, 0.3, 0.2, 0.1]) and told.loads().sum() == pytest.approx(found.loads().sum())
        assert [p["tasks"] for p in told.partitions()] == [p["tasks"] for p in found.partitions()]
        own = sum(p["load"] for p in told.partitions() if p["tasks"] == [0])
        assert own <= told.loads()[0] * 1.001


def test_changes_that_make_no_sense_are_refused():
    found = make_distributor("prefix", 3)
    for change, text in (
        (lambda: found.split(0, 0), "does not have it.*given: 0.*legal: 1, 2"),
        (lambda: found.split(9, 1), "no such partition.*0 to 2"),
        (lambda: found.merge(1, 1), "with the same tasks cannot be merged"),
        (lambda: found.split(0, 3), "does not have it"),
        (lambda: found.merge(0, -1), "no such"),
    ):
        with pytest.raises(IllegalArgumentException, match=text):
            change()


def test_neighbours_with_the_same_task_become_one():
    found = make_distributor("prefix", 3)
    one = make_distributor("prefix", 3, plan=found.merge(0, 1))
    assert [p["tasks"] for p in one.partitions()] == [[0], [2]]
    assert [p["tasks"] for p in make_distributor("prefix", 3, plan=found.merge(0, 2)).partitions()] == [[0], [1], [0]]
    assert len(make_distributor("location", 3, plan=make_distributor("location", 3).merge(0, 1)).partitions()) == 2


def test_a_location_without_partitions_on_a_task_spares_it_the_messages():
    found = make_distributor("location", 3)
    fewer = make_distributor("location", 3, plan=found.merge(0, 1))
    routes = fewer.message_tasks(world(0).messages)
    assert found.message_tasks(world(0).messages) is None and set(routes.tasks.tolist()) == {0, 2}


# -- samples --------------------------------------------------------------------------------------


def test_thresholds_are_the_scores_of_the_kth_best():
    sample = world(0)
    for i in range(60):
        scores = sorted((s for s in worlds.scores(sample, i, sample.messages) if s is not None), reverse=True)
        k = int(sample.k[i])
        assert sample.thresholds[i] == (pytest.approx(scores[k - 1], abs=1e-12) if len(scores) >= k else -np.inf)


def test_the_topology_learns_from_files_and_takes_plans(tmp_path):
    from dskype.distribution import check_distributor, start_distributor

    messages, subscriptions, plan = tmp_path / "m", tmp_path / "s", tmp_path / "p"
    rng = np.random.default_rng(5)
    words = [f"w{i}" for i in range(30)]
    messages.write_text(
        "".join(json.dumps({"text": " ".join(rng.choice(words, 3)), "lat": float(rng.uniform(-9, 9)), "lon": 5}) + "\n" for _ in range(200)) + "no message\n"
    )
    subscriptions.write_text(
        "".join(
            json.dumps(
                {"id": f"s{i}", "type": "topk", "keywords": rng.choice(words, 2).tolist(), "lat": float(rng.uniform(-9, 9)), "lon": 5, "k": 2, "alpha": 0.4}
            )
            + "\n"
            for i in range(100)
        )
        + json.dumps({"key": "b", "value": {"type": "boolean", "bbox": [1, 1, 2, 2], "expression": "w1 OR (w2 AND w3)"}})
        + "\n"
    )
    vocabulary = Vocabulary.build([json.loads(line)["text"] for line in messages.read_text().splitlines()[:-1]], Tokenizer())
    files = {"messages": str(messages), "subscriptions": str(subscriptions)}
    conf = {"dskype.distributor": "prefix", "dskype.distributor.options": {"slack": 0.2, "sample": files}}
    settings = Settings.from_conf(conf)
    check_distributor(settings)
    found = start_distributor(settings, 4, vocabulary)
    assert found.options["slack"] == 0.2 and found.plan() == start_distributor(settings, 4, vocabulary).plan() != make_distributor("prefix", 4).plan()
    plan.write_text(json.dumps(found.plan()))
    from_file = Settings.from_conf({**conf, "dskype.distributor.options": {"plan": str(plan)}})
    check_distributor(from_file)
    assert start_distributor(from_file, 4, vocabulary).plan() == found.plan()
    changed = found.split(0, (found.partitions()[0]["tasks"][0] + 1) % 4)
    assert start_distributor(from_file, 4, vocabulary, changed).plan() == changed
    with pytest.raises(IllegalArgumentException, match="another number of tasks.*given: 4.*legal: 5"):
        start_distributor(from_file, 5, vocabulary)
    for options, text in (
        ({"plan": str(plan), "sample": files}, "a plan or a sample"),
        ({"plan": 3}, "option plan"),
        ({"plan": str(messages)}, "cannot be read"),
        ({"sample": str(messages)}, "option sample"),
        ({"sample": {"messages": "x"}}, "option sample"),
        ({"sample": {**files, "messages": "nowhere"}}, "is missing"),
        ({"plan": "nowhere"}, "cannot be read"),
    ):
        with pytest.raises(IllegalArgumentException, match=text):
            check_distributor(Settings.from_conf({**conf, "dskype.distributor.options": options}))


WORDLESS = Settings.from_conf({"dskype.attributes": {"category": "string"}, "dskype.boolean.wordless": True, "dskype.boolean.prefixes": True})


@pytest.mark.long
@pytest.mark.parametrize("written", ['category = "c{}"', "museum{:02d}*"])
@pytest.mark.parametrize("name", ["hybrid", "space-partitioning", "text-partitioning"])
def test_a_plan_balances_subscriptions_that_no_word_leads_to(name, written):
    """The load of a task: of each subscription there, the messages that lead to it. Half of the values are ten times as frequent as the others."""
    rng = np.random.default_rng(5)
    chances = np.repeat([10, 1], 20) / 220

    def sample():
        kinds = rng.choice(40, 4000, p=chances).tolist()
        records = [
            {
                "text": f"museum{kind:02d}{'abc'[i % 3]}",
                "lat": float(rng.uniform(-80, 80)),
                "lon": float(rng.uniform(-170, 170)),
                "attributes": {"category": f"c{kind}"},
            }
            for i, kind in enumerate(kinds)
        ]
        wanted = rng.integers(0, 40, 2000).tolist()
        subscriptions = [
            parse_subscription(
                b"s", json.dumps({"type": "boolean", "expression": written.format(kind)}).encode(), tokenizer=WORDLESS.analyzer(), language=WORDLESS.language
            )
            for kind in wanted
        ]
        made = make_sample([parse_message(json.dumps(record).encode()) for record in records], subscriptions, vocabulary, WORDLESS)
        return made, np.array(kinds), wanted

    vocabulary = Vocabulary.build(["other"], WORDLESS.analyzer())
    (learned, *_), (other, kinds, wanted) = sample(), sample()
    found = make_distributor(name, 4, plan=distributor_class(name).learn(4, learned))
    placed = try_out(found, other, False)
    leads = np.zeros((4, 4000), np.int64)
    np.add.at(leads, (placed.routes.tasks, placed.routes.rows), 1)
    loads = [
        sum(leads[task][kinds == wanted[i]].sum() for i in range(2000) if task in placed.tasks[placed.offsets[i] : placed.offsets[i + 1]]) for task in range(4)
    ]
    assert max(loads) <= 1.15 * np.mean(loads), loads


@pytest.mark.parametrize(
    ("name", "change"), [("agrid", ("partitions", 0, "load")), ("hybrid", ("zones", 0, "load")), ("keyword", ("root", "ranges", 1, "from"))]
)
def test_a_number_that_no_array_holds_is_refused(name, change):
    plan = at = json.loads(json.dumps(make_distributor(name, 2).plan()))
    for step in change[:-1]:
        at = at[step]
    at[change[-1]] = 10**400
    with pytest.raises(IllegalArgumentException, match="too large|damaged|not usable"):
        make_distributor(name, 2, None, plan)
