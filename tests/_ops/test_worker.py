from __future__ import annotations

from typing import Any

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


def test_a_generator_that_a_function_keeps_stays_at_its_key() -> None:
    keyed = KeyedGenerator(5, 2)
    kept = keyed.at(0, 1, 0)
    alone = KeyedGenerator(5, 2).at(0, 1, 0)
    other = keyed.at(0, 2, 0).integers(1 << 40, size=3).tolist()
    assert kept.integers(1 << 40, size=3).tolist() == alone.integers(1 << 40, size=3).tolist() != other
    assert keyed.at(0, 2, 0).integers(1 << 40, size=3).tolist() == other
    assert keyed.at(0, 3, 0) is not kept
    before = id(keyed.generator)
    keyed.at(0, 4, 0).random()
    assert id(keyed.generator) == before, "one that nobody keeps is used again"


def block_of(count: int) -> Block:
    return Block(np.zeros(count, np.int64), np.arange(count), np.zeros(count, np.uint64), rows=list(range(count)))


def at(worker: WorkerContext, block: Block, offset: int, origins: list[int] | None = None) -> None:
    """Let a worker be with one element of a block."""
    worker.block, worker.origins = block, None if origins is None else np.array(origins)
    rows = block.each()
    for _ in range(offset + 1):
        next(rows)


def test_a_worker_knows_its_row_or_knows_that_it_does_not() -> None:
    worker = WorkerContext(0)
    assert worker.row() is None
    worker.begin((7, 8))
    assert worker.row() == 7  # whatever it does with it
    worker.begin((10, 14))
    assert worker.row() is None
    at(worker, block_of(4), 2)
    assert worker.row() == 12
    at(worker, block_of(3), 2)  # a branch: its rows are others
    assert worker.row() is None
    at(worker, block_of(3), 2, [0, 3, 3])
    assert worker.row() == 13
    at(worker, block_of(3), 2, [0, 3])
    assert worker.row() is None
    worker.block = block_of(4)  # nobody iterates over it
    assert worker.row() is None
    worker.rest()
    assert worker.piece is None


def test_where_a_read_may_be_of_all_at_once_the_row_is_known_only_when_one_was_read() -> None:
    from penstock.sources.arrays import ArraySource

    worker = WorkerContext(0)
    worker.begin((4, 8))
    seen: list[int | None] = []

    class Looking(ArraySource):
        def gather(self, indices: Any, rows: list[Any]) -> None:
            for index in indices:
                seen.append(worker.row())
                rows.append(index)

    numbers = np.arange(4)
    worker.block = Block(numbers, numbers, numbers.astype(np.uint64), source=Looking(np.arange(4)))
    assert worker.block.rows() == [0, 1, 2, 3]
    assert seen == [None, 5, 6, 7]


def test_a_worker_has_a_place_and_forgets_it_at_rest() -> None:
    worker = WorkerContext(3)
    assert worker.place() == (id(None), id(None), None, False, None)
    worker.block = Block(np.zeros(2, np.int64), np.arange(2), np.zeros(2, np.uint64), rows=["a", "b"])
    rows = worker.block.each()
    next(rows)
    first = worker.place()
    next(rows)
    assert worker.place() != first
    worker.finishing, worker.origins, worker.operator = True, np.arange(2), "an operator"
    worker.rest()
    assert (worker.block, worker.operator, worker.origins, worker.finishing) == (None, None, None, False)
