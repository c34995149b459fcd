"""``dskype status``: what ``dskype up`` runs, and whether it gets on."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dskype.deploy.cli.arguments import SERVICE_FOLDER, common, output, positive_seconds
from dskype.deploy.machine.terminal import counted, put

if TYPE_CHECKING:
    from dskype.deploy.machine.service import Service


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser, kafka=False)
    output(parser)
    parser.add_argument("--folder", metavar="DIR", type=Path, help=f"the service's folder; default: {SERVICE_FOLDER}")
    parser.add_argument("--window", metavar="SECS", type=positive_seconds, default=10, help="rates of the last SECS; default: 10")


def run(args: argparse.Namespace) -> int:
    """Print what runs; fail unless every topology gets on."""
    from dskype.deploy.machine import paths, service
    from dskype.deploy.machine.errors import DeployError

    folder = (args.folder or paths.service_dir()).expanduser().absolute()
    found = service.read(folder)
    if found is None:
        raise DeployError(f"expected the folder of a service, given: {folder}", fix="'dskype up --folder DIR' makes one")
    state, topologies, silence = _state(found), list[dict[str, Any]](), None
    if state == "running":
        topologies, silence = _topologies(found.bootstrap_servers, args.window)
        if silence is not None:
            found = service.read(folder) or found
            state = _state(found)  # it may have been stopped meanwhile
            silence = silence if state == "running" else None
    status = {
        "folder": str(folder),
        "state": state,
        "doing": found.doing if found.is_alive() else "",
        "pid": found.process.get("pid") if found.is_alive() else None,
        "bootstrap_servers": found.bootstrap_servers,
        "metrics": found.metrics_url,
        "broker_silence": silence,
        "topologies": topologies,
    }
    status["ok"] = state == "running" and silence is None and all(t["health"]["state"] in ("starting", "running") for t in status["topologies"])
    put(json.dumps(status, indent=2) if args.output == "json" else as_text(status))
    return 0 if status["ok"] else 1


def _state(found: Service) -> str:
    """Return ``starting``, ``running``, ``stopping`` or ``stopped``, or that the process is gone."""
    return found.state if found.is_alive() or found.state == "stopped" else "ended without being stopped"


_BROKER_S = 5
"""How long the broker may take for an answer. It is on this machine."""


def _topologies(bootstrap_servers: str, window_s: float) -> tuple[list[dict[str, Any]], str | None]:
    """Return what each topology on the service's broker does, over the last ``window_s``, and why the broker does not answer, if it does not."""
    from kafka.errors import KafkaError

    from dskype.topology.runtime.kafka.clients import KafkaSettings, KafkaTimeoutError

    bounded = {"bootstrap_timeout_ms": _BROKER_S * 1000, "request_timeout_ms": _BROKER_S * 1000}
    try:
        return _measured(KafkaSettings(bootstrap_servers, client=bounded), window_s), None
    except (KafkaError, KafkaTimeoutError) as error:
        return [], f"does not answer within {_BROKER_S} s ({error or type(error).__name__})"


def _measured(kafka: Any, window_s: float) -> list[dict[str, Any]]:
    from dskype.deploy.metrics.meter import Meter, measure
    from dskype.deploy.metrics.reader import MetricsReader, describe
    from dskype.topology.runtime.nimbus.nimbus_topic import observe

    found = []
    for name, seen in observe(kafka).items():
        about = describe(seen.record, seen.alive, seen.silent_s)
        reader = MetricsReader(kafka, name, Meter(window_s))
        try:
            reader.catch_up()
            measured = measure(reader.sink, about, ends=reader.ends(reader.sink.positions()))
        finally:
            reader.close()
        found.append(
            {
                "name": name,
                "status": about["status"],
                "uptime_s": about["uptime_secs"],
                "submitted_ms": about["submitted_ms"],
                "report_age_s": measured["report_age_s"],
                "health": about["health"],
                "messages": measured["messages"],
                "tuples_per_second": measured["total"]["tuples_per_second"],
                "waiting_records": sum(measured["lag"]["records"].values()),
                "dead_letters": sum(letter["count"] for letter in measured["dead_letters"]),
            }
        )
    return found


def as_text(status: Mapping[str, Any]) -> str:
    """Return the lines that the command prints."""
    process = "" if status["pid"] is None else f", process {status['pid']}"
    lines = [f"service   {status['folder']}: {status['state']}{process}"]
    if status["state"] != "running":
        more = f"'dskype up --folder {status['folder']}' starts it" if status["pid"] is None else status["doing"]
        return "\n".join([*lines, f"          {more}"]).rstrip()
    silence = status.get("broker_silence")
    lines += [f"broker    {status['bootstrap_servers']}" + (f": {silence}" if silence else ""), f"metrics   {status['metrics']}"]
    for t in status["topologies"]:
        submitted = f"; submitted {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(t['submitted_ms'] / 1000))}" if "submitted_ms" in t else ""
        lines.append(f"topology  {t['name']}: {t['status']}, {t['health']['state']}, for {_duration(t['uptime_s'])}{submitted}")
        lines += [f"          {reason}" for reason in t["health"].get("why", ())]
        done = "" if t["messages"] is None else f"{counted(t['messages']['processed'], 'message')}, {_rate(t['messages']['per_second'])}; "
        lines.append(
            f"          {done}{_rate(t['tuples_per_second'])} between tasks; {counted(t['waiting_records'], 'record')} wait; {counted(t['dead_letters'], 'dead letter')}"
        )
    if not status["topologies"]:
        lines.append("topology  not known: the broker does not answer" if silence else "topology  none")
    return "\n".join(lines)


def _rate(per_second: float | None) -> str:
    return "-/s" if per_second is None else f"{per_second:,.1f}/s" if per_second < 10 else f"{per_second:,.0f}/s"


def _duration(seconds: int) -> str:
    days = f"{counted(seconds // 86400, 'day')} " if seconds >= 86400 else ""
    return days + time.strftime("%H:%M:%S", time.gmtime(seconds % 86400))
