"""The lock of Python packages: complete, within our ranges, with a hash for everything."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dskype.deploy.machine.jars import read_manifest

ROOT = Path(__file__).parents[2]


def locked() -> dict[str, list[Requirement]]:
    """Return name -> what is locked (several where versions of Python differ); every entry has hashes."""
    found: dict[str, list[Requirement]] = {}
    text = (ROOT / "requirements.lock").read_text()
    for entry in re.sub(r" \\\n\s*", " ", text).splitlines():
        requirement, *hashes = entry.split(" --hash=")
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", h.strip()) for h in hashes), entry[:80]
        parsed = Requirement(requirement)
        assert [s.operator for s in parsed.specifier] == ["=="], requirement
        found.setdefault(canonicalize_name(parsed.name), []).append(parsed)
    return found


def wanted() -> list[Requirement]:
    """Return what ``pip install -e .[spark,demo,test,check]`` asks for."""
    setup = configparser.ConfigParser(comment_prefixes="#")
    setup.read(ROOT / "setup.cfg")
    texts = [setup["options"]["install_requires"], *(setup["options.extras_require"][extra] for extra in ("spark", "demo", "test", "check")), "setuptools>=77"]
    return [Requirement(line) for text in texts for line in text.strip().splitlines() if line != "dskype[spark]"]


def test_nothing_says_to_install_from_the_package_index_by_name() -> None:
    """Nobody owns the name there: whoever takes it would run code wherever such a line is typed."""
    files = {p for pattern in ("*.py", "*.md", "*.yaml", "*.yml", "*.cfg", "Makefile", "Dockerfile") for p in ROOT.rglob(pattern)} - {Path(__file__)}
    ours = [p for p in files if not {".venv", "build", "dist"} & set(p.relative_to(ROOT).parts)]
    said = {str(p.relative_to(ROOT)): found for p in ours if (found := re.findall(r"pip3? install (?:-[\w-]+ )*['\"]?dskype\b.*", p.read_text()))}
    assert not said


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_the_lock_has_everything_that_the_install_asks_for(requirement: Requirement) -> None:
    versions = [next(iter(r.specifier)).version for r in locked()[canonicalize_name(requirement.name)]]
    assert versions and all(requirement.specifier.contains(v) for v in versions)


def test_the_connector_is_that_of_the_pyspark_in_setup_cfg() -> None:
    """Only setup.cfg names Spark's version; `make relock` writes it to both locks."""
    (named,) = [next(iter(r.specifier)).version for r in wanted() if r.name == "pyspark"]
    found = {jar.artifact.rsplit("_2.", 1)[0]: jar.version for jar in read_manifest()["spark"]}
    assert found["spark-sql-kafka-0-10"] == found["spark-token-provider-kafka-0-10"] == named


def test_the_lock_names_no_host_and_no_path() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|--index|--find-links|^-|^#|@ ", text, re.M)


def test_the_documents_say_how_to_use_it() -> None:
    assert "pip install --require-hashes -r requirements.lock" in (ROOT / "SECURITY.md").read_text()
    assert "LOCKED" in (ROOT / "Makefile").read_text()
