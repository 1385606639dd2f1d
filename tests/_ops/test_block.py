from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from penstock._contracts.source import RowFailed
from penstock._ops.block import Block, ElementFailed
from penstock.errors import LengthMismatch
from penstock.sources.arrays import ArraySource

COLUMNS = {"x": np.arange(20).reshape(10, 2), "y": np.arange(10) * 1.5}


def block(indices: Sequence[int], **content: Any) -> Block:
    return Block(np.zeros(len(indices), np.int64), np.array(indices, np.int64), np.zeros(len(indices), np.uint64), **content)


@pytest.mark.parametrize(("given", "offset"), [(0, 0), (2, 2), (4, 2)])
def test_a_source_that_gives_another_number_of_elements_than_it_is_asked_for_is_refused(given: int, offset: int) -> None:
    class Miscounting(ArraySource):
        def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
            rows.extend([0] * given)

    with pytest.raises(ElementFailed) as caught:
        block([1, 2, 3], source=Miscounting(COLUMNS)).rows()
    assert (caught.value.offset, type(caught.value.error)) == (offset, LengthMismatch)
    assert f"asked for 3 elements at once and gave {given}" in str(caught.value.error)


class FailingColumns(ArraySource):
    """Columns of which some rows cannot be read; says which, or not."""

    def __init__(self, bad: set[int], named: bool) -> None:
        super().__init__(COLUMNS)
        self.bad, self.named = bad, named

    def gather_columns(self, indices: Any, out: Any) -> Any:
        rows = [row for row, index in enumerate(indices.tolist()) if index in self.bad]
        if rows and self.named:
            raise RowFailed(rows[0], OSError("gone"))
        if rows:
            raise OSError("gone")
        return super().gather_columns(indices, out)


@pytest.mark.parametrize("named", [True, False])
def test_a_column_source_that_fails_says_which_row_it_was_or_that_it_does_not_know(named: bool) -> None:
    source = FailingColumns({5, 6}, named)
    with pytest.raises(ElementFailed) as caught:
        block([1, 2, 6, 5], source=source, column_source=source).columns()
    failed = caught.value
    assert (failed.stage, failed.offset, failed.whole) == ("read", 2 if named else 0, not named)
    assert type(failed.error) is OSError
    assert failed.__cause__ is failed.error


def test_a_column_source_that_names_a_row_behind_the_block_is_taken_to_mean_the_last_one() -> None:
    class Wrong(ArraySource):
        def gather_columns(self, indices: Any, out: Any) -> Any:
            raise RowFailed(99, OSError("gone"))

    source = Wrong(COLUMNS)
    with pytest.raises(ElementFailed) as caught:
        block([1, 2], source=source, column_source=source).columns()
    assert caught.value.offset == 1
