"""Compile every kernel once, into the cache folder, so that no topology has to wait for it.

A process of its own (``python -m dskype.deploy.cli.warmup``) runs a small DSkype on the simulated log, which calls the kernels: it handles points and
areas, both kinds of subscriptions, evaluations, and a snapshot that is restored. Then its output is verified. What it does not call, filters, regions and other
distributors, comes afterwards; the demo does not wait for that. Where there are two cores, another process compiles a part of the kernels in the meantime.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dskype.deploy.machine import paths
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.processes import module_command, spawn_tied
from dskype.deploy.machine.registry import TOPOLOGIES, registry

__all__ = ["are_compiled", "compile_first", "compile_kernels"]

_WORDS = ["lake", "park", "river", "hill", "old", "new"]
_PACKAGES = ("topology", "spouts", "distribution", "bolts", "deploy")
_MODULE, _FIRST, _REST = "dskype.deploy.cli.warmup", "first", "rest"
"""This module, and what it does as a program: each is a stage, with a program of its own beside it."""
_TELL_EVERY_S = 10.0
_KERNELS = {_FIRST: 275, _REST: 90}
"""About so many each stage compiles. People see it, nothing depends on it."""
_BACKLOG = 80
"""At the end, this many messages and subscriptions with new words come at once, and then as many messages: some kernels run only for many records, or when tables and logs of changes grow."""
_FIRST_BOOLEAN = 40
"""The message of the small topology that the first boolean subscription comes with."""
_REBALANCED, _UNREGISTERED, _LATE = 64, 81, 96
"""The messages of the small topology after which its tasks continue from snapshots, with which it begins to unregister subscriptions, and after which messages come in backlogs."""


def _state() -> str:
    """Return a digest of all that the compiled code depends on."""
    import llvmlite
    import numba
    import numpy
    from numba.core.codegen import get_host_cpu_features

    # Numba compiles for one kind of processor, and an image or a shared folder may meet another one.
    processor = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = get_host_cpu_features() if numba.config.CPU_FEATURES is None else numba.config.CPU_FEATURES
    compiler = f"{numba.__version__} {llvmlite.__version__} {numpy.__version__} {processor} {features}"
    digest = hashlib.blake2b(compiler.encode(), digest_size=16)
    root = Path(__file__).parents[2]
    compiling = (root / "topology" / name for name in ("kernel_cache.py", "kernel_parts.py"))
    for file in (*compiling, *sorted(file for package in _PACKAGES for file in (root / package).rglob("*_kernels.py"))):
        digest.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return digest.hexdigest()


def _stamp(stage: str) -> Path:
    """Return the file that is there when a stage's kernels of this version are compiled, for this processor, in the present cache folder."""
    return paths.export_numba_cache() / f"compiled-{stage}-{_state()}"


def are_compiled() -> bool:
    """Tell whether a topology finds all kernels of the file ``dskype.yaml`` compiled, or runs them without."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0") or all(_stamp(stage).is_file() for stage in _KERNELS)


def compile_kernels(progress: Callable[[str], None], first: bool = False) -> bool:
    """Compile all kernels unless the cache folder has them; return whether there was anything to do.

    :param progress: gets a line of text at once, and then every ten seconds.
    :param first: only those that the demo and the default topology need.
    :raises DeployError: they could not be compiled.
    """
    stages = [_FIRST] if first else [*_KERNELS]
    try:
        return sum(_compile_once(stage, progress) for stage in stages) > 0
    except OSError as error:
        raise DeployError(f"the folder of compiled kernels must be writable, given: {error}", fix="set NUMBA_CACHE_DIR to a writable folder") from error


def _compile_once(stage: str, progress: Callable[[str], None]) -> bool:
    """Compile a stage's kernels unless the cache folder has them; return whether there was anything to do."""
    stamp = _stamp(stage)
    if stamp.is_file():
        return False
    progress("compiling kernels, once; this takes minutes" if stage == _FIRST else "compiling kernels for filters, regions and other distributors, once")
    began_s = time.time()
    stamp.parent.mkdir(parents=True, exist_ok=True)
    _compile_in_a_process(stage, lambda: progress(f"compiling kernels, once: {_written_since(stamp.parent, began_s)} of about {_KERNELS[stage]}"))
    stamp.touch()
    return True


def compile_first(flux: Any, master: str | None, progress: Callable[[str], None]) -> None:
    """Compile the kernels before a topology of DSkype's components starts on this machine, so that its first messages do not wait for them.

    :param flux: the topology's file.
    :param master: Spark master; the hosts of another one compile for themselves.
    """
    own = ("dskype.bolts.", "dskype.spouts.")
    if (
        not (master or "local").startswith("local")
        or not any(type(c.obj).__module__.startswith(own) for c in flux.topology.components.values())
        or are_compiled()
    ):
        return
    try:
        compile_kernels(progress)
    except DeployError as error:
        progress(f"warning: {error}\n  the topology compiles its kernels while its first messages wait")


def _compile_in_a_process(stage: str, tell: Callable[[], None]) -> None:
    """Compile a stage's kernels elsewhere: what a compiler leaves in memory would stay in a process that runs for weeks.

    :param tell: called every ten seconds.
    :raises DeployError: it failed.
    """
    # In a session of its own, so that Ctrl-C does not reach it, and prints no traceback: it ends with this block.
    process = spawn_tied(module_command(_MODULE, stage), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        while True:
            try:
                said = process.communicate(timeout=_TELL_EVERY_S)[1]
                break
            except subprocess.TimeoutExpired:
                tell()
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        last = (said.decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
        raise DeployError(f"the kernels were expected to be compiled, given: exit code {process.returncode}, {last}", fix="'dskype doctor' checks the machine")


def _written_since(folder: Path, time_s: float) -> int:
    """Return how many kernels of the cache folder are newer than a time."""
    found = 0
    for file in folder.rglob("*.nbi"):
        with contextlib.suppress(FileNotFoundError):  # another process has just replaced it
            found += file.stat().st_mtime >= time_s
    return found


@contextlib.contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let the garbage collector run seldom: compilers make many objects, and it takes a tenth of their time."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_seldom_collected()
def _compile_stage(stage: str) -> None:
    """Compile a stage's kernels, some of them in a process beside this one."""
    own, beside = _STAGES[stage]
    other = spawn_tied(module_command(_MODULE, stage, "beside")) if (os.cpu_count() or 1) > 1 else None
    own(lambda: other and other.wait())
    if other is None or other.wait() != 0:
        beside()


@_seldom_collected()
def _compile_beside(stage: str) -> None:
    """Compile what the process beside this one leaves to it."""
    _STAGES[stage][1]()


def _beside_first() -> None:
    """Compile the kernels that every executor needs, those of windows with chunks and of vocabularies, and those of boolean subscriptions, which the small topology begins with late."""
    from dskype.topology.runtime.processes import resident

    resident.warm_up()
    _slide_a_window()
    _learn_words()
    _match_expressions()


def _run_small_topology(before_boolean: Callable[[], object] = lambda: None) -> None:
    """Run a DSkype, and verify its output.

    :param before_boolean: called before the first boolean subscription.
    :raises RuntimeError: a record is refused, or the output is wrong.
    """
    from dskype.deploy.verification import verify
    from dskype.deploy.verification.inputs import Inputs
    from dskype.spouts.settings import Settings
    from dskype.spouts.topics import Topics
    from dskype.topology.flux import load
    from dskype.topology.planning.plan import TopologyPlan
    from dskype.topology.simulated.engine import SimulatedTopology
    from dskype.topology.simulated.log import MemoryLog

    flux = load("dskype.yaml", registry=registry(), resources=[TOPOLOGIES], resource=True)
    time_ms = [1_000_000]
    log, topics = MemoryLog(lambda: time_ms[0]), Topics.for_topology("dskype")
    conf = {**flux.config, "dskype.window.messages": 12, "dskype.results.matches": "grouped", "topology.emulator.snapshot.interval.ms": 200}
    plan = TopologyPlan.build("dskype", "dskype-1-0", conf, flux.topology)
    simulation = SimulatedTopology(plan, log, lambda: time_ms[0])
    simulation.activate()
    for number in range(_LATE + 2 * _BACKLOG):
        if number == _FIRST_BOOLEAN:
            before_boolean()
        late = number >= _LATE
        words = [*(f"{_WORDS[i]}{number if late else ''}" for i in (number % 6, number * 7 % 6)), *(["lake"] if late else [])]
        place = {"lat": number % 9, "lon": number % 7}
        where = {"bbox": [number % 7, number % 9, 8, 9]} if number % 5 == 0 else place
        log.append(topics.messages, 0, None, json.dumps({"text": " ".join(words), **where}).encode())
        if number % 4 == 0 or _LATE <= number < _LATE + _BACKLOG:
            value = (
                {"type": "topk", "keywords": words, "k": 3, "alpha": 0.5, **place, **({} if number % 3 else {"distance": "metres", "scale_m": 900_000})}
                if number % 8 or number < _FIRST_BOOLEAN
                else {"type": "boolean", "bbox": [0, 0, 9, 9], "expression": f"{words[0]} OR ({words[1]} AND hill)"}
            )
            removed = _UNREGISTERED <= number < _LATE
            log.append(topics.subscriptions, 0, f"s{number - 40 if removed else number}".encode(), None if removed else json.dumps(value).encode())
        if late and (number + 1 - _LATE) % _BACKLOG:
            continue
        time_ms[0] += 100
        simulation.tick_clock()
        simulation.run_until_quiet()
        if number == _REBALANCED:
            simulation.rebalance(plan)  # every task continues from a snapshot
    for _ in range(5):  # until the lists of the last message are published
        time_ms[0] += 1_000
        simulation.tick_clock()
        simulation.run_until_quiet()
    if letters := simulation.dead_letters():
        msg = f"the warm-up has dead letters: {letters[0].headers}"
        raise RuntimeError(msg)
    report = verify(Inputs.read("dskype", log.records), Settings.from_conf(plan.conf), final=True)
    if not report.ok:
        msg = f"the warm-up is not verified: {report.as_text()}"
        raise RuntimeError(msg)


def _slide_a_window() -> None:
    """Let a window grow, turn its newest messages into chunks, answer queries and forget, which takes thousands of messages with the default capacity."""
    import numpy as np

    from dskype.bolts.window.base import QueryBatch
    from dskype.bolts.window.chunks import ChunkWindow
    from dskype.spouts.batch import MessageBatch

    n, words = 20, 80
    terms, weights = np.arange(n * words), np.full(n * words, words**-0.5)
    offsets = np.arange(0, n * words + 1, words)
    window = ChunkWindow(capacity=8)
    for start, stop in ((0, 10), (10, n)):
        first, last = offsets[start], offsets[stop]
        part = MessageBatch(np.arange(start, stop), np.arange(start, stop), np.zeros(10), np.zeros(10), offsets[:11], terms[first:last], weights[first:last])
        window.insert(part, [str(seq) for seq in range(start, stop)])
    zeros = np.zeros(2)
    queries = QueryBatch(np.full(2, n - 1), np.full(2, 3), zeros, zeros, zeros, np.array([0, 2, 4]), np.array([0, 800, 5, 1599]), np.ones(4))
    window.topk(queries, n, 360.0)
    ChunkWindow(capacity=8).restore(window.snapshot())
    window.free(9)


def _match_expressions() -> None:
    """Register boolean subscriptions with a task, match points and areas with them, and remove them, before and after a snapshot."""
    import numpy as np
    import pyarrow as pa

    from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
    from dskype.bolts.message_queue import Arrived
    from dskype.distribution.subscriptions import BooleanSubscription
    from dskype.spouts.batch import Details, MessageBatch
    from dskype.spouts.settings import Settings

    n, terms = 24, np.arange(-1, -25, -1)
    points = MessageBatch(np.arange(n), np.arange(n), np.zeros(n), np.zeros(n), np.arange(n + 1), terms, np.ones(n))
    first = BooleanSubscriptions(Settings.from_conf({"dskype.boolean.wordless": True}))
    second = BooleanSubscriptions(Settings.from_conf({"dskype.boolean.wordless": True}))
    for owner in (first, second):
        for number, (one, two) in enumerate(zip(terms[:-1].tolist(), terms[1:].tolist())):
            owner.open(f"s{number}", "", BooleanSubscription([0, 0, 9, 9], ["or", one, ["and", one, two]], None, None))
        for batch in (points, points._replace(areas=points.rectangles())):
            owner.match(Arrived(batch, pa.array([""] * n), np.zeros(n, np.int64), Details.empty(n)))
        owner.forget(0)
        second.restore(first.snapshot())


def _filter() -> None:
    """Match with filters and regions, which few topologies have at once."""
    import numpy as np
    import pyarrow as pa

    from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
    from dskype.bolts.message_queue import Arrived
    from dskype.distribution.subscriptions import BooleanSubscription
    from dskype.spouts.batch import Details, MessageBatch
    from dskype.spouts.filters import compile_filter
    from dskype.spouts.regions import parse_region
    from dskype.spouts.settings import Settings

    circle = parse_region({"center": {"lat": 1, "lon": 1}, "radius_m": 900_000})
    polygon = parse_region({"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 0]]]})
    condition, program = compile_filter(["and", "a", ["not", ["phrase", 1, [0, 1], ["a", "b"]]]], {"a": -1, "b": -2})
    one, numbers = np.ones(1), np.zeros(1, np.int64)
    messages = MessageBatch(numbers, numbers, one, one, np.array([0, 1]), np.array([-1]), one)
    for region in (None, polygon):
        details = Details.empty(1)
        batch = messages
        if region is not None:
            details = details._replace(region_offsets=np.array([0, len(region)]), regions=region)
            batch = messages._replace(areas=np.array([[0.0, 0.0, 9.0, 9.0]]))
        owner = BooleanSubscriptions(Settings.from_conf({"dskype.boolean.wordless": True}))
        for number, own in enumerate((None, circle, polygon)):
            owner.open(f"s{number}", "", BooleanSubscription([0, 0, 9, 9], condition, None, None, program, own))
        owner.match(Arrived(batch, pa.array([""]), numbers, details))
        owner.forget(1)
        owner.restore(owner.snapshot())


def _learn_words() -> None:
    """Write a vocabulary, read it, and weigh words."""
    from dskype.spouts.text import Tokenizer
    from dskype.spouts.vocabulary import Vocabulary

    with tempfile.TemporaryDirectory() as folder:
        Vocabulary.build(_WORDS, Tokenizer()).save(f"{folder}/vocabulary.tsv")
        Vocabulary.load(f"{folder}/vocabulary.tsv").weigh_texts(_WORDS, Tokenizer())


def _distribute() -> None:
    """Place and route as distribution bolts with partitions and with interest do, which the small topology does not."""
    import numpy as np

    from dskype.distribution import make_distributor
    from dskype.distribution.routing.interest import Interest
    from dskype.distribution.subscriptions import BooleanSubscription, TopkSubscription
    from dskype.spouts.batch import MessageBatch
    from dskype.spouts.text import Tokenizer
    from dskype.spouts.vocabulary import Vocabulary

    vocabulary, prefix, n = Vocabulary.empty(), make_distributor("prefix", 2), len(_WORDS)
    messages = MessageBatch(np.arange(n), np.arange(n), np.zeros(n), np.zeros(n), *vocabulary.weigh_texts(_WORDS, Tokenizer()))
    routes = prefix.message_tasks(messages)
    terms, weights = vocabulary.weigh(_WORDS)
    prefix.place("s", TopkSubscription(3, 0.5, 0.0, 0.0, terms, weights, None), 0.5)
    boolean = BooleanSubscription([0, 0, 9, 9], ["or", 1, 2], None, None)
    prefix.place("s", boolean)
    by_place = [make_distributor(name, 2) for name in ("agrid", "hybrid")]
    for distributor in by_place:
        distributor.place("s", boolean)
        for batch in (messages, messages._replace(areas=messages.rectangles())):
            distributor.message_tasks(batch)
    interest, regions = Interest(2), np.zeros(len(terms), np.int32)
    interest.add(regions, terms)
    interest.filter(messages, routes, routes.tasks)
    interest.routes(messages)
    by_place[1].wanted_tasks(messages, interest)
    interest.restore(interest.snapshot())
    interest.remove(regions, terms)


_STAGES: dict[str, tuple[Callable[[Callable[[], object]], None], Callable[[], None]]] = {
    _FIRST: (_run_small_topology, _beside_first),
    _REST: (lambda _: _distribute(), _filter),
}
"""Stage -> what its process compiles, which gets a function that waits for the other one, and what that one does beside it."""


if __name__ == "__main__":
    paths.export_numba_cache()
    (_compile_beside if sys.argv[2:] else _compile_stage)(sys.argv[1])
