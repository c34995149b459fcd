"""What is in the repository is in the package."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

from dskype.deploy.machine.extras import SPARK

REPOSITORY = Path(__file__).parents[3]
ROOTS = ("topology", "spouts", "distribution", "bolts", "deploy")
SURFACE = Path("deploy/api")
"""The folder of the package ``dskype`` itself."""


def _setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    return parser


def test_setup_cfg_lists_every_folder_with_code() -> None:
    listed = set(_setup()["options"]["packages"].split())
    folders = {p.parent.relative_to(REPOSITORY) for root in ROOTS for p in (REPOSITORY / root).rglob("__init__.py")}
    present = {"dskype", *(".".join(("dskype", *folder.parts)) for folder in folders - {SURFACE})}
    assert present - listed == set(), "add these to 'packages' in setup.cfg"
    assert listed - present == set(), "remove these from 'packages' in setup.cfg"
    mapped = dict(line.split(" = ") for line in _setup()["options"]["package_dir"].strip().splitlines())
    assert {"dskype": str(SURFACE)} | {f"dskype.{root}": root for root in ROOTS if f"dskype.{root}" in listed} == mapped, (
        "'package_dir' in setup.cfg must map each of them"
    )


def test_setup_cfg_lists_every_file_that_is_not_code() -> None:
    data = {package: patterns.split() for package, patterns in _setup()["options.package_data"].items()}
    for root in ROOTS:
        for folder, _, names in os.walk(REPOSITORY / root):
            for name in names:
                path = Path(folder, name)
                if path.suffix in (".py", ".pyc", ".md") or "__pycache__" in path.parts:
                    continue
                assert any(
                    path.match(f"{REPOSITORY / (SURFACE if package == 'dskype' else package.removeprefix('dskype.').replace('.', '/'))}/{pattern}")
                    for package, patterns in data.items()
                    for pattern in patterns
                ), f"add {path.relative_to(REPOSITORY)} to package_data in setup.cfg"


def test_what_runs_topologies_comes_with_the_extra_spark_and_those_that_bring_it() -> None:
    setup = _setup()
    names = {
        extra: {re.split(r"[\s<>=]", line, maxsplit=1)[0].replace("-", "_") for line in lines.strip().splitlines()}
        for extra, lines in {"": setup["options"]["install_requires"], **setup["options.extras_require"]}.items()
    }
    assert {{"PyYAML": "yaml"}.get(name, name) for name in names["spark"]} == set(SPARK)
    assert {extra for extra, needed in names.items() if "dskype[spark]" in needed} == {"demo", "s3", "ui", "bench", "test", "docs"}
    for extra in names.keys() - {"spark"}:
        assert not names[extra] & names["spark"], extra
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert makefile.count("EXTRAS := spark,") == 2 and "-e '.[$(EXTRAS)]'" in makefile and "--extra spark" in makefile


def test_no_committed_text_of_ours_names_a_jar_repository() -> None:
    """Ivy's default, or what the user sets, decides where jars come from."""
    for path in [*(REPOSITORY / "deploy").rglob("*.py"), REPOSITORY / "Makefile", REPOSITORY / "setup.cfg"]:
        assert not re.search(r"maven\.org|maven2|pypi\.org|artifactory|nexus", path.read_text(encoding="utf-8")), path


def test_the_makefile_parses_and_says_what_there_is() -> None:
    told = subprocess.run(["make", "--no-print-directory"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert {"run", "test", "doctor", "clean"} <= {line.split()[0] for line in told.splitlines()}
