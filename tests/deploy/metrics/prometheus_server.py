"""A real Prometheus and its ``promtool``, of the Debian package ``prometheus``, which is installed if root runs the tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from dskype.deploy.machine.broker import free_ports
from dskype.deploy.machine.processes import spawn_tied
from tests.needs import InstallationError, install, unavailable, which
from tests.waiting import wait_for

__all__ = ["Prometheus", "prometheus", "promtool"]


@cache
def _installed() -> None:
    try:
        install({"prometheus": "prometheus", "promtool": "prometheus"}, "tests of metrics and alerts")
    except InstallationError as error:
        unavailable(str(error))


def promtool(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``promtool``, with ``text`` as its input."""
    _installed()
    return subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, check=False, timeout=60)


class Prometheus:
    """A server at ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _get(self, path: str, **parameters: str) -> Any:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now."""
        return self._get("query", query=expression)["result"]

    def rules(self) -> list[dict[str, Any]]:
        """Return its alert rules, with their state and health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        try:
            return bool(self._get("status/config"))
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, target: str, rules: Path, token: str | None = None) -> Iterator[Prometheus]:
    """Yield a server that scrapes ``target`` (host:port) every second, with a token if there is one, and evaluates rules as often."""
    shown = {} if token is None else {"authorization": {"credentials": token}}
    _installed()
    folder.mkdir()
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [{"job_name": "dskype", "static_configs": [{"targets": [target]}], **shown}],
            }
        )
    )
    port = free_ports(1)[0]
    with open(folder / "log", "wb") as log:
        process = spawn_tied(
            [
                str(which("prometheus")),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        wait_for(server.is_ready, 60, "an answer of Prometheus")
        yield server
    finally:
        process.terminate()
        process.wait(timeout=60)
