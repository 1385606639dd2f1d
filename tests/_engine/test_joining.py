from __future__ import annotations

import numpy as np

from penstock._engine.joining import concatenated, join, joined
from penstock._engine.unit import Task, Unit
from penstock._ops.block import Block


def block_of(*numbers: int) -> Block:
    indices = np.array(numbers, np.int64)
    return Block(0 * indices, indices, indices.astype(np.uint64), rows=list(numbers))


def unit_of(count: int) -> Unit:
    return Unit(seq=0, pass_number=0, first=0, sizes=None, num_items=count, num_rows=count)


def test_blocks_stand_one_behind_the_other() -> None:
    assert concatenated([]) is None
    one = block_of(1, 2)
    assert concatenated([one]) is one
    both = concatenated([one, block_of(7)])
    assert both is not None
    assert both.rows() == [1, 2, 7]
    assert both.indices.tolist() == [1, 2, 7]


def test_the_pieces_of_a_task_say_which_rows_they_are() -> None:
    task = Task(0, 0, unit_of(9), 3, 8, None)
    whole = block_of(3, 4, 5, 6, 7)
    assert joined(task, [(3, whole)]) is whole
    out = joined(task, [(3, block_of(3, 4)), (6, block_of(6, 7))])
    assert out.rows() == [3, 4, 6, 7]
    assert out.origins is not None
    assert out.origins.tolist() == [0, 1, 3, 4]
    none = joined(task, [])
    assert len(none) == 0
    assert none.origins is not None


def test_the_parts_of_a_unit_are_joined_in_order_up_to_a_count() -> None:
    unit = unit_of(6)
    unit.parts = {4: (block_of(4, 5), np.array([4, 5])), 0: (block_of(0, 1, 3), np.array([0, 1, 3]))}
    result = join(unit, 5)
    assert result.items == [0, 1, 3, 4]
    assert result.origins == [0, 1, 3, 4]
    assert unit.parts == {}
    unit.parts = {0: (block_of(0, 1), np.array([0, 1]))}
    assert join(unit, 2).origins is None
