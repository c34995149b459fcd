"""Measure frames and memory of the map while messages come for long: ``python -m tests.map_endurance``, from the folder of the repository.

It needs Chromium (``tests/topology/ui/browser.py``). Without ``--url`` the feed is made up: Kafka in memory and the server of the pages, in this process. With
``--url`` the page is that of a server which runs already, and what comes is what is published there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.deploy.web.extension import make_extension
from dskype.topology.core.steady_clock import now_ms
from tests.deploy.web.memory_kafka import MemoryKafka
from tests.deploy.web.scene import messages, run_plan
from tests.deploy.web.server import TOKEN, OneTopology
from tests.deploy.web.test_result_feed import write_result
from tests.screenshots import registered
from tests.topology.ui.browser import Browser

_MIB = 1 << 20
_STEP_S = 0.02
_DRAWN = 50_000
"""Messages that are drawn; then they come again under other ids."""
_GROWN = 0.05
"""More memory in the last third of the time than in the middle one, by this share, is growth."""
_WATCH = """
    const frames = (window.measured = { gaps: new Float64Array(1 << 16), n: 0, last: null });
    requestAnimationFrame(function next(now) {
      if (frames.last !== null && frames.n < frames.gaps.length) frames.gaps[frames.n++] = now - frames.last;
      frames.last = now;
      requestAnimationFrame(next);
    });
"""
_READ = """
    const { gaps, n } = measured, sorted = gaps.slice(0, n).sort();
    const found = { frames: n, median_ms: sorted[n >> 1], p99_ms: sorted[Math.floor(n * 0.99)], longest_ms: sorted[n - 1], secs: gaps.slice(0, n).reduce((a, b) => a + b, 0) / 1000 };
    return { ...found, drawn: dskype.dots.frames, dots: dskype.dots.messages.length, things: dskype.things.things.size, said: document.getElementById('counts').innerText };
"""
_BEGIN = "measured.n = 0; measured.last = null;"
_COLUMNS = (
    ("s", "elapsed_s", ".0f"),
    ("frames/s", "per_second", ".1f"),
    ("median ms", "median_ms", ".1f"),
    ("99 % ms", "p99_ms", ".1f"),
    ("longest ms", "longest_ms", ".0f"),
    ("map drawn/s", "drawn_per_second", ".1f"),
    ("busy %", "busy_percent", ".0f"),
    ("heap MiB", "heap_mib", ".2f"),
    ("nodes", "nodes", ".0f"),
    ("listeners", "listeners", ".0f"),
    ("process MiB", "process_mib", ".0f"),
    ("dots", "dots", ".0f"),
)


def renderer_mib(root: int) -> float:
    """Return the resident memory of the largest process that renders pages, among the descendants of a process."""
    found, pending = 0, [root]
    while pending:
        pid = pending.pop()
        try:
            pending += [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
            if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found = max(found, int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096)
        except OSError:
            continue  # it has ended
    return found / _MIB


def feed(kafka: MemoryKafka, per_second: float, results_per_second: float, end: threading.Event) -> None:
    """Publish messages at a rate until told to end; some are results of the subscription that the page follows."""
    topics, drawn, number, begun_s = kafka.topology(), messages(_DRAWN, 3), 0, time.monotonic()
    while not end.wait(_STEP_S):
        while number < (time.monotonic() - begun_s) * per_second:
            one = {**drawn[number % _DRAWN], "id": f"m{number}"}
            kafka.broker.write(topics.messages, None, json.dumps(one).encode())
            if int(number * results_per_second / per_second) > int((number - 1) * results_per_second / per_second):
                write_result(kafka, topics, "lake-park", number, op="match")
            number += 1


@contextmanager
def made_up(per_second: float, results_per_second: float) -> Iterator[str]:
    """Serve the pages of a topology that gets messages at a rate; yield the address of the map."""
    kafka, source, end = MemoryKafka(), OneTopology(), threading.Event()
    kafka.broker.time_ms = now_ms() - 1000
    run_plan(kafka, {"dskype.distributor": "agrid"}, 4)
    registered(kafka, "lake-park", type="boolean", bbox=[-98, 33, -78, 53], expression="lake OR park")
    with UiServer(source, UiSettings(port=0, token=TOKEN), [make_extension(kafka, source)]) as server:
        thread = threading.Thread(target=feed, args=(kafka, per_second, results_per_second, end))
        thread.start()
        try:
            yield f"{server.url}#sub=lake-park&partitions=true"
        finally:
            end.set()
            thread.join()


class Sampler:
    """Measures a page that shows the map.

    :param browser: shows it.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        browser.devtools("Network.disable")  # the driver has enabled it, and a browser that is inspected keeps what comes
        browser.devtools("Performance.enable")
        browser.devtools("HeapProfiler.enable")
        browser.run(_WATCH)
        self._begun_s = time.monotonic()
        self._before: dict[str, Any] = {"drawn": browser.run("return dskype.dots.frames"), **self._metrics()}

    def _metrics(self) -> dict[str, float]:
        return {row["name"]: row["value"] for row in self._browser.devtools("Performance.getMetrics")["metrics"]}

    def sample(self) -> dict[str, Any]:
        """Return what the page did since the last sample, and what it holds after a garbage collection, which no frame is measured during."""
        frames, busy = self._browser.run(_READ), self._metrics()
        secs = busy["Timestamp"] - self._before["Timestamp"]
        for _ in range(2):  # what the first one finds keeps nodes until the second one
            self._browser.devtools("HeapProfiler.collectGarbage")
        held = self._metrics()
        found = {
            **frames,
            "elapsed_s": time.monotonic() - self._begun_s,
            "per_second": frames["frames"] / max(frames["secs"], 1e-3),
            "drawn_per_second": (frames["drawn"] - self._before["drawn"]) / secs,
            "busy_percent": 100 * (busy["TaskDuration"] - self._before["TaskDuration"]) / secs,
            "heap_mib": held["JSHeapUsedSize"] / _MIB,
            "nodes": held["Nodes"],
            "listeners": held["JSEventListeners"],
            "process_mib": renderer_mib(self._browser.pid),
        }
        self._before = {"drawn": frames["drawn"], **held}
        self._browser.run(_BEGIN)
        return found


def line(sample: dict[str, Any]) -> str:
    """Return a sample as a row of the table."""
    return "  ".join(f"{sample[name]:>{len(head)}{form}}" for head, name, form in _COLUMNS)


def summary(samples: list[dict[str, Any]]) -> list[str]:
    """Return a table in Markdown: the first sample, medians of the second and the last third, and the greatest value."""
    third = len(samples) // 3
    rows = ["| value | at the beginning | in the middle | at the end | most |", "|---|---|---|---|---|"]
    for head, name, form in _COLUMNS[1:]:
        column = [sample[name] for sample in samples]
        values = (column[0], median(column[third : 2 * third]), median(column[-third:]), max(column))
        rows.append(f"| {head} | {' | '.join(f'{value:,{form}}' for value in values)} |")
    return rows


def grown(samples: list[dict[str, Any]], name: str = "heap_mib") -> float:
    """Return by which share a value was greater in the last third of the time than in the middle one."""
    third, column = len(samples) // 3, [sample[name] for sample in samples]
    return median(column[-third:]) / median(column[third : 2 * third]) - 1


def main(given: list[str] | None = None) -> int:
    """Keep the map open, and print and write what it took; return 1 if its memory has grown."""
    parser = argparse.ArgumentParser(prog="python -m tests.map_endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="default: 10")
    parser.add_argument("--every", metavar="SECS", type=float, default=10, help="between two samples; default: 10")
    parser.add_argument("--rate", metavar="N", type=float, default=1000, help="messages per second of the feed that is made up; default: 1000")
    parser.add_argument("--results", metavar="N", type=float, default=5, help="of these that are results of the subscription that the page follows; default: 5")
    parser.add_argument("--url", help="of a map that is served; #sub=ID behind it follows a subscription")
    parser.add_argument("--result", metavar="FILE", type=Path, help="write all samples there as JSON")
    args = parser.parse_args(given)
    samples = []
    with tempfile.TemporaryDirectory() as folder, nullcontext(args.url) if args.url else made_up(args.rate, args.results) as url:
        browser = Browser(Path(folder), (1280, 900))
        try:
            browser.open(url)
            browser.wait("parseInt(document.querySelector('#counts').innerText) > 0")
            sampler, heads = Sampler(browser), [head for head, _, _ in _COLUMNS]
            print("  ".join(heads), flush=True)
            begun_s = time.monotonic()
            while time.monotonic() - begun_s < args.minutes * 60:
                time.sleep(args.every)
                samples.append(sampler.sample())
                print(line(samples[-1]), samples[-1]["said"], sep="  ", flush=True)
            problems = browser.problems()
        finally:
            browser.close()
    print("\n".join(summary(samples)), *problems, sep="\n")
    print(f"the heap has grown by {grown(samples):.1%} from the middle to the end")
    if args.result:
        args.result.write_text("\n".join(json.dumps(sample) for sample in samples) + "\n")
    return int(bool(problems) or grown(samples) > _GROWN)


if __name__ == "__main__":
    sys.exit(main())
