from __future__ import annotations

from typing import Any

import numpy as np

from penstock._engine.chunk import Chunk
from penstock._engine.compute import concatenated, join, joined
from penstock._ops.block import Block


def block(first: int, count: int, origins: list[int] | None = None) -> Block:
    """Return elements "first", "first + 1", ... under their numbers as keys."""
    rows: list[Any] = [str(first + number) for number in range(count)]
    out = Block(np.full(count, 2), np.arange(first, first + count), np.zeros(count, np.uint64), rows=rows)
    out.origins = None if origins is None else np.array(origins, np.int64)
    return out


def test_blocks_one_behind_the_other_are_one_block() -> None:
    one = block(3, 2)
    assert concatenated([]) is None
    assert concatenated([one]) is one
    both = concatenated([one, block(9, 1)])
    assert both is not None
    assert both.rows() == ["3", "4", "9"]
    assert both.indices.tolist() == [3, 4, 9]


def test_the_pieces_of_a_task_show_in_their_origins_what_was_left_out() -> None:
    assert len(joined(4, [])) == 0
    whole = block(4, 4)
    assert joined(4, [(4, whole)]) is whole
    out = joined(4, [(4, block(4, 1)), (6, block(6, 2, [0, 0]))])
    assert out.rows() == ["4", "6", "7"]
    assert out.origins is not None
    assert out.origins.tolist() == [0, 2, 2]


def chunk(parts: dict[int, tuple[Block, list[int]]], rows: int) -> Chunk:
    out = Chunk(seq=0, pass_number=0, first=0, sizes=None, num_items=rows, num_rows=rows)
    out.parts = {begin: (part, np.array(origins, np.int64)) for begin, (part, origins) in parts.items()}
    return out


def test_parts_are_put_in_order_and_what_lies_behind_a_failure_is_left_out() -> None:
    parts = {2: (block(2, 2), [2, 3]), 0: (block(0, 2), [0, 1])}
    whole = join(chunk(parts, 4), 4)
    assert (whole.items, whole.origins) == (["0", "1", "2", "3"], None)
    assert whole.block is not None
    assert whole.block.indices.tolist() == [0, 1, 2, 3]
    cut = join(chunk(parts, 4), 3)
    assert (cut.items, cut.origins) == (["0", "1", "2"], None)
    missing = join(chunk({0: (block(0, 1), [1]), 2: (block(2, 2), [2, 2])}, 3), 3)
    assert (missing.items, missing.origins) == (["0", "2", "3"], [1, 2, 2])
