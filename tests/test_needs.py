"""Nothing is skipped in CI, and tests install what they need one after the other."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).parents[1]


def test_what_cannot_be_tested_is_skipped_here_and_fails_in_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no engine"):
        needs.unavailable("no engine")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no engine"):
        needs.unavailable("no engine")


def test_what_ci_runs_sets_ci_for_the_tests(tmp_path):
    (tmp_path / "make").write_text("#!/bin/sh\necho CI=$CI, $@\n")
    (tmp_path / "make").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert done.stdout == "CI=true, test\n"


def test_no_test_is_skipped_in_another_way():
    marks = re.compile(r"\bpytest\.(skip\(|importorskip|mark\.(skip|xfail))|\bunittest\.skip|\bSkipTest\b")
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name not in ("needs.py", "test_needs.py")]
    assert [str(file) for file in files if marks.search(file.read_text())] == []


def test_missing_packages_are_installed_once_though_several_ask(tmp_path, monkeypatch):
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = update ] || {{ sleep 0.2; ln -sf /bin/true {tmp_path}/wanted; }}\n')
    apt.chmod(0o755)
    monkeypatch.setattr(needs, "PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(needs, "_LOCK", tmp_path / "lock")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    threads = [threading.Thread(target=needs.install, args=({"wanted": "some-package", "sh": "dash"}, "these tests")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (tmp_path / "asked").read_text().splitlines() == ["update -qq", "install -y -qq --no-install-recommends some-package"]
    (tmp_path / "wanted").unlink()
    apt.write_text("#!/bin/sh\necho no network >&2\nexit 100\n")
    with pytest.raises(needs.InstallationError, match=r"these tests need packages .* no network\s*; hint: apt-get install some-package"):
        needs.install({"wanted": "some-package"}, "these tests")


def test_a_program_is_fetched_once_and_only_if_its_wheel_has_the_checksum(tmp_path, tmp_home, monkeypatch):
    def archive(name, content, kind):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") if kind == "zip" else tarfile.open(fileobj=packed, mode="w:gz") as out:
            if kind == "zip":
                out.writestr(name, content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))
        return packed.getvalue()

    wheel = archive("data/pack-1.tgz", archive("package/tool", b"#!/bin/sh\necho it runs\n", "tar"), "zip")
    (tmp_path / "wheel").write_bytes(wheel)
    pip = tmp_path / "pip"
    pip.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ -e {tmp_path}/wheel ] || {{ echo no such project >&2; exit 1; }}\ncp {tmp_path}/wheel "${{10}}/a.whl"\n'
    )
    pip.chmod(0o755)
    monkeypatch.setattr(needs.sys, "executable", str(pip))
    monkeypatch.setattr(needs, "_LOCK", tmp_path / "lock")
    sha256 = hashlib.sha256(wheel).hexdigest()
    with pytest.raises(needs.InstallationError, match=f"these tests need some-tool==1: expected SHA-256 {'0' * 64}, given: {sha256}"):
        needs.fetched("some-tool==1", "0" * 64, ".tgz", "tool", purpose="these tests")
    programs = {needs.fetched("some-tool==1", sha256, ".tgz", "package/tool", purpose="these tests") for _ in range(2)}
    assert subprocess.run([*programs], capture_output=True, text=True).stdout == "it runs\n"
    assert len((tmp_path / "asked").read_text().splitlines()) == 2, "once in vain, and once"
    (tmp_path / "wheel").unlink()
    with pytest.raises(needs.InstallationError, match="these tests need other==2, which cannot be fetched: no such project"):
        needs.fetched("other==2", sha256, "tool", purpose="these tests")
