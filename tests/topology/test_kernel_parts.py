"""Kernels that only other kernels call are compiled as far as their callers need it."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long  # compiles

PACKAGE = "dskype.bolts"  # of kernels that this test writes

STEPS = """
import numpy as np
from dskype.topology.kernel_cache import njit


@njit(cache=True)
def checked(values, n):
    if n < 0:
        raise ValueError("n must not be negative")
    return values[:n]


@njit(cache=True)
def total(values, n):
    return checked(values, n).sum()


@njit(cache=True)
def countdown(n):
    return 0 if n == 0 else 1 + countdown(n - 1)


@njit(cache=True)
def twice(n):
    return 2 * countdown(n)


VALUES = np.arange(10.0)
"""

MADE = """
def made(kernel):
    return [bool(getattr(form.library, "_compiled_object", None)) for form in kernel.overloads.values()]
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a program beside a module of kernels, in a process of its own, and returns what it prints."""
    package = tmp_path / "dskype" / "bolts"
    package.mkdir(parents=True)
    (package / "steps_kernels.py").write_text(STEPS)
    (package / "more_kernels.py").write_text(
        f"from {PACKAGE}.steps_kernels import checked\nfrom dskype.topology.kernel_cache import njit\n\n\n"
        "@njit(cache=True)\ndef first(values, n):\n    return checked(values, n)[0]\n"
    )
    start = f"import sys, dskype.bolts\ndskype.bolts.__path__.append({str(package)!r})\nfrom PACKAGE.steps_kernels import *\n{MADE}"

    def run(program):
        environ = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", (start + program).replace("PACKAGE", PACKAGE)], env=environ, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run


def test_what_only_kernels_call_gets_no_machine_code_of_its_own(run):
    assert run("print(total(VALUES, 4), made(total), made(checked))") == ["6.0", "[True]", "[False]"]


def test_a_part_that_python_calls_later_is_compiled_as_a_whole(run):
    program = "print(total(VALUES, 4), checked(VALUES, 2).sum(), total(VALUES, 5), made(checked))"
    assert run(program) == ["6.0", "1.0", "10.0", "[True]"]
    hits = "print(checked(VALUES, 3).sum(), total(VALUES, 4), sum(checked.stats.cache_hits.values()), sum(total.stats.cache_hits.values()))"
    assert run(hits) == ["3.0", "6.0", "1", "1"], "both forms are in the cache"


def test_a_part_is_kept_for_the_next_kernel_that_calls_it(run):
    assert run("print(total(VALUES, 4))") == ["6.0"]
    program = "from PACKAGE.more_kernels import first\nprint(first(VALUES, 1), sum(checked.stats.cache_hits.values()), made(checked))"
    assert run(program) == ["0.0", "1", "[False]"]


def test_an_error_in_a_part_reaches_python_from_new_and_from_kept_code(run):
    program = "try: total(VALUES, -1)\nexcept ValueError as e: print(*str(e).split())"
    assert [" ".join(run(program)) for _ in range(2)] == ["n must not be negative"] * 2


def test_a_part_may_call_itself(run):
    assert [run("print(twice(5))") for _ in range(2)] == [["10"], ["10"]]
