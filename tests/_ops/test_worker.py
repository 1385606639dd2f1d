from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock._ops.worker import KeyedGenerator

WORDS = st.integers(0, 2**64 - 1)
PLACES = st.integers(0, 2**63 - 1)


def fresh(seed: int, stage: int, epoch: int, index: int, lane: int) -> np.random.Generator:
    """Make the generator that the documentation promises."""
    key, counter = np.array([seed, stage], np.uint64), np.array([0, lane, index, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def some_numbers(generator: np.random.Generator) -> list[object]:
    """Draw in ways that leave half-used words behind."""
    return [
        generator.integers(0, 1000, dtype=np.int32),
        generator.random(),
        generator.normal(),
        generator.integers(0, 7, dtype=np.uint8, size=3).tolist(),
        generator.permutation(5).tolist(),
        generator.random(dtype=np.float32),
    ]


@given(WORDS, WORDS, st.lists(st.tuples(PLACES, PLACES, WORDS), min_size=1, max_size=5))
def test_the_generator_of_a_key_is_a_fresh_numpy_philox(seed: int, stage: int, keys: list[tuple[int, int, int]]) -> None:
    keyed = KeyedGenerator(seed, stage)
    for epoch, index, lane in [*keys, *keys]:
        assert some_numbers(keyed.at(epoch, index, lane)) == some_numbers(fresh(seed, stage, epoch, index, lane))
