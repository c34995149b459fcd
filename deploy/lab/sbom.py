"""Write a bill of materials, CycloneDX 1.6 as JSON: ``python -m dskype.deploy.lab.sbom FILE``, which ``make sbom`` calls.

It has what the two lock files name, with their checksums, the scripts of others that lie in the repository, and the images of others that containers are made from. So it is the same wherever it is written from the same commit.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dskype.deploy.machine.jars import read_manifest

__all__ = ["bill_of_materials"]

_ROOT = Path(__file__).parents[2]
_SCRIPTS = {
    "deploy/web/static/vendor/leaflet/leaflet.js": ("leaflet", "1.9.4", "BSD-2-Clause"),
    "deploy/web/static/vendor/uplot/uPlot.iife.min.js": ("uplot", "1.6.32", "MIT"),
    "topology/ui/static/vendor/dagre/dagre.min.js": ("@dagrejs/dagre", "1.1.5", "MIT"),
}


def bill_of_materials(root: Path = _ROOT) -> dict[str, Any]:
    """Return the document as plain values.

    :param root: the repository.
    """
    found = [*_python(root), *_java(), *_scripts(root), *_images(root)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "dskype", "version": importlib.metadata.version("dskype")}},
        "components": sorted(found, key=lambda one: str(one["purl"])),
    }


def _component(kind: str, name: str, version: str, **more: Any) -> dict[str, Any]:
    group, _, base = name.rpartition("/")
    place = f"{group.replace('@', '%40')}/{base}" if group else base
    purl = f"pkg:{kind}/{place}@{version}"
    return {
        "type": "container" if kind == "docker" else "library",
        "bom-ref": purl,
        **({"group": group} if group else {}),
        "name": base,
        "version": version,
        "purl": purl,
        **more,
    }


def _python(root: Path) -> Iterator[dict[str, Any]]:
    # A package of the lock has a checksum for each of its files; which one pip takes depends on the machine, so none is named.
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", (root / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE):
        yield _component("pypi", name, version)


def _java() -> Iterator[dict[str, Any]]:
    jars: Mapping[tuple[str, str, str], str] = {(jar.group, jar.artifact, jar.version): jar.sha256 for jars in read_manifest().values() for jar in jars}
    for (group, artifact, version), sha256 in jars.items():
        yield _component("maven", f"{group}/{artifact}", version, hashes=[{"alg": "SHA-256", "content": sha256}])


def _scripts(root: Path) -> Iterator[dict[str, Any]]:
    for file, (name, version, licence) in _SCRIPTS.items():
        sha256 = hashlib.sha256((root / file).read_bytes()).hexdigest()
        yield _component("npm", name, version, hashes=[{"alg": "SHA-256", "content": sha256}], licenses=[{"license": {"id": licence}}])


def _images(root: Path) -> Iterator[dict[str, Any]]:
    text = "".join((root / "deploy/compose" / file).read_text(encoding="utf-8") for file in (".env", "Dockerfile"))
    for name, tag, sha256 in re.findall(r"=([\w./-]+):([\w.-]+)@sha256:([0-9a-f]{64})$", text, re.MULTILINE):
        yield _component("docker", name, tag, hashes=[{"alg": "SHA-256", "content": sha256}])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
