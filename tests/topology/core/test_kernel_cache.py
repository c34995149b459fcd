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


TAKES_A_TUPLE = """from typing import NamedTuple

import numpy as np
from numba import njit


@njit(cache=True)
def total(pair):
    return pair.numbers.sum() + {more}
"""

PAIR = """

class Pair(NamedTuple):
    numbers: np.ndarray
"""

TOTAL = """
import numpy as np
from PACKAGE.third_kernels import total
from PACKAGE.{home} import Pair
print(total(Pair(np.arange(4))), sum(total.stats.cache_hits.values()))
"""


def run(program, environ):
    done = subprocess.run([sys.executable, "-c", program.replace("PACKAGE", PACKAGE)], env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


@pytest.fixture
def package(tmp_path):
    package = tmp_path / "dskype" / "bolts"  # found before the installed one
    package.mkdir(parents=True)
    shutil.copy(BOLTS / "__init__.py", package)
    return package


@pytest.fixture
def environ(tmp_path):
    return {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": str(tmp_path / "numba")}


def test_a_kernel_whose_argument_class_has_moved_is_compiled_again(package, environ):
    (package / "third_kernels.py").write_text(TAKES_A_TUPLE.format(more=0) + PAIR)
    assert run(TOTAL.format(home="third_kernels"), environ) == [6, 0]
    assert run(TOTAL.format(home="third_kernels"), environ) == [6, 1]
    (package / "first_kernels.py").write_text("from typing import NamedTuple\n\nimport numpy as np\n" + PAIR)
    (package / "third_kernels.py").write_text(TAKES_A_TUPLE.format(more=1))
    assert run(TOTAL.format(home="first_kernels"), environ) == [7, 0]
    assert run(TOTAL.format(home="first_kernels"), environ) == [7, 1]


@pytest.mark.parametrize("cache_folder", ["numba", None])
def test_a_kernel_follows_what_it_imports_through_other_files(package, environ, cache_folder):
    (package / "second_kernels.py").write_text(SECOND.replace("PACKAGE", PACKAGE))
    (package / "third_kernels.py").write_text(THIRD.replace("PACKAGE", PACKAGE))
    if not cache_folder:
        del environ["NUMBA_CACHE_DIR"]

    def call(constant, step):
        (package / "first_kernels.py").write_text(FIRST.format(constant=constant, step=step))
        return run(CALL, environ)

    assert call(500, 1) == [512, 0]
    assert call(500, 1) == [512, 1]  # from the cache
    assert call(500, 2) == [514, 0]
    assert call(700, 2) == [714, 0]
