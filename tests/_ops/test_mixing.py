from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock._ops.block import ElementFailed
from penstock._ops.operator import ChainOp
from penstock._ops.reading import MixLeaf, ReadLeaf, in_turn
from penstock._ops.worker import WorkerContext
from penstock._order.mixing import mixing
from penstock.errors import LengthMismatch
from penstock.sources import IndexableSource


def read(values: Any) -> ChainOp:
    return ChainOp(ReadLeaf(IndexableSource(values), None, None), ())


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
