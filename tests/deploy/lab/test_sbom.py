"""The bill of materials names all that the lock files do, and every script of others."""

from __future__ import annotations

import re
from pathlib import Path

from dskype.deploy.lab import sbom

ROOT = Path(__file__).parents[3]


def test_everything_that_is_locked_or_vendored_is_in_it():
    bill = sbom.bill_of_materials()
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "1.6", "dskype")
    found = {one["purl"]: one for one in bill["components"]}
    assert len(found) == len(bill["components"]) and all(one["bom-ref"] == purl for purl, one in found.items())
    locked = {line.split()[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if re.match("[A-Za-z0-9]", line)}
    assert {purl.removeprefix("pkg:pypi/").replace("@", "==") for purl in found if purl.startswith("pkg:pypi/")} == locked
    jars = dict(line.split()[::-1] for line in (ROOT / "deploy/machine/jars.sha256").read_text().splitlines() if re.match("[0-9a-f]{64} ", line))
    named = {":".join((one["group"], one["name"], one["version"])): one["hashes"][0]["content"] for purl, one in found.items() if purl.startswith("pkg:maven/")}
    assert named == jars and found["pkg:npm/%40dagrejs/dagre@1.1.5"]["group"] == "@dagrejs"


def test_images_of_others_are_in_it_by_their_digests():
    found = {one["purl"]: one for one in sbom.bill_of_materials()["components"] if one["type"] == "container"}
    assert {purl.partition("@")[0] for purl in found} == {f"pkg:docker/{name}" for name in ("apache/kafka", "prom/prometheus", "grafana/grafana", "python")}
    files = (ROOT / "deploy/compose/.env").read_text() + (ROOT / "deploy/compose/Dockerfile").read_text()
    assert all(one["hashes"][0]["content"] in files for one in found.values())


def test_vendored_scripts_are_of_the_version_that_it_says():
    scripts = {path.relative_to(ROOT).as_posix() for folder in ("deploy", "topology") for path in (ROOT / folder).rglob("vendor/**/*.js")}
    assert scripts == set(sbom._SCRIPTS)
    for file, (_, version, _) in sbom._SCRIPTS.items():
        assert version in (ROOT / file).read_text(encoding="utf-8"), file
