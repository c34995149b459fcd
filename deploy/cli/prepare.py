"""Fetch the jars, write the class archives of the broker and of Spark, and compile the kernels: ``python -m dskype.deploy.cli.prepare``."""

from __future__ import annotations

import sys

from dskype.deploy.cli.warmup import compile_kernels
from dskype.deploy.machine.broker import prepare
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.spark_archive import write_archive
from dskype.deploy.machine.terminal import Progress


def main() -> int:
    """Prepare, with progress on standard error; return the exit code."""
    progress = Progress(2, at_once=True)
    try:
        prepare(progress)
        write_archive(progress)
        compile_kernels(progress)
        return 0
    except DeployError as e:
        progress.end()
        print(f"error: {e}", file=sys.stderr)
        return 1
    finally:
        progress.end()


if __name__ == "__main__":
    sys.exit(main())
