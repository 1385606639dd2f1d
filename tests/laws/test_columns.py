"""A column source that cannot read some rows: policies see exactly those elements, whatever the blocks are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from feeds import resumed
from laws.epochs import OPTIONS

import penstock as ps
from penstock._contracts.source import RowFailed
from penstock.errors import TooManySkipped
from penstock.sources.arrays import ArraySource

SIZE = 50
BAD = frozenset({0, 7, 8, 9, 31, 49})
ERRORS = [True, False]


class Columns(ArraySource):
    """Rows x = i, of which some cannot be read; it says which one it was, or does not."""

    def __init__(self, bad: frozenset[int], named: bool, cures_after: int | None = None) -> None:
        super().__init__({"x": np.arange(SIZE), "y": np.arange(SIZE * 2.0).reshape(SIZE, 2)})
        self.bad, self.named, self.cures_after = bad, named, cures_after
        self.failures: dict[int, int] = {}

    def _broken(self, index: int) -> bool:
        if index not in self.bad:
            return False
        self.failures[index] = self.failures.get(index, 0) + 1
        return self.cures_after is None or self.failures[index] <= self.cures_after

    def gather(self, indices: Any, rows: list[Any]) -> None:
        for index in indices:
            if self._broken(index):
                raise OSError(f"row {index} is gone")
            super().gather([index], rows)

    def gather_columns(self, indices: Any, out: Any) -> Any:
        for row, index in enumerate(indices.tolist()):
            if self._broken(index):
                # What was written so far must not matter.
                for column in out or ():
                    column[:] = -1
                error = OSError(f"row {index} is gone")
                raise RowFailed(row, error) if self.named else error
        return super().gather_columns(indices, out)


def dataset(source: Columns) -> ps.Dataset:
    return ps.from_source(source)


def xs(batches: list[Any]) -> list[list[int]]:
    for batch in batches:
        assert (batch["y"][:, 0] == batch["x"] * 2.0).all(), "the columns of a row belong together"
    return [batch["x"].tolist() for batch in batches]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("named", ERRORS)
def test_skip_leaves_out_exactly_the_rows_that_cannot_be_read(named: bool, options: dict[str, Any]) -> None:
    batches = [[row for row in range(start, min(start + 8, SIZE)) if row not in BAD] for start in range(0, SIZE, 8)]
    with dataset(Columns(BAD, named)).batch(8).feed(on_error=ps.Skip(), **options) as feed:
        assert xs(list(feed)) == [batch for batch in batches if batch]
        assert feed.stats().num_skipped == len(BAD)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("named", ERRORS)
def test_replace_puts_the_next_good_row_in_the_place_of_one_that_cannot_be_read(named: bool, options: dict[str, Any]) -> None:
    wanted = []
    for index in range(SIZE):
        while index % SIZE in BAD:
            index += 1
        wanted.append(index % SIZE)
    with dataset(Columns(BAD, named)).batch(10).feed(on_error=ps.Replace(), **options) as feed:
        assert [x for batch in xs(list(feed)) for x in batch] == wanted


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("named", ERRORS)
def test_the_error_names_the_one_row_and_all_whole_batches_before_it_are_delivered(named: bool, options: dict[str, Any]) -> None:
    got: list[Any] = []
    with (
        dataset(Columns(frozenset({31}), named)).batch(8).feed(**options) as feed,
        pytest.raises(OSError, match="row 31 is gone") as caught,
    ):
        got.extend(feed)
    assert xs(got) == [list(range(start, start + 8)) for start in (0, 8, 16)]
    assert any("stage 'read'" in note and "index 31" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_retry_gives_the_rows_that_can_be_read_the_second_time(options: dict[str, Any]) -> None:
    with dataset(Columns(BAD, True, cures_after=1)).batch(8).feed(on_error=ps.Retry(2), **options) as feed:
        assert [x for batch in xs(list(feed)) for x in batch] == list(range(SIZE))


@pytest.mark.parametrize("named", ERRORS)
def test_the_limit_of_a_policy_counts_rows(named: bool) -> None:
    with dataset(Columns(BAD, named)).batch(8).feed(on_error=ps.Skip(limit=5)) as feed, pytest.raises(TooManySkipped):
        list(feed)
    with dataset(Columns(BAD, named)).batch(8).feed(on_error=ps.Skip(limit=6)) as feed:
        assert sum(map(len, xs(list(feed)))) == SIZE - len(BAD)


@pytest.mark.parametrize("named", ERRORS)
def test_a_saved_state_goes_on_around_the_rows_that_were_left_out(named: bool) -> None:
    pipeline = dataset(Columns(BAD, named)).shuffle(seed=3).batch(8).repeat(2)
    with pipeline.feed(on_error=ps.Skip()) as feed:
        whole = xs(list(feed))
    for taken in range(0, len(whole), 3):
        with pipeline.feed(on_error=ps.Skip()) as feed:
            first = [next(feed) for _ in range(taken)]
            state = feed.state_dict()
        assert xs(first) + xs(resumed(pipeline, state, on_error=ps.Skip())) == whole
