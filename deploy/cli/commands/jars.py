"""``dskype jars``: fetch the connector's and the broker's jars."""

from __future__ import annotations

import argparse

from dskype.deploy.cli.arguments import common
from dskype.deploy.machine.terminal import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser, kafka=False)
    parser.add_argument("--force", action="store_true", help="fetch them again")
    parser.add_argument("--verify", action="store_true", help="only compare the jars with their checksums")


def run(args: argparse.Namespace) -> int:
    """Fetch the jars, or compare them with their checksums."""
    from dskype.deploy.machine import jars

    if args.verify:
        problems = jars.verify(full=True)
        for problem in problems:
            print(problem)
        if not problems:
            print("all jars are as their checksums say")
        return 1 if problems else 0
    progress = Progress(2, at_once=True)
    try:
        fetched = jars.fetch(progress=lambda p: progress(str(p)), force=args.force)
    finally:
        progress.end()
    for name, files in fetched.items():
        print(f"{name}: {len(files)} jars in {files[0].parent}")
    return 0
