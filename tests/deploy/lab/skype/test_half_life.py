"""What a half-life costs, at a tiny size: the engine and its window do with it what they do without, and more lists change."""

from __future__ import annotations

import random

import numpy as np

from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.skype.half_life import measure
from dskype.deploy.lab.skype.workload import draw_subscriptions


def test_with_a_half_life_messages_enter_more_lists():
    rng = random.Random(3)
    words = [f"w{i}" for i in range(30)]
    texts = [" ".join(rng.choices(words, k=5)) for _ in range(100)]
    corpus = Corpus.of_texts("words", texts, np.array([rng.uniform(-10, 10) for _ in texts]), np.array([rng.uniform(0, 30) for _ in texts]))
    subscriptions = draw_subscriptions(corpus, 30, k=5, keywords=(1, 3))
    plain, aged = (measure(corpus, subscriptions, 200, 100, half_lives) for half_lives in (None, 24.0))
    assert plain.message_us > 0 and aged.message_us > 0 and aged.changes > plain.changes > 0
