from __future__ import annotations

from typing import Any

import penstock as ps
from penstock._engine.lowering import lower
from penstock._engine.segment import block_sizes


async def double(x: int) -> int:
    return 2 * x


def sizes(ds: ps.Dataset, **options: Any) -> tuple[list[int], int]:
    blocks, least_rows = block_sizes(lower(ds._root).segments[0], **options)
    return [block.size for block in blocks], least_rows


def test_a_task_begins_with_one_row() -> None:
    assert sizes(ps.from_source(range(9)).map(abs)) == ([1], 1)
    assert sizes(ps.from_source(range(9)).map(abs), at_once=True) == ([1], 1)


def test_what_is_awaited_block_by_block_begins_with_all_that_may_be_in_flight() -> None:
    ds = ps.from_source(range(900)).map(double, concurrency=64)
    assert sizes(ds, at_once=True) == ([64, 64, 64], 64)
    assert sizes(ds) == ([1, 1, 1], 1)
    assert sizes(ds.map(double, concurrency=8), at_once=True)[1] == 8
