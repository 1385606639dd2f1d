from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock._ops.block import Block
from penstock._ops.reading import EnumerateOp, GroupShuffleOp, RepeatOp, ShardOp, ShuffleOp, SkipOp
from penstock._ops.worker import WorkerContext
from penstock._order.arithmetic import GroupOrders, shuffled, window_shuffled

EPOCHS, POSITIONS = np.array([0, 0, 2]), np.array([0, 3, 5])
WORKER = WorkerContext(0)


def down(op: Any) -> tuple[list[int], list[int]]:
    epochs, positions = op.source_positions(EPOCHS, POSITIONS)
    return epochs.tolist(), positions.tolist()


def test_each_operator_does_its_arithmetic_on_the_way_down() -> None:
    assert down(ShardOp(4, 1)) == ([0, 0, 2], [1, 13, 21])
    assert down(SkipOp(7)) == ([0, 0, 2], [7, 10, 12])
    assert down(RepeatOp(4, 2)) == ([0, 0, 5], [0, 3, 1])
    assert down(RepeatOp(4, None)) == ([0, 0, 3], [0, 3, 1])
    assert down(RepeatOp(4, 1, first=6)) == ([6, 6, 9], [0, 3, 1])
    assert down(EnumerateOp(3)) == ([0, 0, 2], [0, 3, 5])


@pytest.mark.parametrize("reshuffle", [True, False])
def test_a_shuffle_is_the_keyed_permutation_of_the_order_room(reshuffle: bool) -> None:
    epochs, places = ShuffleOp(9, None, 7, reshuffle).source_positions(EPOCHS, POSITIONS)
    assert epochs is EPOCHS
    assert places.tolist() == shuffled(EPOCHS, POSITIONS, 9, seed=7, reshuffle=reshuffle).tolist()
    epochs, places = ShuffleOp(9, 4, 7, reshuffle).source_positions(EPOCHS, POSITIONS)
    assert epochs is EPOCHS
    assert places.tolist() == window_shuffled(EPOCHS, POSITIONS, 9, 4, seed=7, reshuffle=reshuffle).tolist()


def test_a_shuffle_of_groups_is_that_of_the_order_room() -> None:
    orders = GroupOrders(np.array([0, 4, 9]), 1, seed=7, reshuffle=True)
    epochs, places = GroupShuffleOp(orders).source_positions(EPOCHS, POSITIONS)
    assert epochs is EPOCHS
    assert places.tolist() == orders.shuffled(EPOCHS, POSITIONS).tolist()


GROUPS = GroupShuffleOp(GroupOrders(np.array([0, 9]), 1, seed=0, reshuffle=True))


@pytest.mark.parametrize("op", [ShuffleOp(9, None, 0, True), GROUPS, ShardOp(2, 0), SkipOp(1), RepeatOp(3, 2)])
def test_data_pass_through_a_move_untouched_and_it_is_no_stage(op: Any) -> None:
    block = Block(EPOCHS, POSITIONS, np.zeros(3, np.uint64), rows=["a", "b", "c"])
    assert op.apply(block, EPOCHS, POSITIONS, WORKER) is block
    assert op.name == ""


def test_enumerate_pairs_each_element_with_its_own_position() -> None:
    block = Block(EPOCHS, POSITIONS + 100, np.zeros(3, np.uint64), rows=["a", "b", "c"])
    out = EnumerateOp(10).apply(block, EPOCHS, POSITIONS, WORKER)
    assert out.rows() == [(10, "a"), (13, "b"), (15, "c")]
    assert all(type(number) is int for number, _ in out.rows())
    assert out.indices.tolist() == [100, 103, 105]
    assert EnumerateOp(10).name == ""
