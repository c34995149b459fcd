"""Compiled kernels are kept by the content of their sources and of the kernels they import."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import IndexDataCacheFile

from dskype.topology import kernel_cache

pytestmark = pytest.mark.long

BOLTS = Path(__file__).parents[2] / "bolts"

PACKAGE = "dskype.bolts"  # of kernels that this test writes

FIRST = """from dskype.topology.kernel_cache import njit

CONSTANT = {constant}


@njit(cache=True)
def step(n):
    return n + {step}
"""

SECOND = """from PACKAGE.first_kernels import step
from dskype.topology.kernel_cache import njit


@njit(cache=True)
def two_steps(n):
    return step(step(n))
"""

THIRD = """from PACKAGE.first_kernels import CONSTANT
from PACKAGE.second_kernels import two_steps
from dskype.topology.kernel_cache import njit


@njit(cache=True)
def result(n):
    return two_steps(n) + CONSTANT
"""

CALL = """
from PACKAGE.third_kernels import result
print(result(10), sum(result.stats.cache_hits.values()))
"""

CALL_AT_ONCE = """
import os, sys, time
from PACKAGE.third_kernels import result
open(sys.argv[1], "x").close()
while len(os.listdir(os.path.dirname(sys.argv[1]))) < 3:
    time.sleep(0.001)
print(result(10), sum(result.stats.cache_hits.values()))
"""


TAKES_A_TUPLE = """from typing import NamedTuple

import numpy as np
from dskype.topology.kernel_cache import njit


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


def test_where_the_kernels_of_a_module_belong_is_found_once(package, environ):
    (package / "first_kernels.py").write_text(FIRST.format(constant=1, step=1) + "\n\n@njit(cache=True)\ndef back(n):\n    return n - 1\n")
    program = (
        "import tempfile\nfrom dskype.topology import kernel_cache\n"
        "made, make = [], tempfile.TemporaryFile\ntempfile.TemporaryFile = lambda **named: made.append(named) or make(**named)\n"
        "from PACKAGE.first_kernels import back, step\nprint(len(made), step(back(7)), back.stats.cache_path == step.stats.cache_path)"
    )
    assert subprocess.run(
        [sys.executable, "-c", program.replace("PACKAGE", PACKAGE)], env=environ, capture_output=True, text=True, timeout=120, check=True
    ).stdout.split() == ["1", "7", "True"]


def test_the_log_says_which_kernels_are_waited_for(package, environ):
    (package / "first_kernels.py").write_text(SORTS)
    program = (
        "import logging\nlogging.basicConfig(level=logging.INFO)\nimport numpy as np\nfrom PACKAGE.first_kernels import in_order\n"
        "from dskype.topology import kernel_cache\nkernel_cache.told.append(lambda name: logging.info('told %s', name))\nin_order(np.arange(3))"
    )
    command = [sys.executable, "-c", program.replace("PACKAGE", PACKAGE)]
    said = [subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True).stderr for _ in range(2)]
    assert said == [
        "INFO:dskype.topology.kernel_cache:compiling the kernel in_order of dskype.bolts.first_kernels: the cache does not have it\nINFO:root:told bolts.first_kernels.in_order\n",
        "",
    ]


def test_of_several_processes_one_compiles_a_kernel(package, environ, tmp_path):
    (package / "first_kernels.py").write_text(FIRST.format(constant=1, step=1))
    (package / "second_kernels.py").write_text(SECOND.replace("PACKAGE", PACKAGE))
    (package / "third_kernels.py").write_text(THIRD.replace("PACKAGE", PACKAGE))
    (tmp_path / "ready").mkdir()
    command = [sys.executable, "-c", CALL_AT_ONCE.replace("PACKAGE", PACKAGE)]
    processes = [subprocess.Popen([*command, str(tmp_path / "ready" / str(n))], env=environ, stdout=subprocess.PIPE, text=True) for n in range(3)]
    found = [process.communicate(timeout=120)[0].split() for process in processes]
    assert sorted(found) == [["13", "0"], ["13", "1"], ["13", "1"]]
    assert not list((tmp_path / "numba").rglob("*.lock"))


def test_a_process_that_stands_still_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_LONGEST_WAIT_S", 0.1)
    path = str(tmp_path / "kernel.lock")
    with open(path, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        with kernel_cache._alone(path, bool), kernel_cache._alone(path, bool):  # the same process may lock it twice
            assert time.monotonic() - began >= 0.1
        assert Path(path).exists(), "it is the other one's"
    with kernel_cache._alone(str(tmp_path / "missing" / "kernel.lock"), bool):
        pass


def test_a_form_in_the_cache_is_loaded_though_a_process_that_stands_still_has_the_lock(package, environ, tmp_path):
    (package / "first_kernels.py").write_text(FIRST.format(constant=1, step=1))
    (package / "second_kernels.py").write_text(SECOND.replace("PACKAGE", PACKAGE))
    (package / "third_kernels.py").write_text(THIRD.replace("PACKAGE", PACKAGE))
    assert run(CALL, environ) == [13, 0]
    (index,) = (tmp_path / "numba").rglob("*result*.nbi")
    with open(f"{index}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run(CALL, environ) == [13, 1]  # else it would wait for longer than the test does


def test_forms_that_two_processes_compile_at_the_same_time_are_not_mixed_up(tmp_path, monkeypatch):
    one, other = (IndexDataCacheFile(str(tmp_path), "kernel", b"stamp") for _ in range(2))
    write = one._save_index

    def while_the_other_has_not_seen_it(index):
        write(index)
        with monkeypatch.context() as late:
            late.setattr(other, "_load_index", dict)
            other.save("other signature", "other code")

    monkeypatch.setattr(one, "_save_index", while_the_other_has_not_seen_it)
    one.save("signature", "code")
    assert one.load("other signature") == "other code" and one.load("signature") in ("code", None)
    monkeypatch.undo()
    one.save("signature", "code")
    assert (one.load("signature"), one.load("other signature")) == ("code", "other code")


SORTS = """
import numpy as np

from dskype.topology.kernel_cache import njit

@njit(cache=True)
def in_order(numbers):
    numbers = numbers.copy()
    numbers.sort()
    return numbers
"""
NUMBERED = """
import itertools, re
import numpy as np
from numba import njit
from numba.core.bytecode import FunctionIdentity
FunctionIdentity._unique_ids = itertools.count(1000)
from dskype.topology import kernel_cache
def after(first, kernel):
    (code,) = kernel.inspect_llvm().values()
    return int(re.findall(r"run_quicksort1B\\d+v(\\d+)", code)[0]) - first
"""
ORDER = """
FunctionIdentity._unique_ids = itertools.count({first})
@njit
def order(numbers):
    return np.argsort(numbers)
order(np.arange(20))
"""
SORT = """
from PACKAGE.first_kernels import in_order
first = next(FunctionIdentity._unique_ids)
numbers = np.random.default_rng(1).permutation(5000)
print(int((in_order(numbers) == np.arange(5000)).all()), sum(in_order.stats.cache_hits.values()))
"""


def test_a_kernel_that_was_loaded_is_not_mixed_up_with_what_this_process_has_compiled(package, environ):
    (package / "first_kernels.py").write_text(SORTS)
    *sorted_at_once, of_sort = run(NUMBERED + SORT + "print(after(first, in_order))", environ)
    (of_argsort,) = run(NUMBERED + ORDER.format(first=1000) + "print(after(1000, order))", environ)
    # If the first process had begun with 1000, too, argsort's part would have the number of sort's here.
    assert run(NUMBERED + ORDER.format(first=1000 + of_sort - of_argsort) + SORT, environ) == [1, 1] and sorted_at_once == [1, 0]


def test_a_fork_numbers_its_functions_in_its_own_way():
    read, write = os.pipe()
    if not (pid := os.fork()):
        os.write(write, str(next(FunctionIdentity._unique_ids)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with open(read) as said:
        assert abs(int(said.read()) - next(FunctionIdentity._unique_ids)) > 1_000_000


def checkout(tmp_path, name, step):
    """Write the kernels into a folder of their own; return the environment of processes that use them. All have one cache folder."""
    package = tmp_path / name / "dskype" / "bolts"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "first_kernels.py").write_text(FIRST.format(constant=1, step=step))
    (package / "second_kernels.py").write_text(SECOND.replace("PACKAGE", PACKAGE))
    (package / "third_kernels.py").write_text(THIRD.replace("PACKAGE", PACKAGE))
    return {**os.environ, "PYTHONPATH": str(tmp_path / name), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": str(tmp_path / "numba")}


def test_checkouts_with_the_same_sources_share_their_kernels(tmp_path):
    one, same, other = (checkout(tmp_path, name, step) for name, step in (("one", 1), ("same", 1), ("other", 2)))
    assert run(CALL, one) == [13, 0]
    assert run(CALL, same) == [13, 1]
    assert run(CALL, other) == [15, 0]
    assert run(CALL, one) == [13, 1]  # those of the other one have replaced nothing


def test_a_folder_that_another_user_has_made_is_left_alone(tmp_path):
    environ = checkout(tmp_path, "one", 1)
    assert run(CALL, environ) == [13, 0]
    (made,) = (tmp_path / "numba").glob("bolts.third_kernels-*")
    as_other = (
        "import os\nlstat = os.lstat\nos.lstat = lambda path: os.stat_result([*lstat(path)[:4], "
        f"os.getuid() + str(path).endswith({made.name!r}), *lstat(path)[5:]])\n"
    )
    before = sorted(path.name for path in made.iterdir())
    assert run(as_other + CALL, environ) == [13, 0]
    assert run(as_other + CALL, environ) == [13, 1]
    assert sorted(path.name for path in made.iterdir()) == before and made.with_name(f"{made.name}-{os.getuid()}").is_dir()


def test_kernels_that_others_can_write_are_left_alone(tmp_path):
    environ = checkout(tmp_path, "one", 1)
    assert run(CALL, environ) == [13, 0]
    (made,) = (tmp_path / "numba").glob("bolts.third_kernels-*")
    made.chmod(0o777)  # its files are pickles
    assert run(CALL, environ) == [13, 0]
    made.with_name(f"{made.name}-{os.getuid()}").chmod(0o777)
    with pytest.raises(AssertionError, match="Compiled kernels that another user may have written are not used"):
        run(CALL, environ)


def test_the_last_used_states_of_a_module_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_KEPT_STATES", 2)
    first, second, third, neighbour = (tmp_path / name for name in ("bolts._kernels-1", "bolts._kernels-2", "bolts._kernels-3", "bolts.search_kernels-1"))
    for age, folder in enumerate((neighbour, first, second)):
        kernel_cache._use.__wrapped__(folder)
        os.utime(folder, (1000 + age, 1000 + age))
    kernel_cache._use.__wrapped__(first)
    kernel_cache._use.__wrapped__(third)
    assert sorted(tmp_path.iterdir()) == [first, third, neighbour]
