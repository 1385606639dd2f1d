from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock._ops.block import Block
from penstock._ops.collation import Stack
from penstock._ops.map import MapOp
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext


def block(rows: list[Any]) -> Block:
    count = len(rows)
    return Block(np.arange(count) % 2, np.arange(count) + 5, np.arange(count, dtype=np.uint64), rows=rows)


def noisy(x: int, rng: np.random.Generator) -> Any:
    return x + rng.random(20)


def double(x: int) -> Any:
    return np.full(20, x * 2.0)


OPS = [MapOp(double, "double", 0, 0, False), MapOp(noisy, "noisy", 7, 3, True)]


def test_a_random_function_gets_the_generator_of_its_elements_key() -> None:
    given = block([10, 20])
    found = OPS[1].apply(given, given.epochs, given.indices, WorkerContext(0)).rows()
    for place, row in enumerate(found):
        key, counter = np.array([7, 3], np.uint64), np.array([0, place, place + 5, place % 2], np.uint64)
        expected = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(20)
        assert np.array_equal(row, (place + 1) * 10 + expected)


class GetsItsSpec(Rows):
    """Rows whose spec another worker sets while this one writes."""

    num_asked = 0

    @property
    def small(self) -> bool:
        self.num_asked += 1
        return self.num_asked > 1


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_rows_whose_spec_becomes_known_meanwhile_are_written_as_before(op: MapOp) -> None:
    given = block([1, 2, 3])
    rows = GetsItsSpec([3], None, lambda wanted: [np.empty(s, d) for s, d in wanted], str, Stack())
    op.apply_into(given, WorkerContext(1), rows, 0)
    expected = op.apply(given, given.epochs, given.indices, WorkerContext(0)).rows()
    assert rows.finish(1)[0].tolist() == [row.tolist() for row in expected]
