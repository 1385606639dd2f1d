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
