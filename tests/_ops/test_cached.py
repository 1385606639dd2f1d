from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from penstock._ops.block import Block, ElementFailed
from penstock._ops.map import MapOp
from penstock._ops.operator import ChainOp
from penstock._ops.reading import CacheLeaf, ConcatenateLeaf, ReadLeaf, ShuffleOp
from penstock._ops.worker import WorkerContext
from penstock.formats.cache_stores import MemoryStore
from penstock.sources import ArraySource, IndexableSource

WORKER = WorkerContext(0)


class Counting:
    """Squares, and counts how often each was computed."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, value: Any) -> Any:
        self.seen.append(int(value))
        if value == 5:
            raise OSError("five")
        return None if value == 7 else value * value


class Broken(MemoryStore):
    """Fails at one of its two calls."""

    def __init__(self, call: str) -> None:
        super().__init__(10_000)
        self.call = call

    def get(self, indices: Sequence[int]) -> list[bytes | None]:
        if self.call == "get":
            raise OSError("get")
        return super().get(indices)

    def put(self, indices: Sequence[int], records: Sequence[bytes]) -> None:
        raise OSError("put")


def squares(operators: tuple[Any, ...] = (), store: Any = None, passes: int = 1) -> tuple[CacheLeaf, Counting]:
    fn = Counting()
    child = ChainOp(ReadLeaf(IndexableSource(list(range(8))), None, None), (*operators, MapOp(fn, "square", 0, 0, False)))
    return CacheLeaf(child, store or MemoryStore(10_000), passes), fn


def run(leaf: Any, positions: list[int], epoch: int = 0) -> Block:
    found: Block = leaf.run(np.full(len(positions), epoch), np.array(positions, np.int64), WORKER)
    return found


def keys(block: Block) -> list[tuple[int, int, int]]:
    return list(zip(block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True))


def test_elements_are_those_of_epoch_0_and_keys_those_of_the_epoch() -> None:
    shuffle = ShuffleOp(5, None, 3, True)
    leaf, _ = squares((shuffle,))
    order = shuffle.source_positions(np.zeros(5, np.int64), np.arange(5))[1].tolist()
    for epoch in (0, 4):
        found = run(leaf, [0, 1, 2, 3, 4], epoch)
        assert found.rows() == [index * index for index in order]
        assert keys(found) == [(epoch, index, 0) for index in order]
        assert leaf.key(epoch, 2) == (epoch, order[2])
    assert leaf.where(9, 2) == f"element {order[2]} of list"


def test_a_failure_is_told_at_its_place_in_the_block() -> None:
    leaf, _ = squares()
    run(leaf, [0, 2])
    with pytest.raises(ElementFailed) as caught:
        run(leaf, [0, 1, 2, 5, 6])
    assert (caught.value.offset, caught.value.stage, str(caught.value.error)) == (3, "square", "five")


@pytest.mark.parametrize("call", ["get", "put"])
def test_an_error_of_the_store_is_a_failure_of_the_cache(call: str) -> None:
    leaf, _ = squares(store=Broken(call))
    with pytest.raises(ElementFailed) as caught:
        run(leaf, [0, 1])
    assert (caught.value.offset, caught.value.stage, str(caught.value.error)) == (0, "cache", call)


def test_rows_of_arrays_are_read_only_copies_in_every_pass() -> None:
    source = ArraySource(np.arange(12).reshape(4, 3))
    leaf = CacheLeaf(ChainOp(ReadLeaf(source, source, None), ()), MemoryStore(10_000), 1)
    for _ in range(2):
        for row in run(leaf, [2, 0]).rows():
            assert not row.flags.writeable
            assert isinstance(row.base, bytes)


def test_lanes_of_branches_stay() -> None:
    read = ChainOp(ReadLeaf(IndexableSource([1, 2]), None, None), ())
    both = ChainOp(ConcatenateLeaf((read, read), (2, 2), False), ())
    leaf = CacheLeaf(both, MemoryStore(10_000), 1)
    assert keys(run(leaf, [0, 1, 2, 3], 2)) == keys(run(both, [0, 1, 2, 3], 2)) == [(2, 0, 0), (2, 1, 0), (2, 0, 1), (2, 1, 1)]
