"""Spark's master takes programs only where the product sends them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from dskype.deploy.lab.system.standalone import standalone

ROOT = Path(__file__).parents[2]


def test_whoever_starts_a_master_is_told_to_close_its_other_door() -> None:
    """Since 4.1, a master takes programs at port 6066 without a password unless an option forbids it."""
    files = (p for folder in ("docs", "deploy") for pattern in ("*.md", "*.py", "*.sh", "*.yaml") for p in (ROOT / folder).rglob(pattern))
    starting = {str(p.relative_to(ROOT)): text for p in files if "deploy.master.Master" in (text := p.read_text(encoding="utf-8"))}
    assert set(starting) >= {"docs/guides/cluster.md", "deploy/compose/compose.yaml", "deploy/lab/system/standalone.py"}
    assert {name for name, text in starting.items() if "-Dspark.master.rest.enabled=false" not in text} == set()


@pytest.mark.product
def test_a_master_listens_for_workers_and_for_its_pages_alone(tmp_path: Path) -> None:
    with standalone(tmp_path / "cluster", workers=0) as cluster:
        master = psutil.Process(cluster._master.pid)
        listening = {c.laddr.port for c in master.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN}
    assert len(listening) == 2 and int(cluster.url.rpartition(":")[2]) in listening
