"""``python -m dskype.deploy.lab.chaos``: break things while a topology runs, and check its output.

Exit code 0: nothing was lost, nothing came twice, everything caught up in time; 1: something is wrong; 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dskype.deploy.lab.chaos import soak
from dskype.deploy.lab.chaos.faults import FAULTS
from dskype.deploy.lab.chaos.report import Result, as_table, summary
from dskype.deploy.lab.chaos.run import run
from dskype.deploy.lab.chaos.workloads import WORKLOADS

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<17} {fault.text}" for name, fault in sorted(FAULTS.items()))
    parser = argparse.ArgumentParser(
        prog="python -m dskype.deploy.lab.chaos",
        description="Break things while a topology runs on Spark and Kafka, and check its output.",
        epilog=f"faults:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=("run", "soak"), default="run", help="run: break things (default); soak: break nothing, and look for growth")
    parser.add_argument("--topology", choices=sorted(WORKLOADS), action="append", help="repeatable; default: all, one after the other")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many runs, each with another seed; default: 1")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first run's seed; default: 1")
    parser.add_argument("--minutes", type=float, default=5, metavar="M", help="how long new strikes begin, in each run; default: 5")
    parser.add_argument("--strikes", type=int, metavar="N", help="at most N strikes in each run")
    parser.add_argument("--faults", type=lambda text: text.split(","), metavar="A,B", help="only these faults; default: all that this machine allows")
    parser.add_argument("--long", action="store_true", help="also faults that last longer than a minute")
    parser.add_argument("--pause", type=float, metavar="S", help="how long a fault of standing still lasts (pause-…, cut-network); default: 3 to 12 s")
    parser.add_argument("--rate", type=float, default=200, metavar="R", help="input records per second; default: 200")
    parser.add_argument("--patience", type=float, default=150, metavar="S", help="longest time without any output while it is behind; default: 150")
    parser.add_argument("--folder", type=Path, help="keep logs and data below this folder; default: a temporary one")
    parser.add_argument("--verbose", action="store_true", help="log what the suite itself does")
    return parser


def _soak(name: str, seed: int, args: argparse.Namespace, folder: Path | None, say: Callable[[str], None]) -> bool:
    """Soak one workload and print what grew; return whether all is well."""
    with tempfile.TemporaryDirectory(prefix="dskype-soak-") as made:
        samples, problems = soak.soak(name, seed, args.minutes, rate=args.rate, folder=folder or Path(made), patience_s=args.patience, progress=say)
    print(f"{name}: {args.minutes:g} minutes, {args.rate:g} records/s, {len(samples)} samples\n{soak.as_table(samples) if samples else ''}")
    print("\n".join(f"WRONG  {text}" for text in problems) or "nothing grew, nothing is wrong", flush=True)
    return not problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; return the exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if unknown := sorted(set(args.faults or ()) - set(FAULTS)):
        parser.error(f"unknown faults, given: {', '.join(unknown)}; legal: {', '.join(sorted(FAULTS))}")
    logging.basicConfig(level=logging.INFO if args.verbose else logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up, as after Ctrl-C
    began, right = time.monotonic(), True
    results: list[Result] = []

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    for seed in range(args.seed, args.seed + args.seeds):
        for name in args.topology or sorted(WORKLOADS):
            again = f"python -m dskype.deploy.lab.chaos --topology {name} --seed {seed} --minutes {args.minutes:g} --rate {args.rate:g}"
            again += (f" --faults {','.join(args.faults)}" if args.faults else "") + (f" --strikes {args.strikes}" if args.strikes else "")
            again += (" --long" if args.long else "") + (f" --pause {args.pause:g}" if args.pause is not None else "")
            say(f"{name} with seed {seed}")
            folder = args.folder / f"{name}-{seed}" if args.folder else None
            if folder is not None:
                folder.mkdir(parents=True)
            if args.what == "soak":
                right = _soak(name, seed, args, folder, say) and right
                continue
            result = run(
                name,
                seed,
                args.minutes,
                rate=args.rate,
                faults=args.faults,
                strikes=args.strikes,
                patience_s=args.patience,
                long=args.long,
                pause_s=args.pause,
                command=again,
                folder=folder,
                progress=say,
            )
            print(as_table(result), flush=True)
            right = right and result.ok
            results.append(result)
    if len(results) > 1:
        print(f"\nall runs\n{summary(results)}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
