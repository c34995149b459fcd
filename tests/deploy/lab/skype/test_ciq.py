"""The index with coverings: lists of more than one block, shallow and deep coverings, bounds that fall and rise."""

from __future__ import annotations

import numpy as np
import pytest

from dskype.bolts.topk.engine import TopkEngine
from dskype.deploy.lab.skype import ciq_kernels as kernels
from dskype.deploy.lab.skype.ciq import CiqIndex
from dskype.topology.errors import IllegalArgumentException
from tests.bolts.topk.world import DIAGONAL_DEG
from tests.deploy.lab.skype.test_igpt import Play, anywhere, of_any_size, random_steps


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_coverings_find_exactly_what_reaches_its_threshold(depth):
    assert random_steps(Play(CiqIndex(DIAGONAL_DEG, depth=depth), depth), 20) > 100


def test_long_lists_keep_the_bounds_of_their_blocks():
    play = Play(CiqIndex(DIAGONAL_DEG, depth=2), 21)
    play.insert([{**play.world.subscription(), "weights": {0: 0.8, 3: 0.6}} for _ in range(300)])
    assert play.index._bounds.block[:, 1].max() > 2
    for _ in range(6):
        messages = play.world.messages(6)
        play.set({slot: play.tuned(slot, messages) for slot in play.some(300)})
        play.compare(messages)
        for _ in range(4):  # few at a time: bounds are lowered one by one, and slots come in between others
            play.set({slot: play.tuned(slot, messages) for slot in play.some(20)})
            play.remove(play.some(12))
            play.insert([{**play.world.subscription(), "weights": {0: play.rng.choice((0.1, 1.0))}} for _ in range(play.rng.randint(1, 12))])
            play.compare(messages)


@pytest.mark.parametrize("depth", [1, 3])
def test_places_may_coincide_lie_on_borders_or_anywhere(depth):
    anywhere(Play(CiqIndex(DIAGONAL_DEG, depth=depth), 5))


def test_weights_may_have_any_size():
    of_any_size(Play(CiqIndex(DIAGONAL_DEG), 7))


def test_a_message_lies_in_one_cell_of_every_covering():
    rng = np.random.default_rng(2)
    place = np.zeros((50, 4))
    place[:, :2] = rng.uniform(-1, 1, (50, 2))
    slots, root = np.arange(50, dtype=np.int32), np.array([-1.0, -1.0, 1.0, 1.0])
    code = kernels.paths(slots, place, root, 3)
    words = np.stack([np.arange(50), np.ones(50), np.ones(50)], axis=1).astype(np.int64)
    keys, ends = kernels.make_keys(slots, code, 3, words, np.zeros(50, np.int32))
    assert ends.tolist() == list(range(10, 510, 10)) and len(set(keys[:10].tolist())) == 10
    for x, y in rng.uniform(-3, 3, (100, 2)):
        last = kernels.path(x, y, root, 3)
        cells = {int(kernels.cell_of(level, last >> 2 * (3 - level))) for level in (1, 2, 3)}
        assert (np.array([len(cells & set(keys[i : i + 10].tolist())) for i in range(0, 500, 10)]) == 1).all()


@pytest.mark.parametrize("depth", [0, 9])
def test_depths_that_cannot_be_are_refused(depth):
    with pytest.raises(IllegalArgumentException, match="depth"):
        TopkEngine(10, DIAGONAL_DEG, index="ciq", index_options={"depth": depth})
