"""Problems of a standalone cluster are reported before a topology starts on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .standalone import hiding, standalone


def test_missing_workers_and_a_folder_that_is_not_shared_are_found_before_a_topology_starts(bootstrap_servers, tmp_path, name):
    folder = tmp_path / name / "snapshots"
    folder.mkdir(parents=True)
    with (
        standalone(tmp_path / "spark", workers=0, cores=2) as cluster,
        subprocess.Popen(
            [sys.executable, "-m", "tests.topology.runtime.preflight_program", cluster.url, str(folder), bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        ) as program,
    ):

        def ask(seconds: int, kind: str = "folder") -> str:
            program.stdin.write(f"{kind} {seconds}\n")
            program.stdin.flush()
            return program.stdout.readline().strip()

        assert program.stdout.readline().strip() == "ready"
        answer = ask(3)
        assert "no task slot within 3 s" in answer and "given: '0 executors at spark://" in answer and "whether workers are registered" in answer, answer
        without = cluster.add_worker(hiding(folder))  # a host on which there is an empty folder of that name
        answer = ask(90)
        assert "not one and the same folder on all hosts" in answer and "No such file" in answer and "topology.emulator.state.url" in answer, answer
        answer = ask(90, "kafka")
        assert answer.startswith("hosts: ["), answer
        without.close()
        cluster.add_worker()
        answer = ask(90)
        assert answer.startswith("hosts: ["), answer
        assert not list(folder.iterdir()), "the probes are removed"
        program.stdin.close()
        assert program.wait(60) == 0
