"""An engine of a dataset, which no executor works at yet, and a block of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock as ps
from penstock._engine.chunk import Token
from penstock._engine.engine import Engine
from penstock._engine.lowering import lower
from penstock._engine.slots import anonymous_memory
from penstock._ops.block import Block


def engine_of(dataset: ps.Dataset, **changes: Any) -> Engine:
    given = {"num_workers": 1, "memory_bytes": 1 << 20, "listeners": [], **changes}
    return Engine(lower(dataset._root), start=Token((0, 0)), allocate=anonymous_memory, **given)


def block_of(rows: list[Any]) -> Block:
    count = len(rows)
    return Block(np.zeros(count, np.int64), np.arange(count), np.zeros(count, np.uint64), rows=rows)
