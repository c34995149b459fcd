"""``dskype demo``: publish and subscribe on the world's places, live."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dskype.deploy.cli.arguments import port, running_cluster, target
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.topology.config import TRANSPORTS

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from dskype.deploy.demo.feeder import Plan  # imported late: numpy comes with it
    from dskype.deploy.demo.moving import MovingPlan

    default, moving = Plan(), MovingPlan()
    parser.add_argument("--verbose", action="store_true", help="show tracebacks and log lines")
    parser.add_argument(
        "--moving", action="store_true", help="vehicles that drive between cities of Europe, and geofences that report who enters and leaves, here and on a map"
    )
    parser.add_argument("--vehicles", metavar="N", type=_number(1), help=f"with --moving: how many vehicles; default: {moving.vehicles}")
    parser.add_argument("--port", metavar="PORT", type=port, help="with --moving: port of the map; default: a free one")
    parser.add_argument(
        "--messages",
        metavar="N",
        type=_number(1),
        help=f"how many places to publish; default: {default.messages}, with --moving {moving.messages} states of vehicles",
    )
    parser.add_argument("--subscriptions", metavar="N", type=_number(0), help=f"how many subscriptions to register; default: {default.subscriptions}")
    parser.add_argument("--rate", metavar="R", type=_number(1, float), help=f"messages per second; default: {default.rate:g}, with --moving {moving.rate:g}")
    parser.add_argument("--window", metavar="N", type=_number(1), help="messages in the window; default: half of all messages")
    parser.add_argument("--seed", metavar="N", type=_number(0), help=f"seed of everything that is drawn at random; default: {default.seed}")
    parser.add_argument("--transport", choices=TRANSPORTS, help="how components get their records; default: the topology's setting")
    parser.add_argument("--folder", metavar="DIR", type=Path, help="keep data and snapshots there; default: nothing is kept")
    parser.add_argument("--resume", action="store_true", help="continue the run in --folder; default: start over")
    parser.add_argument(
        "--picture", metavar="FILE", type=Path, help="where to write the map; default: dskype-map.svg here, or in the temp folder if that is not possible"
    )
    parser.add_argument("--no-picture", action="store_true", help="draw no map")
    parser.add_argument("--no-verify", action="store_true", help="do not compare the results with a plain computation")
    running_cluster(parser, "publish to the topology dskype of these brokers; default: a topology and a broker of its own")


def _number(least: float, kind: type = int) -> Any:
    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"expected {'an integer' if kind is int else 'a number'}, {least:g} or more, given: {text!r}")
        return value

    return read


def run(args: argparse.Namespace) -> int:
    """Run the demo. Ctrl-C and SIGTERM end it with a clean shutdown."""
    if args.resume and args.folder is None:
        say("error: --resume needs the folder of the run; expected --folder DIR")
        return 2
    if args.moving:
        return _run_moving(args)
    if args.vehicles is not None or args.port is not None:
        say("error: --vehicles and --port need --moving")
        return 2
    if args.bootstrap_servers is not None:
        return _run_elsewhere(args)
    from dskype.deploy.demo import run as demo

    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # names of places use many scripts, and not every terminal can encode all of them
    given = {k: v for k in ("messages", "subscriptions", "rate", "window", "seed") if (v := getattr(args, k)) is not None}

    def start() -> int:
        folder, plan, resumed = demo.open_folder(args.folder, args.resume, given, say)
        picture = None if args.no_picture else _writable(args.picture)
        return demo.run(plan, folder=folder, resumed=resumed, picture=picture, verify=not args.no_verify, transport=args.transport)

    return _until_stopped(start, f"to continue: dskype demo --folder {args.folder} --resume" if args.folder else "nothing is left behind")


def _until_stopped(start: Callable[[], int], what_is_left: str) -> int:
    """Run a demo, and return its exit code; Ctrl-C and SIGTERM end it cleanly."""
    terminated = end_on_sigterm()
    try:
        return start()
    except KeyboardInterrupt:
        pass
    except Exception as ex:
        # A signal to the whole process group also ends Spark's JVM, so that stopping it fails.
        if not terminated.is_set():
            raise
        say(f"note: Spark or Kafka ended before it was stopped ({type(ex).__name__})")
    say(f"stopped; {what_is_left}")
    return 130


def _run_moving(args: argparse.Namespace) -> int:
    """Let vehicles drive, on a topology of their own."""
    if own := [
        f"--{name.replace('_', '-')}" for name in ("subscriptions", "window", "folder", "resume", "picture", "bootstrap_servers") if getattr(args, name)
    ]:
        say(f"error: expected no {', '.join(own)} with --moving: its geofences are fixed, and it keeps nothing")
        return 2
    from dskype.deploy.demo import moving_run
    from dskype.deploy.demo.moving import MovingPlan

    given = {k: v for k in ("messages", "vehicles", "rate", "seed", "port") if (v := getattr(args, k)) is not None}
    return _until_stopped(lambda: moving_run.run(MovingPlan(**given), verify=not args.no_verify, transport=args.transport), "nothing is left behind")


def _run_elsewhere(args: argparse.Namespace) -> int:
    """Publish to a running topology. Ctrl-C ends the demo and leaves the topology as it is."""
    own = [f"--{name}" for name in ("window", "transport", "folder", "resume", "picture") if getattr(args, name)]
    if own:
        say(f"error: expected no {', '.join(own)} with --bootstrap-servers: that topology runs already")
        return 2
    from dskype.deploy.demo import running
    from dskype.deploy.demo.feeder import Plan
    from dskype.deploy.machine.cluster import reach

    given = {k: v for k in ("messages", "subscriptions", "rate", "seed") if (v := getattr(args, k)) is not None}
    try:
        return running.run(Plan(**given), reach(target(args)), verify=not args.no_verify)
    except KeyboardInterrupt:
        say("stopped; the topology goes on")
        return 130


def _writable(picture: Path | None) -> Path:
    """Return the absolute path of the map; raise now, not after the run, if it cannot be written."""
    wanted = (picture or Path("dskype-map.svg")).absolute()
    if wanted.parent.is_dir() and os.access(wanted.parent, os.W_OK) and not wanted.is_dir():
        return wanted
    if picture is not None:
        from dskype.topology.errors import TopologyError

        raise TopologyError("The map cannot be written there.", given=str(wanted), hint="--picture FILE")
    return Path(tempfile.gettempdir()) / wanted.name
