"""Make the pictures of the pages in the documents: ``python -m tests.screenshots``, from the folder of the repository.

It needs Chromium (``tests/topology/ui/browser.py``) and Pillow, which comes with matplotlib. The topology is made up: Kafka in memory, drawn from a
seed. Pictures have 255 colours, so that they are small.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.deploy.web.extension import make_extension
from dskype.topology.core.steady_clock import now_ms
from tests.deploy.web.memory_kafka import MemoryKafka
from tests.deploy.web.pages import draw, take, type_into
from tests.deploy.web.scene import messages, run_for, run_plan, watched
from tests.deploy.web.server import TOKEN, OneTopology, view
from tests.deploy.web.test_result_feed import write_result
from tests.topology.ui.browser import Browser

DOCS = Path(__file__).parents[1] / "docs" / "pictures"
_COLOURS = 255
_ENOUGH_BYTES = 400_000


def save(browser: Browser, name: str) -> int:
    """Write what the browser shows; return the size of the file."""
    from PIL import Image

    image = Image.open(io.BytesIO(browser.picture())).convert("RGB").quantize(_COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    DOCS.mkdir(exist_ok=True)
    image.save(DOCS / f"{name}.png", optimize=True)
    return (DOCS / f"{name}.png").stat().st_size


def registered(kafka: MemoryKafka, id: str, **fields: Any) -> None:
    """Write a subscription that is active, if it is not there."""
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, id, json.dumps(fields).encode())
    active = {"v": 1, "subscription": id, "registration": f"0-{len(kafka.broker.logs[topics.subscriptions, 0]) - 1}", "event": "active", "watermark": 0}
    kafka.broker.write(topics.registrations, id, json.dumps(active).encode())


def stage() -> tuple[MemoryKafka, OneTopology]:
    """Return a topology that has run for ten minutes."""
    kafka, source = MemoryKafka(), OneTopology()
    kafka.broker.time_ms = now_ms() - 5000
    run_plan(kafka, {"dskype.distributor": "agrid"}, 4)
    registered(kafka, "lake-park", type="topk", text="lake park", lat=43.04, lon=-87.9, k=6, alpha=0.5)
    source.views = [watched(view("dskype", 4), **{"dskype.distributor": "agrid"})]
    run_for(source.views[0].reports, 600, now_ms(), (0.32, 0.27, 0.22, 0.19))
    return kafka, source


def publish(kafka: MemoryKafka, end: threading.Event) -> None:
    """Publish messages, and results for ``lake-park``, until told to end."""
    topics, ranked = kafka.topology(), 0
    for number, one in enumerate(messages(100_000, 3), 1):
        kafka.broker.write(topics.messages, None, json.dumps(one).encode())
        near = abs(one["lat"] - 43.04) + abs(one["lon"] + 87.9)
        if near < 9 and {"lake", "park"} & set(one["text"].split()) and ranked < 6:
            ranked += 1
            write_result(kafka, topics, "lake-park", int(one["id"][1:]), score=round(0.93 - 0.017 * ranked - near / 900, 6), rank=ranked)
        if number % 60 == 0 and end.wait(0.1):
            return


def main() -> int:
    """Make all pictures; return 1 if they are too large together."""
    kafka, source = stage()
    end, size = threading.Event(), 0
    with tempfile.TemporaryDirectory() as folder, UiServer(source, UiSettings(port=0, token=TOKEN), [make_extension(kafka, source)]) as server:
        browser = Browser(Path(folder), (1280, 900))
        try:
            browser.open(f"{server.url}#token={TOKEN}")
            threading.Thread(target=publish, args=(kafka, end), daemon=True).start()
            browser.wait("parseInt(document.querySelector('#counts').innerText.replaceAll(',', '')) > 3000", 60)
            browser.run("dskype.map.setView([44, -90], 4.5, { animate: false })")
            take(browser, "polygon")
            draw(browser, (0.45, 0.62), (0.36, 0.45), (0.5, 0.34), (0.72, 0.4), (0.75, 0.6), (0.45, 0.62), clicks=True)
            type_into(browser, "expression", "coffee AND (lake OR park)")
            browser.wait("document.querySelector('.count')?.innerText.includes('match')")
            size += save(browser, "map")
            end.set()
            browser.open(f"{server.url}dskype/load.html")
            browser.wait("document.querySelectorAll('#charts canvas').length === 6 && document.querySelector('#plan img')?.naturalWidth > 0")
            size += save(browser, "load")
            browser.resize(430, 932)
            browser.open(f"{server.url}#sub=lake-park")
            browser.wait("document.querySelectorAll('#list tbody tr').length === 6")
            browser.run("window.scrollTo(0, 0)")
            size += save(browser, "subscribe")
        finally:
            browser.close()
    print(f"{size:,} bytes in {DOCS}")
    return int(size > _ENOUGH_BYTES)


if __name__ == "__main__":
    sys.exit(main())
