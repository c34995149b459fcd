"""``make bench-guard``: is this state slower than an earlier one? Both run the same parts of the product in turn, in one run, so that noise meets both.

Two processes measure, one with the code of this checkout and one with that of the earlier state, which ``git archive`` brings into a folder of ``build/``. They
take turns, in changing order, and the least processor time of a part counts. A ratio is the earlier state's time over this one's: 1.00 is as fast, 0.80 is slower.
The part ``fixed`` has no code of the product: its ratio shows the noise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.guard_parts import PARTS
from dskype.deploy.machine.processes import file_command, spawn_tied
from dskype.topology.errors import explain

__all__ = ["main"]

_ROOT = Path(__file__).parents[2]


class Side:
    """A process that measures parts with the code of one checkout.

    :param root: of the checkout.
    """

    def __init__(self, root: Path) -> None:
        # The links in .namespace make the folders of a checkout the package dskype, before what is installed.
        environment = {**os.environ, "PYTHONPATH": str(root / ".namespace")}
        command = file_command(Path(__file__).with_name("guard_parts.py"))
        self._process = spawn_tied(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def measure(self, part: str) -> float:
        """Return the processor seconds of a part.

        :raises RuntimeError: the process has ended; its errors are on standard error.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{part}\n".encode())
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(
                explain(f"The part {part!r} cannot be measured there.", hint="an earlier state may lack what the part uses; --only leaves it out")
            )
        return float(json.loads(line))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def earlier(revision: str | None) -> tuple[str, Path]:
    """Return a revision of this repository, and a folder with its files.

    :param revision: None: the commit that began the present version. Tags do not come with every clone.
    :raises RuntimeError: there is no such revision, or no history.
    """
    name = revision or _git("log", "-1", "--format=%h", "-G^version = ", "--", "setup.cfg")
    commit = _git("rev-parse", "--verify", f"{name}^{{commit}}")
    folder = _ROOT / "build" / "guard" / commit[:12]
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        with subprocess.Popen(["git", "archive", commit], cwd=_ROOT, stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", unfinished], stdin=archive.stdout, check=True)
        unfinished.rename(folder)
    return name, folder


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            explain("There is nothing to compare with.", given=f"git {' '.join(arguments)}", hint=f"{done.stderr.strip()}; --against names a revision")
        )
    return done.stdout.strip()


def compare(now: Path, before: Path, parts: Sequence[str], rounds: int) -> dict[str, tuple[float, float, float]]:
    """Return part -> (ms before, ms now, ratio): the least times of all rounds, because other work only adds to them, and their ratio.

    :param rounds: how often each part is measured on each side.
    """
    sides = {"before": Side(before), "now": Side(now)}
    try:
        times: dict[str, dict[str, list[float]]] = {part: {side: [] for side in sides} for part in parts}
        for number in range(rounds):
            for part in parts:
                for side in sorted(sides, reverse=number % 2 == 1):
                    times[part][side].append(sides[side].measure(part))
    finally:
        for side in sides.values():
            side.close()
    return {part: _summary(found) for part, found in times.items()}


def _summary(times: Mapping[str, Sequence[float]]) -> tuple[float, float, float]:
    before, now = (1e3 * min(times[side]) for side in ("before", "now"))
    return before, now, before / now


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print a table, and return 1 if a part is slower than allowed."""
    parser = argparse.ArgumentParser(prog="python -m dskype.deploy.lab.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION", help="the earlier state; default: the commit that began the present version")
    parser.add_argument("--only", metavar="PART,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="default: 7")
    parser.add_argument("--least", type=float, default=0.9, metavar="RATIO", help="a part with a lower ratio fails; default: 0.9")
    args = parser.parse_args(arguments)
    parts = args.only.split(",") if args.only else list(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"--only: expected some of {', '.join(PARTS)}; given: {', '.join(unknown)}")
    if args.rounds < 1:
        parser.error(f"--rounds: expected 1 or more; given: {args.rounds}")
    try:
        name, before = earlier(args.against)
        found = compare(_ROOT, before, parts, args.rounds)
    except RuntimeError as ex:
        print(f"error: {ex}", file=sys.stderr)
        return 2
    print_table(
        f"Processor time of the same work, against {name}: ratio 1.00 is as fast as before, lower is slower; {args.rounds} rounds",
        ("part", f"{name}, ms", "now, ms", "ratio", ""),
        [(part, f"{old:,.1f}", f"{new:,.1f}", f"{ratio:.2f}", "slower" if ratio < args.least else "") for part, (old, new, ratio) in found.items()],
    )
    return int(any(ratio < args.least for part, (_, _, ratio) in found.items() if part != "fixed"))


if __name__ == "__main__":
    sys.exit(main())
