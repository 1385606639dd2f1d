from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sources.groups import Chunked, Grouped

import penstock as ps
from penstock._plan.base import groups_of, walk
from penstock._plan.check import reading_notes
from penstock.errors import PlanError, SourceError

NUMBERS = ps.from_source(Grouped([3, 0, 4, 1, 2]))


def borders(dataset: ps.Dataset) -> list[int] | None:
    found = dataset._root.group_starts()
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    "change",
    [
        lambda ds: ds.shuffle(),
        lambda ds: ds.shuffle(window_groups=2),
        lambda ds: ds.repeat(2),
        lambda ds: ds.batch(2),
        lambda ds: ds.zip(ds),
        lambda ds: ds.concatenate(ps.from_source([1, 2])),
        lambda ds: ps.from_arrays(np.arange(3)),
    ],
)
def test_where_nothing_keeps_groups_together_the_error_says_what_to_do(change: Any) -> None:
    with pytest.raises(PlanError) as caught:
        groups_of(change(NUMBERS)._root)
    assert "needs elements that lie in groups" in caught.value.what
    assert "put it right after such a source" in caught.value.fix


@pytest.mark.parametrize("starts", [[], [0, 5], [1, 10], [0, 7, 3, 10], [[0, 10]], [0.0, 10.0]])
def test_borders_that_are_none_are_an_error_of_the_source(starts: Any) -> None:
    source = Grouped([10])
    source.group_starts = lambda: np.array(starts)  # type: ignore[method-assign]
    with pytest.raises(SourceError, match="no borders of groups of 10 elements"):
        groups_of(ps.from_source(source)._root)


def test_a_shuffle_that_needs_more_decoded_groups_than_are_kept_is_noted() -> None:
    ds = ps.from_source(Chunked([5] * 20, kept=6))
    assert reading_notes(walk(ds.shuffle(window_groups=6)._root)) == []
    assert reading_notes(walk(ps.from_source(Grouped([5] * 20)).shuffle()._root)) == []
    (note,) = reading_notes(walk(ds.map(abs).shuffle()._root))
    assert note.startswith("this shuffle reads 20 groups of numbers(100) at a time, and about 6 are kept decoded")
    assert "shuffle(window_groups=3) reads each once" in note
    (note,) = reading_notes(walk(ds.shuffle(window_groups=7)._root))
    assert note.startswith("shuffle(window_groups=7) reads 7 groups")
    assert f"  note: {note}" in ds.shuffle(window_groups=7).explain().splitlines()
