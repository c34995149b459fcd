"""Distribution mechanisms on Spark and Kafka: throughput, communication and replication, with as many tasks as this machine can run."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import UsageError, target
from dskype.deploy.demo.places import places
from dskype.deploy.lab.boolean.learning import SAMPLE, boolean_sample
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.dskype.boolean import METHODS as BOOLEAN_METHODS
from dskype.deploy.lab.dskype.boolean import PRODUCTION
from dskype.deploy.lab.dskype.experiments import METHODS
from dskype.deploy.lab.dskype.workload import PLACES, DataSet, DistributionWorkload, DskypeScale
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.experiments import table_line
from dskype.deploy.lab.ps2stream.simulation import Method
from dskype.deploy.lab.system import throughput, throughput_report
from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.distribution import DISTRIBUTORS, distributor_class
from dskype.distribution.base import Sample
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.local import LocalCluster

__all__ = ["CHECK", "LEGEND", "MEASURES", "learned_plan", "markdown", "measured", "methods", "run", "settings", "summary"]

_K = 20
_TASKS = (2, 4)
_WARM_UP_S, _LATENCY_S = 20, 10

CHECK = 20
"""Subscriptions that are verified in each run by default."""


def methods(args: argparse.Namespace) -> dict[str, Method]:
    """Return the methods that are asked for, by name: distributors, and with ``--boolean`` the series of the comparison in simulations.

    :raises UsageError: one is unknown.
    """
    known = {name: Method(name) for name in DISTRIBUTORS} | (BOOLEAN_METHODS if args.boolean else {})
    names = args.methods or (PRODUCTION if args.boolean else METHODS)
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--methods: expected some of {', '.join(known)}; given: {unknown[0]}")
    return {name: known[name] for name in names}


def settings(args: argparse.Namespace, method: Method, tasks: int, plan: Path | None, *more: object) -> argparse.Namespace:
    """Return the arguments of the throughput benchmark for one method.

    :param plan: file of the method's plan; None: the method has none.
    :param more: further options of the throughput benchmark and their values.
    """
    options = {**method.options, **({"plan": str(plan)} if plan else {})}
    line = ["--subscriptions", args.subscriptions or (100_000 if args.boolean else 20_000), "--tasks", f"subscription-bolt={tasks}"]
    line += ["--boolean", "--matches", "grouped"] if args.boolean else ["--window", args.window or 20_000, "-k", _K, "--results", "deltas"]
    line += ["--warm-up", _WARM_UP_S, "--seconds", args.seconds, "--latency-seconds", _LATENCY_S, "--verify", args.check or CHECK, "--seed", args.seed]
    line += ["--conf", f"dskype.distributor={method.distributor}"]
    line += ["--conf", "dskype.distributor.options=" + json.dumps(options)] if options else []
    return throughput.arguments_for(args, *line, *more)


def learned_plan(method: Method, tasks: int, sample: Sample, path: Path) -> Path | None:
    """Learn the plan of a method, and write it to a file; return the file, None if the method has no plan."""
    if method.distributor == "hashing":
        return None
    path.write_text(json.dumps(distributor_class(method.distributor).learn(tasks, sample, dict(method.options))), encoding="utf-8")
    return path


def measured(where: Target, asked: argparse.Namespace, vocabulary: Path) -> dict[str, Any]:
    """Measure one topology on a cluster of its own; return what :func:`summary` says, and ``problems``, for which the figures cannot be trusted.

    :param where: the brokers, Spark's master, and the cluster's configuration.
    :param asked: from :func:`settings`.
    :param vocabulary: file of the topology's vocabulary.
    """
    with LocalCluster(bootstrap_servers=where.bootstrap_servers, master=where.master, conf=where.conf, progress=say) as cluster:
        found = throughput.measure(cluster, asked, asked.subscriptions[0], throughput.configuration(asked, vocabulary))
    return {**summary(found), "problems": throughput.problems(found)}


def run(args: argparse.Namespace) -> int:
    """Run every method with every number of tasks; print a table or JSON, write the page.

    :returns: 0; 1 if a run had problems, so that its figures cannot be trusted.
    :raises UsageError: a method is unknown, or an option is for simulations.
    """
    refused = ("FILE", args.messages), ("--only", args.only), ("--data", args.data), ("--full", args.full), ("--warm-up", args.warm_up)
    if given := [name for name, value in (*refused, ("--window", args.boolean and args.window)) if value]:
        raise UsageError(f"--spark: expected none of {', '.join(name for name, _ in refused)}, and no --window with --boolean; given: {', '.join(given)}")
    chosen, where = methods(args), target(args)
    end_on_sigterm()
    found: dict[str, Any] = {"machine": throughput_report.machine(), "boolean": args.boolean, "rows": []}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dskype-distribution-") as folder:
        first = settings(args, Method("hashing"), 1, None)
        vocabulary = throughput.build_vocabulary(first, Path(folder))
        sample = boolean_sample(first, vocabulary, Path(folder)) if args.boolean else _workload(first, vocabulary).view(_K).sample
        found |= {"subscriptions": first.subscriptions[0], "window": first.window, "seconds_each": first.seconds}
        for tasks in args.tasks or _TASKS:
            for name, method in chosen.items():
                say(f"{name}, {tasks} tasks")
                plan = learned_plan(method, tasks, sample, Path(folder) / f"plan-{len(found['rows'])}.json")
                found["rows"].append({"method": name, "tasks": tasks, **measured(where, settings(args, method, tasks, plan), vocabulary)})
    found["seconds"] = time.perf_counter() - began
    if args.output == "json":
        print(json.dumps(found, indent=1))
    else:
        print_table("Distribution mechanisms on Spark and Kafka", _HEADINGS, [_cells(row) for row in found["rows"]])
    if args.folder:
        Path(args.folder).mkdir(parents=True, exist_ok=True)
        page = Path(args.folder) / "spark.md"
        page.write_text(markdown(found), encoding="utf-8")
        say(f"written: {page}")
    for row in found["rows"]:
        for problem in row["problems"]:
            say(f"error: {row['method']}, {row['tasks']} tasks: {problem}")
    return 1 if any(row["problems"] for row in found["rows"]) else 0


def _workload(args: argparse.Namespace, vocabulary: Path) -> DistributionWorkload:
    """Return the messages that will be published, and subscriptions like those that will be registered, by the topology's vocabulary."""
    found, known = places(args.seed, args.messages, args.places), Vocabulary.load(vocabulary)
    texts = found.texts.to_pylist()
    corpus = Corpus(PLACES, np.asarray(found.lat), np.asarray(found.lon), *known.weigh_texts(texts, Tokenizer()), known)
    return DistributionWorkload(DataSet(PLACES, corpus, texts), DskypeScale(1, args.window, 0, sample=min(SAMPLE, args.subscriptions[0]), seed=args.seed), _K)


def summary(r: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reported measures of a run of the throughput benchmark, per message applied."""
    bolt, streams = r.get("components", {}).get("subscription-bolt", {}), {s["stream"]: s for s in r.get("streams", ())}
    processes = r.get("processes", {}).values()
    matching = streams.get("matching", {})
    # Use the mean, not the median of windows: the work of a micro-batch is reported at its end, and one may take longer than a window.
    return {
        "throughput": r["mean_per_s"],
        "all_active_s": r["all_active_s"],
        "replication": r["placements"] / r["subscriptions"],
        "matches": bolt.get("metrics_per_message", {}).get("matches", 0.0),
        "communication": matching.get("tuples_per_message", 0.0),
        "bytes": matching.get("bytes_per_message") or 0.0,
        "distribution_us": r.get("components", {}).get("distribution-bolt", {}).get("busy_us_per_message", 0.0),
        "work_us": bolt.get("busy_us_per_message", 0.0),
        "cpu_us": sum(p["cpu_us_per_message"] for p in processes),
        "other_cores": r.get("other_cores", 0.0),
        "first_p50_ms": r.get("latency", {}).get("first_p50_ms"),
        "first_p99_ms": r.get("latency", {}).get("first_p99_ms"),
    }


MEASURES = {
    "throughput": ("messages/s", 0),
    "matches": ("matches", 2),
    "communication": ("tuples", 2),
    "bytes": ("bytes", 0),
    "replication": ("replication", 2),
    "distribution_us": ("distribution us", 1),
    "work_us": ("work us", 1),
    "cpu_us": ("all CPU us", 1),
    "all_active_s": ("active after s", 1),
    "first_p50_ms": ("p50 ms", 0),
    "first_p99_ms": ("p99 ms", 0),
    "other_cores": ("others' cores", 2),
}
"""Measure of :func:`summary` -> heading, digits."""

LEGEND = (
    "Tuples and bytes: distribution -> subscription bolt; us: busy time of the bolts, and processor time of all processes; per message applied.",
    "p50 and p99: from a message to its first result, at half of the throughput.",
)

_HEADINGS = ["method", "tasks", *(heading for heading, _ in MEASURES.values())]


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [row["method"], str(row["tasks"]), *("-" if row[name] is None else f"{row[name]:,.{digits}f}" for name, (_, digits) in MEASURES.items())]


def markdown(found: Mapping[str, Any]) -> str:
    """Return the page."""
    m = found["machine"]
    return "\n".join(
        [
            "# Distribution mechanisms on Spark and Kafka",
            "",
            f"{found['subscriptions']:,} "
            + ("boolean subscriptions" if found["boolean"] else f"subscriptions, |W| = {found['window']:,}, k = {_K}")
            + f", places of GeoNames; {m['cores']} cores of {m['processor']} for everything, broker and producer included; {found['seconds_each']} s each, "
            + ("matches grouped by message." if found["boolean"] else "deltas published."),
            *LEGEND,
            "",
            table_line(_HEADINGS),
            table_line(["---"] + ["---:"] * (len(_HEADINGS) - 1)),
            *(table_line(_cells(row)) for row in found["rows"]),
            "",
        ]
    )
