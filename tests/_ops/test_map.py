from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._ops.block import Block
from penstock._ops.collation import Stack
from penstock._ops.map import MapOp
from penstock._ops.rows import Rows
from penstock._ops.worker import WorkerContext
from penstock.errors import SpecError


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


class AtOnce:
    """Squares that are computed all at once; without those that fail by themselves, which are negative."""

    def __call__(self, x: int) -> int:
        if x < 0:
            raise ValueError(f"{x} is negative")
        return x * x

    def over_block(self, elements: Sequence[int]) -> Callable[[int], int]:
        squares = iter(np.square(elements).tolist())

        def next_square(x: int) -> int:
            square = next(squares)
            return self(x) if x < 0 else int(square) + 10**6

        return next_square


@pytest.mark.parametrize("spec", [None, ps.ArraySpec((), np.int64)])
def test_a_function_of_blocks_gets_each_element_once_in_order_and_only_what_fails_is_left_out(spec: Any) -> None:
    values = [number if number % 7 else -number for number in range(1, 200)]
    ds = ps.from_source(values).map(AtOnce(), on_error=ps.Skip(), output_spec=spec)
    with ds.feed(executor="threads", num_workers=2) as feed:
        assert list(feed) == [x * x + 10**6 for x in values if x > 0]
    with pytest.raises(SpecError, match="declared as float64"):
        list(ps.from_source([1, 2]).map(AtOnce(), output_spec=ps.ArraySpec((), np.float64)))


def test_behind_a_flat_map_the_one_element_that_fails_is_left_out() -> None:
    ds = ps.from_source([[1, -2, 3], [-4], [5]]).flat_map(list).map(AtOnce(), on_error=ps.Skip())
    assert list(ds) == [10**6 + square for square in (1, 9, 25)]
