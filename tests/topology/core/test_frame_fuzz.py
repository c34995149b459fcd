"""No content of an inbox may kill a process; see ``frame_fuzz``."""

import subprocess
import sys
from pathlib import Path

import pytest

from dskype.topology.core.frames import decode_frame, encode_data, encode_segment
from dskype.topology.core.values import FrameError, NestingError, pack_state, unpack_state
from dskype.topology.fields import Fields
from dskype.topology.tuples import StreamMeta, Tuple

from .frame_fuzz import crafted

pytestmark = pytest.mark.long

SEEDS, FRAMES = (1,), 2000


@pytest.mark.parametrize("seed", SEEDS)
def test_no_frame_whatever_kills_a_process(seed):
    run = subprocess.run(
        [sys.executable, "-m", "tests.topology.core.frame_fuzz", str(seed), str(FRAMES)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, f"seed {seed}: status {run.returncode}\n{run.stderr[-3000:]}"
    refused, accepted, grown_mb = map(int, run.stdout.split())
    assert refused > FRAMES and accepted > FRAMES // 4
    assert grown_mb < 500, "a small record took that much memory"


IN_ANOTHER_PLACE = {"roots that are lists", "a task that is none", "strings that are no UTF-8", "a long name"}
"""What only the task can tell that gets the frame."""


@pytest.mark.parametrize("which", sorted(set(crafted()) - IN_ANOTHER_PLACE))
def test_a_frame_that_lies_is_refused(which):
    with pytest.raises(FrameError):
        decode_frame(crafted()[which])


def wrapped(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def held(value):
    return Tuple((value,), StreamMeta("c", 1, "s", Fields("a")))


@pytest.mark.parametrize("wrap", [lambda v: (v,), lambda v: frozenset([v]), held], ids=["tuple", "set", "held tuple"])
def test_a_state_of_32_levels_of_tuples_can_be_written_and_read_and_one_of_33_is_refused(wrap):
    for depth in range(33):
        state = wrapped(depth, wrap)
        assert repr(unpack_state(pack_state([state, {"a": state}]))) == repr([state, {"a": state}])
    for depth in (33, 34, 300):
        with pytest.raises(match="nested too deeply.*at most 32 levels"):
            pack_state(wrapped(depth, wrap))


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: [{"a": v}]], ids=["list", "mapping", "both"])
def test_lists_and_mappings_that_can_be_written_can_be_read(wrap):
    written = 0
    for depth in (1, 200, *range(505, 515), *range(1015, 1030), 3000):
        try:
            data = pack_state(wrapped(depth, wrap))
        except NestingError:
            continue
        written += 1
        unpack_state(data)
    assert 2 <= written < 28


def test_sets_of_frozen_sets_and_frozen_keys_come_back():
    state = [{frozenset([1, 2]), frozenset()}, {frozenset([3]): 1, (frozenset([4]), "x"): 2}, {(1, frozenset([5]))}]
    assert unpack_state(pack_state(state)) == state


def test_a_value_that_can_be_sent_can_be_received():
    sent = 0
    for depth in (1, 31, 32, 300, *range(500, 515), *range(1010, 1030)):
        try:
            value = encode_data(1, 0, [encode_segment("s", 1, [[wrapped(depth, lambda v: [v])]], None)])
        except ValueError as error:
            assert "recursion" in str(error)
            continue
        sent += 1
        assert decode_frame(value).segments[0].n == 1
    assert 4 <= sent < 39
