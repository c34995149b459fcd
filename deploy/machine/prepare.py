"""Fetch and write what the first start needs: ``python -m dskype.deploy.machine.prepare``."""

from __future__ import annotations

import sys
import time

from dskype.deploy.machine.broker import prepare
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.warmup import compile_kernels


class LinePrinter:
    """Print progress on one line that is overwritten; into a file or pipe, at most one line in two seconds."""

    def __init__(self) -> None:
        self._tty = sys.stderr.isatty()
        self._width = 0
        self._last = 0.0

    def __call__(self, text: str) -> None:
        if self._tty:
            print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)
        elif time.monotonic() - self._last > 2 or text.endswith("ready"):
            self._last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._tty and self._width:
            print(file=sys.stderr)


def main() -> int:
    """Prepare, with progress on standard error; returns the exit code."""
    printer = LinePrinter()
    try:
        prepare(printer)
        compile_kernels(printer)
        return 0
    except DeployError as e:
        printer.end()
        printer = LinePrinter()
        print(f"error: {e}", file=sys.stderr)
        return 1
    finally:
        printer.end()


if __name__ == "__main__":
    sys.exit(main())
