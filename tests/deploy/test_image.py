"""The Dockerfile, without building it: what it copies, runs and installs is there, and it leaves out only what no feature needs."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FEATURES = ("spark", "demo", "redis", "s3", "tls", "ui", "languages", "schemas")
"""The extras of setup.cfg that the image has."""


def instructions(kind: str) -> list[str]:
    """Return the arguments of all instructions of a kind, each on one line."""
    text = (ROOT / "deploy/compose/Dockerfile").read_text()
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]


def argument(name: str) -> list[str]:
    """Return the words of the default of a build argument."""
    (words,) = re.findall(rf'^{name}="(.*)"$', "\n".join(instructions("ARG")), re.MULTILINE)
    return words.split()


def ignored(path: str) -> bool:
    """Tell whether .dockerignore keeps a path of the repository, or a folder above it, out of the build."""
    patterns = (ROOT / ".dockerignore").read_text().split()
    parents = [str(p) for p in (Path(path), *Path(path).parents)]
    return any(fnmatch(f"/{parent}", f"*/{p[3:]}" if p.startswith("**/") else f"/{p}") for parent in parents for p in patterns)


def needed() -> set[str]:
    """Return the packages that our features need, directly or not."""
    setup = configparser.ConfigParser(comment_prefixes="#")
    setup.read(ROOT / "setup.cfg")
    lists = [setup["options"]["install_requires"], *(setup["options.extras_require"][extra] for extra in FEATURES)]
    todo = [Requirement(line) for text in lists for line in text.strip().splitlines() if line != "dskype[spark]"]
    found: set[tuple[str, frozenset[str]]] = set()
    while todo:
        wanted = todo.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in found:
            continue
        found.add(key)
        for text in distribution(wanted.name).requires or ():
            below = Requirement(text)
            if below.marker is None or any(below.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                todo.append(below)
    return {name for name, _ in found}


def entries(lock: str) -> dict[str, str]:
    """Return name -> lines of a lock (all versions)."""
    found: dict[str, str] = {}
    for entry in re.findall(r"^[a-z](?:.*\\\n)*.*\n", lock, re.MULTILINE):
        name = canonicalize_name(entry.split("==")[0])
        found[name] = found.get(name, "") + entry
    return found


def is_installed(name: str) -> bool:
    """Tell whether a package is here; some of the lock are for other platforms only."""
    try:
        return bool(distribution(name))
    except ModuleNotFoundError:
        return False


def test_what_is_copied_is_there_and_not_ignored():
    for copied in instructions("COPY"):
        for source in re.sub(r"--\S+ ", "", copied).split()[:-1]:
            assert (ROOT / source).exists() and not ignored(source), source


def test_the_context_has_what_runs_and_nothing_that_git_ignores():
    for path in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "topology/core/executor.py", "deploy/compose/.env", "deploy/kubernetes/executor.sh"):
        assert (ROOT / path).is_file() and not ignored(path), path
    assert all(ignored(path) for path in (".git", "tests/naive.py", "deploy/cli/__pycache__/a.pyc"))
    for pattern in (ROOT / ".gitignore").read_text().split():
        example = re.sub(r"\[(.).*?\]", r"\1", pattern).replace("*", "a").rstrip("/")
        assert ignored(example), pattern
    for package in {p.name for p in ROOT.iterdir() if (p / "__init__.py").is_file()} - {"tests"}:
        for file in (ROOT / package).rglob("*.py"):
            assert not re.search(r"^\s*(from|import) tests\b", file.read_text(), re.MULTILINE), f"{file} is in the image, and tests are not"


@pytest.mark.long
def test_commands_are_shell_and_run_modules_and_options_that_exist():
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--help"], capture_output=True, text=True, check=True).stdout
    for command in instructions("RUN"):
        assert subprocess.run(["sh", "-n", "-c", command], check=False).returncode == 0, command
        for module in re.findall(r"python3? -m ([\w.]+)", command):
            assert importlib.util.find_spec(module), module
        for install in re.findall(r"pip install ([^&]*)", command):
            for option in re.findall(r"--[a-z0-9-]+", install):
                assert re.search(rf"{option}\b", pip), option


def test_the_image_leaves_out_exactly_what_no_feature_needs():
    locked = entries((ROOT / "requirements.lock").read_text())
    installed = {name for name in locked if is_installed(name)}
    assert set(argument("WITHOUT")) == installed - needed() - {"setuptools"}


@pytest.mark.parametrize("output", ["/tmp/all.lock", "/tmp/setuptools.lock"])
def test_the_locks_of_the_image_are_parts_of_the_lock(tmp_path, output):
    lock = (ROOT / "requirements.lock").read_text()
    (tmp_path / "requirements.lock").write_text(lock)
    (command,) = (part for run in instructions("RUN") for part in run.split("&& ") if f"> {output}" in part)
    written = tmp_path / "written.lock"
    environment = {"PATH": "/usr/bin:/bin", "WITHOUT": " ".join(argument("WITHOUT"))}
    subprocess.run(["sh", "-c", command.replace(output, str(written))], cwd=tmp_path, env=environment, check=True)
    everything = entries(lock)
    wanted = {"setuptools"} if "setuptools" in output else everything.keys() - set(argument("WITHOUT"))
    assert entries(written.read_text()) == {name: everything[name] for name in wanted}


def test_images_of_others_are_named_by_digest():
    (base,) = re.findall(r"^BASE=(.*)$", "\n".join(instructions("ARG")), re.MULTILINE)
    named = {name: image for name, image in values(".env").items() if name.endswith("_IMAGE") and name != "DSKYPE_IMAGE"} | {"BASE": base}
    assert len(named) == 4 and {name: image for name, image in named.items() if not re.fullmatch(r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", image)} == {}
    others = re.findall(
        r"image: (?!\$\{)(.+)|FROM (?!\$\{BASE\})(.+)", "".join(path.read_text() for path in (ROOT / "deploy/compose").iterdir() if path.is_file())
    )
    assert others == [], "an image that is not one of these"


def test_users_programs_and_paths_agree_with_what_starts_the_image():
    (user,) = instructions("USER")
    contexts = re.findall(r"runAsUser: (\d+), runAsGroup: (\d+)", (ROOT / "deploy/kubernetes/dskype/templates/_helpers.tpl").read_text())
    assert [":".join(ids) for ids in contexts] == [user], "by number, or Kubernetes cannot tell that it is not root"
    packages = argument("APT_PACKAGES")
    (entrypoint,) = instructions("ENTRYPOINT")
    assert json.loads(entrypoint)[0] in packages
    assert "curl" in (ROOT / "deploy/compose/compose.yaml").read_text() and "curl" in packages
    assert "/opt/dskype" in instructions("WORKDIR"), "where executor pods look for their command"


def values(*names: str) -> dict[str, str]:
    """Return the variables of files beside the compose file; those of later ones win."""
    return {key: value for name in names for key, value in re.findall(r"^(\w+)=(.*)$", (ROOT / "deploy/compose" / name).read_text(), re.MULTILINE)}


def test_with_three_brokers_two_equal_drivers_wait_for_each_other():
    services = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())["services"]
    driver, standby = services["topology"], services["standby"]
    assert standby["command"] == driver["command"] and standby["environment"] == driver["environment"]
    assert {name for name, service in services.items() if "profiles" in service} == {"kafka-2", "kafka-3", "standby"}
    assert all(service.get("hostname", name) == name for name, service in services.items()), "a driver is found by the name of its host"
    (*_, shell) = driver["command"]
    assert 'spark.driver.host="\\"$$(hostname)\\""' in shell and "submit -R ${TOPOLOGY} ${SUBMIT_OPTIONS} " in shell
    one, two = values(".env"), values(".env", "ha.env")
    slots = int(two["WORKER_CORES"])
    assert one["SUBMIT_OPTIONS"] == "" and two["SUBMIT_OPTIONS"] == f"--standby -c spark.cores.max={slots}"
    assert slots / 2 >= int(one["WORKER_CORES"]), "half of the slots of one worker hold all tasks"
    assert 2 * int(two["EXECUTOR_MEMORY"].rstrip("m")) <= int(two["WORKER_MEMORY"].rstrip("m")), "a worker has room for both drivers' executors"
    assert standby["depends_on"] == {"topology": {"condition": "service_healthy"}} and not standby["volumes"]


def test_every_container_is_limited_and_can_write_only_where_it_has_to():
    folder = ROOT / "deploy/compose"
    for file in ("compose.yaml", "secure.yaml"):
        services = {name: one for name, one in yaml.safe_load((folder / file).read_text())["services"].items() if "image" in one}
        assert services, file
        for name, one in services.items():
            assert one["read_only"] is True and one["cap_drop"] == ["ALL"] and one["security_opt"] == ["no-new-privileges:true"], name
            assert one["pids_limit"] > 0 and values(".env")[one["mem_limit"].strip("${}")][-1] in "mg", name
            assert not one.get("privileged") and all("size=" in mount or mount.startswith(("/home", "/var")) for mount in one.get("tmpfs", ())), name


def test_a_container_begins_with_links_to_what_the_image_has_and_replaces_those_that_it_writes(tmp_path):
    image, home = tmp_path / "image", tmp_path / "home"
    (image / "numba" / "module").mkdir(parents=True)
    (image / "numba" / "module" / "index").write_text("of the image")
    (image / "jars").mkdir()
    home.mkdir()
    command = [
        str(ROOT / "deploy/compose/home.sh"),
        "sh",
        "-c",
        'cd "$DSKYPE_HOME" && cat numba/module/index && echo mine > new && mv new numba/module/index && ls',
    ]
    environment = {"PATH": "/usr/bin:/bin", "DSKYPE_HOME": str(home), "DSKYPE_IMAGE_HOME": str(image)}
    found = [subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    assert found == ["of the imagejars\nnumba\n", "mine\njars\nnumba\n"], "a container that is started again keeps what its file system has kept"
    assert (image / "numba" / "module" / "index").read_text() == "of the image"


def test_prometheus_asks_all_servers_at_the_ports_and_names_that_they_have():
    folder = ROOT / "deploy/compose"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    jobs = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    assert targets == {"dskype": ["metrics:9464"], "dskype-ui": [f"ui:{values('.env')['UI_PORT']}"]}
    command = services["ui"]["command"]
    assert command[command.index("ui", command.index("ui") + 1) - 1] == "--allow-host"
