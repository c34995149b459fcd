"""Kernels do the same without compilation, where no index may be out of bounds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long


def test_the_kernels_pass_small_cases_without_compilation():
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "tests.without_jit"], cwd=root, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
