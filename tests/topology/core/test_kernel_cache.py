"""Kernels that import others are compiled again when one of these changes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BOLTS = Path(__file__).parents[3] / "bolts"

PACKAGE = "dskype.bolts"  # of kernels that this test writes

FIRST = """from numba import njit

CONSTANT = {constant}


@njit(cache=True)
def step(n):
    return n + {step}
"""

SECOND = """from PACKAGE.first_kernels import step
from numba import njit


@njit(cache=True)
def two_steps(n):
    return step(step(n))
"""

THIRD = """from PACKAGE.first_kernels import CONSTANT
from PACKAGE.second_kernels import two_steps
from numba import njit


@njit(cache=True)
def result(n):
    return two_steps(n) + CONSTANT
"""

CALL = """
from PACKAGE.third_kernels import result
print(result(10), sum(result.stats.cache_hits.values()))
"""


@pytest.mark.parametrize("cache_folder", ["numba", None])
def test_a_kernel_follows_what_it_imports_through_other_files(tmp_path, cache_folder):
    package = tmp_path / "dskype" / "bolts"  # found before the installed one
    package.mkdir(parents=True)
    shutil.copy(BOLTS / "__init__.py", package)
    (package / "second_kernels.py").write_text(SECOND.replace("PACKAGE", PACKAGE))
    (package / "third_kernels.py").write_text(THIRD.replace("PACKAGE", PACKAGE))
    environ = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    if cache_folder:
        environ["NUMBA_CACHE_DIR"] = str(tmp_path / cache_folder)

    def call(constant, step):
        (package / "first_kernels.py").write_text(FIRST.format(constant=constant, step=step))
        done = subprocess.run([sys.executable, "-c", CALL.replace("PACKAGE", PACKAGE)], env=environ, capture_output=True, text=True, check=True, timeout=120)
        return [int(number) for number in done.stdout.split()]

    assert call(500, 1) == [512, 0]
    assert call(500, 1) == [512, 1]  # from the cache
    assert call(500, 2) == [514, 0]
    assert call(700, 2) == [714, 0]
