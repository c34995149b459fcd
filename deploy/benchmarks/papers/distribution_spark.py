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

from dskype.deploy.benchmarks import throughput, throughput_report
from dskype.deploy.benchmarks.corpus import Corpus
from dskype.deploy.benchmarks.emulator.measure import print_table
from dskype.deploy.benchmarks.papers.distribution_workload import PLACES, DataSet, Scale, Workload
from dskype.deploy.benchmarks.papers.experiments import table_line
from dskype.deploy.cli.arguments import UsageError, common, target
from dskype.deploy.demo.places import places
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.distribution import DISTRIBUTORS, distributor_class
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.local import LocalCluster

__all__ = ["markdown", "run", "settings", "summary"]

_K = 20
_TASKS = (2, 4)


def settings(args: argparse.Namespace, method: str, tasks: int, plan: Path | None) -> argparse.Namespace:
    """Return the arguments of the throughput benchmark for one method.

    :param plan: file of the method's plan; None: the method has none.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    common(parser)
    throughput.add_arguments(parser)
    line = [
        "--subscriptions",
        str(args.subscriptions or 20_000),
        "--window",
        str(args.window or 20_000),
        "-k",
        str(_K),
        "--results",
        "deltas",
        "--tasks",
        f"subscription-bolt={tasks}",
        "--seconds",
        str(args.seconds),
        "--latency-seconds",
        "0",
        "--seed",
        str(args.seed),
        "--conf",
        f"dskype.distributor={method}",
    ]
    if plan is not None:
        line += ["--conf", "dskype.distributor.options=" + json.dumps({"plan": str(plan)})]
    found = parser.parse_args(line)
    for name in ("config", "conf", "bootstrap_servers", "kafka"):
        setattr(found, name, getattr(args, name))
    return found


def run(args: argparse.Namespace) -> int:
    """Run every method with every number of tasks; print a table or JSON, write the page.

    :returns: 0; 1 if a run had problems, so that its figures cannot be trusted.
    """
    if unknown := [name for name in args.methods if name not in DISTRIBUTORS]:
        raise UsageError(f"--methods: expected some of {', '.join(DISTRIBUTORS)}; given: {unknown[0]}")
    where = target(args)
    end_on_sigterm()
    found: dict[str, Any] = {"machine": throughput_report.machine(), "rows": []}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dskype-distribution-") as folder:
        first = settings(args, "hashing", 1, None)
        vocabulary = throughput.build_vocabulary(first, Path(folder))
        workload = _workload(first, vocabulary)
        found |= {"subscriptions": first.subscriptions[0], "window": first.window, "seconds_each": first.seconds}
        for tasks in args.tasks or _TASKS:
            for method in args.methods:
                plan = None
                if method != "hashing":
                    plan = Path(folder) / f"{method}-{tasks}.json"
                    plan.write_text(json.dumps(distributor_class(method).learn(tasks, workload.view(_K).sample)), encoding="utf-8")
                one = settings(args, method, tasks, plan)
                say(f"{method}, {tasks} tasks")
                with LocalCluster(bootstrap_servers=where.bootstrap_servers, master=where.master, conf=where.conf, progress=say) as cluster:
                    r = throughput.measure(cluster, one, one.subscriptions[0], throughput.configuration(one, vocabulary))
                found["rows"].append({"method": method, "tasks": tasks, **summary(r), "problems": throughput.problems(r)})
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


def _workload(args: argparse.Namespace, vocabulary: Path) -> Workload:
    """Return the messages that will be published, and subscriptions like those that will be registered, by the topology's vocabulary."""
    found, known = places(args.seed, args.messages, args.places), Vocabulary.load(vocabulary)
    texts = found.texts.to_pylist()
    corpus = Corpus(PLACES, np.asarray(found.lat), np.asarray(found.lon), *known.weigh_texts(texts, Tokenizer()), known)
    return Workload(DataSet(PLACES, corpus, texts), Scale(1, args.window, 0, sample=min(20_000, args.subscriptions[0]), seed=args.seed), _K)


def summary(r: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reported measures of a run of the throughput benchmark, per message applied."""
    bolt, streams = r.get("components", {}).get("subscription-bolt", {}), {s["stream"]: s for s in r.get("streams", ())}
    processes = r.get("processes", {}).values()
    matching = streams.get("matching", {})
    # Use the mean, not the median of windows: the work of a micro-batch is reported at its end, and one may take longer than a window.
    return {
        "messages_per_s": r["mean_per_s"],
        "all_active_s": r["all_active_s"],
        "replication": r["placements"] / r["subscriptions"],
        "communication": matching.get("tuples_per_message", 0.0),
        "bytes": matching.get("bytes_per_message") or 0.0,
        "distribution_us": r.get("components", {}).get("distribution-bolt", {}).get("busy_us_per_message", 0.0),
        "work_us": bolt.get("busy_us_per_message", 0.0),
        "cpu_us": sum(p["cpu_us_per_message"] for p in processes),
        "other_cores": r.get("other_cores", 0.0),
    }


_HEADINGS = ["method", "tasks", "messages/s", "tuples", "bytes", "replication", "distribution us", "work us", "all CPU us", "active after s", "others' cores"]


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        row["method"],
        str(row["tasks"]),
        f"{row['messages_per_s']:,.0f}",
        f"{row['communication']:.2f}",
        f"{row['bytes']:,.0f}",
        f"{row['replication']:.2f}",
        f"{row['distribution_us']:.1f}",
        f"{row['work_us']:.1f}",
        f"{row['cpu_us']:.1f}",
        f"{row['all_active_s']:.1f}",
        f"{row['other_cores']:.2f}",
    ]


def markdown(found: Mapping[str, Any]) -> str:
    """Return the page."""
    m = found["machine"]
    return "\n".join(
        [
            "# Distribution mechanisms on Spark and Kafka",
            "",
            f"{found['subscriptions']:,} subscriptions, |W| = {found['window']:,}, k = {_K}, places of GeoNames; {m['cores']} cores of {m['processor']} for everything, "
            f"broker and producer included; {found['seconds_each']} s each, deltas published.",
            "Tuples and bytes: distribution -> subscription bolt; us: busy time of the bolts, and processor time of all processes; per message applied.",
            "",
            table_line(_HEADINGS),
            table_line(["---"] + ["---:"] * (len(_HEADINGS) - 1)),
            *(table_line(_cells(row)) for row in found["rows"]),
            "",
        ]
    )
