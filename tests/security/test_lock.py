"""The lock of Python packages: complete, within our ranges, with a hash for everything."""

from __future__ import annotations

import configparser
import importlib.metadata
import json
import re
import shlex
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dskype.topology.extras import how_to_install

from ..test_links import files

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
    """Return what ``pip install -e .[demo,test,check]`` asks for."""
    setup = configparser.ConfigParser(comment_prefixes="#")
    setup.read(ROOT / "setup.cfg")
    texts = [setup["options"]["install_requires"], *(setup["options.extras_require"][extra] for extra in ("demo", "test", "check")), "setuptools>=77"]
    return [Requirement(line) for text in texts for line in text.strip().splitlines()]


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_the_lock_has_everything_that_the_install_asks_for(requirement: Requirement) -> None:
    versions = [next(iter(r.specifier)).version for r in locked()[canonicalize_name(requirement.name)]]
    assert versions and all(requirement.specifier.contains(v) for v in versions)


def test_the_lock_names_no_host_and_no_path() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|--index|--find-links|^-|^#|@ ", text, re.M)


def test_the_documents_say_how_to_use_it() -> None:
    assert "pip install --require-hashes -r requirements.lock" in (ROOT / "SECURITY.md").read_text()
    assert "LOCKED" in (ROOT / "Makefile").read_text()


def test_nothing_tells_to_install_a_name_that_anybody_may_register() -> None:
    named = re.compile(r"pip3? install [^`\n]*?(?<![\w./*-])[\"']?dskype(?:\[|[\"'\s`)]|$)")
    assert named.search("pip install 'dskype[ui]'") and named.search("pip install -U dskype") and not named.search("pip install '/path/to/dskype[ui]'")
    texts = [path for path in files(".md", ".py", ".yaml", ".yml", ".cfg", ".toml", ".sh", "Makefile", "Dockerfile", ".js", ".html") if path != Path(__file__)]
    assert len(texts) > 500
    assert {str(path.relative_to(ROOT)): found[0] for path in texts if (found := named.search(path.read_text()))} == {}
    assert "not on the public index" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("noted", "arguments"),
    [
        ({"url": "file:///opt/a%20b/dskype", "dir_info": {}}, ["/opt/a b/dskype[ui]"]),
        ({"url": "file:///src", "dir_info": {"editable": True}}, ["-e", "/src[ui]"]),
        ({"url": "https://host/dskype.whl"}, ["/path/to/dskype[ui]"]),
        (None, ["/path/to/dskype[ui]"]),
    ],
)
def test_an_extra_is_installed_from_the_folder_that_the_package_came_from(
    monkeypatch: pytest.MonkeyPatch, noted: dict[str, object] | None, arguments: list[str]
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if noted is None else json.dumps(noted)

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed())
    assert shlex.split(how_to_install("ui")) == ["pip", "install", *arguments]
