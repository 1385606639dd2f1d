from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock import kernels
from penstock._ops.block import Block
from penstock._ops.worker import KeyedGenerator, WorkerContext

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


@given(WORDS, st.integers(0, 50), PLACES, PLACES, WORDS)
def test_the_kernel_draws_the_same_numbers_as_the_generator(seed: int, stage: int, epoch: int, index: int, lane: int) -> None:
    block = kernels.philox_uniform(seed, stage, np.array([epoch]), np.array([index]), np.array([lane], np.uint64), 9)
    assert block[0].tolist() == KeyedGenerator(seed, stage).at(epoch, index, lane).random(9).tolist()


def test_what_a_function_left_half_used_does_not_reach_the_next_element() -> None:
    keyed = KeyedGenerator(1, 2)
    keyed.at(0, 0, 0).integers(0, 10, dtype=np.int32)
    first = keyed.at(0, 1, 0).integers(0, 2**31, dtype=np.int32)
    assert first == fresh(1, 2, 0, 1, 0).integers(0, 2**31, dtype=np.int32)


def test_a_worker_keeps_one_generator_per_random_operator_and_one_scratch_per_step() -> None:
    worker = WorkerContext(3)
    assert worker.index == 3
    assert worker.keyed(1, 2) is worker.keyed(1, 2)
    assert worker.keyed(1, 2) is not worker.keyed(1, 3)
    assert worker.scratch(1, 0) is worker.scratch(1, 0)
    assert worker.scratch(1, 0) is not worker.scratch(1, 1)
    assert WorkerContext(4).scratch(1, 0) is not worker.scratch(1, 0)


def test_packed_rows_are_counted_until_somebody_takes_the_count() -> None:
    worker = WorkerContext(0)
    worker.packed(3, 8)
    worker.packed(8, 8)
    assert worker.take_packed() == (11, 16)
    assert worker.take_packed() == (0, 0)


def test_a_worker_has_a_place_and_forgets_it_at_rest() -> None:
    worker = WorkerContext(3)
    assert worker.place() == (id(None), id(None), None, False)
    worker.block = Block(np.zeros(2, np.int64), np.arange(2), np.zeros(2, np.uint64), rows=["a", "b"])
    rows = worker.block.each()
    next(rows)
    first = worker.place()
    next(rows)
    assert worker.place() != first
    worker.finishing, worker.origins, worker.operator = True, np.arange(2), "an operator"
    worker.rest()
    assert (worker.block, worker.operator, worker.origins, worker.finishing) == (None, None, None, False)
