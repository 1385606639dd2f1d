from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock._ops.block import ElementFailed
from penstock._ops.map import MapOp
from penstock._ops.operator import ChainOp
from penstock._ops.reading import MixLeaf, ReadLeaf, SkipOp, in_turn
from penstock._ops.worker import WorkerContext
from penstock._order.mixing import mixing
from penstock.errors import LengthMismatch
from penstock.sources import IndexableSource

WORDS = ["abc", "defgh", "ij"]


def read(values: Any) -> ChainOp:
    return ChainOp(ReadLeaf(IndexableSource(values), None, None), ())


BRANCHES = tuple(read(list(word)) for word in WORDS)


class Failing:
    """Elements of a word, one of which cannot be read."""

    def __init__(self, word: str, bad: int, error: type[Exception]) -> None:
        self.word, self.bad, self.error = word, bad, error

    def __len__(self) -> int:
        return len(self.word)

    def __getitem__(self, index: int) -> str:
        if index == self.bad:
            raise self.error(f"no {index}")
        return self.word[index]


class Several(Failing):
    """The same, which can be asked for several at once."""

    def __getitems__(self, indices: list[int]) -> list[str]:
        return [self[index] for index in indices]


@pytest.mark.parametrize("moved", [False, True])
def test_elements_that_are_read_in_turn_are_those_that_are_read_branch_by_branch(moved: bool) -> None:
    branches = tuple(ChainOp(branch.leaf, (SkipOp(1),) if moved else ()) for branch in BRANCHES)
    order = mixing(((0, (1.0, 2.0, 1.0)), (3, (2.0, 1.0, 1.0))), [3 - moved, 5 - moved, 2 - moved], restart=False)
    read_in_turn = in_turn(branches)
    assert read_in_turn is not None
    assert read_in_turn.plain is not moved
    assert order.length > 3
    positions = np.arange(int(order.length))[::-1].copy()
    epochs = np.full(len(positions), 6)
    found = MixLeaf(branches, order, read_in_turn).run(epochs, positions, WorkerContext(0))
    expected = MixLeaf(branches, order).run(epochs, positions, WorkerContext(0))
    assert found.rows() == expected.rows()
    for own, other in ((found.epochs, expected.epochs), (found.indices, expected.indices), (found.lanes, expected.lanes)):
        assert own.dtype == other.dtype
        assert own.tolist() == other.tolist()


@pytest.mark.parametrize(("error", "raised"), [(ValueError, ValueError), (IndexError, LengthMismatch)])
def test_an_element_that_cannot_be_read_in_turn_is_named_as_it_is_branch_by_branch(error: type[Exception], raised: type[Exception]) -> None:
    branches = (read(list("abc")), read(Failing("defg", 1, error)))
    order = mixing(((0, (1.0, 1.0)),), [3, 4], restart=False)
    caught = []
    for leaf in (MixLeaf(branches, order, in_turn(branches)), MixLeaf(branches, order)):
        with pytest.raises(ElementFailed) as failed:
            leaf.run(np.zeros(6, np.int64), np.arange(6), WorkerContext(0)).rows()
        caught.append((failed.value.offset, failed.value.stage, type(failed.value.error), str(failed.value.error)))
    assert caught[0] == caught[1]
    assert caught[0][:3] == (3, "read", raised)


def test_branches_that_do_more_than_look_into_an_object_are_not_read_in_turn() -> None:
    plain = read([1, 2])
    mapped = ChainOp(plain.leaf, (MapOp(str, "str", 0, 0, False),))
    assert in_turn((plain, mapped)) is None
    assert in_turn((plain, read(Several("abc", 5, ValueError)))) is None
    assert in_turn((plain, ChainOp(MixLeaf(BRANCHES, mixing(((0, (1.0,) * 3),), [3, 5, 2], restart=False)), ()))) is None
