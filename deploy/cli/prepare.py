"""Fetch the jars, write the class archives of the broker and of Spark, and compile the kernels meanwhile: ``python -m dskype.deploy.cli.prepare``.

Kernels need minutes of one or two cores. Downloads mostly wait, and class archives come from JVMs that run one after the other, so both fit beside them.
At the end, each step is printed with its time. ``--first`` does only what the demo and the default topology need: it leaves out the second
stage of kernels and the class archive of Spark.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from collections.abc import Callable

from dskype.deploy.cli.warmup import compile_kernels
from dskype.deploy.machine import jars
from dskype.deploy.machine.broker import prepare
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.spark_archive import write_archive
from dskype.deploy.machine.terminal import Progress, say

__all__ = ["Steps", "main"]

Step = Callable[[Callable[[str], None]], object]


class Steps:
    """What set-up does, some of it at the same time: progress on one line, and how long each step took.

    :param show: gets the line: what each step that runs has said last.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._said: dict[str, str] = {}
        self._took_s: dict[str, float] = {}

    def run(self, name: str, step: Step) -> None:
        """Run a step, which gets a function that shows its progress."""
        began = time.monotonic()
        try:
            step(lambda text: self._tell(name, text))
        finally:
            with self._lock:
                self._said.pop(name, None)
                self._took_s[name] = time.monotonic() - began

    def _tell(self, name: str, text: str) -> None:
        with self._lock:
            self._said[name] = text
            self._show("; ".join(self._said.values()))

    def summary(self) -> str:
        """Return the steps that took a second or more, with their times, or an empty text."""
        return ", ".join(f"{name} {took_s:.0f} s" for name, took_s in self._took_s.items() if took_s >= 1)


def main(first: bool = False) -> int:
    """Prepare, with progress on standard error; return the exit code.

    :param first: leave out what a first run does not need.
    """
    progress = Progress(2, at_once=True)
    steps = Steps(progress)
    failed: list[Exception] = []
    began = time.monotonic()

    def compile_meanwhile() -> None:
        try:
            steps.run("kernels", lambda tell: compile_kernels(tell, first))
        except Exception as e:
            failed.append(e)

    # A daemon: if the rest fails, or at Ctrl-C, this process ends at once, and its compilers with it. What they have compiled stays.
    compiler = threading.Thread(target=compile_meanwhile, name="kernels", daemon=True)
    compiler.start()
    try:
        steps.run("jars", lambda tell: jars.fetch(progress=lambda p: tell(str(p))))
        steps.run("class archive of the broker", prepare)
        if not first:
            steps.run("class archive of Spark", write_archive)
        compiler.join()
    except DeployError as e:
        failed.insert(0, e)
    progress.end()
    for error in failed:
        if not isinstance(error, DeployError):
            raise error
        print(f"error: {error}", file=sys.stderr)
    if not failed and (summary := steps.summary()):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime + time.process_time()
        say(f"set up after {time.monotonic() - began:.0f} s, {cpu_s:.0f} s of processor time; some steps at the same time: {summary}")
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m dskype.deploy.cli.prepare", description="Fetch jars, write class archives and compile kernels.")
    parser.add_argument("--first", action="store_true", help="only what the demo and the default topology need; the rest makes later starts faster")
    sys.exit(main(parser.parse_args().first))
