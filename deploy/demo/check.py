"""The last step of a demo: compare everything that was published with a plain computation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dskype.deploy.machine.terminal import plain
from dskype.deploy.verification import verify
from dskype.deploy.verification.topics import read_inputs
from dskype.spouts.settings import Settings
from dskype.topology.runtime.kafka.clients import KafkaSettings

__all__ = ["check_results"]


def check_results(kafka: KafkaSettings, topology: str, settings: Settings, console: Any, say: Callable[[str], None]) -> int:
    """Compare all results of a topology at rest with a plain computation, and print the outcome.

    :param console: a rich console.
    :param say: gets one line of text per step.
    :returns: the exit code: 0, or 1 if something differs.
    """
    say("comparing all results with a plain computation")
    began = time.monotonic()
    report = verify(read_inputs(kafka, topology), settings, final=True)
    if not report.ok:
        console.print(plain(report.as_text(3)), markup=False, emoji=False, soft_wrap=True)
        return 1
    n = report.compared
    results = n["deltas"] + n["matches"] + n["results of objects"]
    lists = "" if settings.objects else f", {n['lists']:,} published lists and the final lists of {n['final lists']:,} subscriptions"
    console.print(f"verified  {results:,} results{lists} are those of a plain computation ({time.monotonic() - began:.0f} s)", soft_wrap=True)
    return 0
