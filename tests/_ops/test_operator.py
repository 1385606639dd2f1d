from __future__ import annotations

import numpy as np

from penstock._ops.map import MapOp
from penstock._ops.operator import ChainOp, WritesRows, apply_all
from penstock._ops.reading import EnumerateOp, ReadLeaf, ShardOp, SkipOp
from penstock._ops.worker import WorkerContext
from penstock.sources import IndexableSource

UPPER = MapOp(str.upper, "upper", 0, 0, False)
CHAIN = ChainOp(ReadLeaf(IndexableSource(list("abcdefghij")), None, None), (SkipOp(1), UPPER, EnumerateOp(100), ShardOp(2, 1)))
EPOCHS, POSITIONS = np.array([4, 4]), np.array([0, 3])


def test_positions_go_down_through_all_operators_and_elements_come_up() -> None:
    positions_per_op = CHAIN.positions_per_op(EPOCHS, POSITIONS)
    assert [positions.tolist() for _, positions in positions_per_op] == [[2, 8], [1, 7], [1, 7], [1, 7], [0, 3]]
    assert CHAIN.run(EPOCHS, POSITIONS, WorkerContext(0)).rows() == [(101, "C"), (107, "I")]


def test_a_chain_knows_where_an_element_comes_from() -> None:
    assert CHAIN.key(4, 3) == (4, 8)
    assert CHAIN.where(4, 3) == IndexableSource(list("abcdefghij")).describe(8)


def test_a_chain_is_a_leaf_of_another_chain() -> None:
    outer = ChainOp(CHAIN, (SkipOp(1),))
    assert outer.run(EPOCHS[:1], POSITIONS[:1], WorkerContext(0)).rows() == [(103, "E")]
    assert outer.key(0, 0) == (0, 4)


def test_a_block_can_be_run_through_a_part_of_the_operators() -> None:
    block = CHAIN.leaf.run(EPOCHS, POSITIONS, WorkerContext(0))
    assert apply_all((), block, [], WorkerContext(0)) is block
    assert apply_all((UPPER,), block, [(EPOCHS, POSITIONS)], WorkerContext(0)).rows() == ["A", "D"]


def test_only_operators_with_results_of_their_own_write_rows() -> None:
    assert isinstance(UPPER, WritesRows)
    assert not isinstance(SkipOp(1), WritesRows)
