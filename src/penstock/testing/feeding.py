"""The laws of feeds over a source: every executor delivers the same, and a saved feed resumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock._contracts.source import ColumnSource, IndexedSource, StreamSource
from penstock.dataset import Dataset
from penstock.errors import LawBroken, StateUnavailable
from penstock.sources.paths import spread
from penstock.testing.executor import as_dataset
from penstock.testing.faults import RowsOnly
from penstock.testing.runs import WAYS, Run, attempt, require_same, run, words

__all__ = ["check_feeds"]

_NUM_PLACES = 5


def check_feeds(source: IndexedSource | StreamSource, again: Callable[[], Any] | None, most_elements: int, may_fail: bool) -> None:
    """Feed the source element by element and in batches, in every way; stop and resume on the source made again.

    Raises:
        LawBroken: naming the options and the first element that differs.
    """
    here = as_dataset(source).take(most_elements)
    there = here if again is None else as_dataset(again()).take(most_elements)
    for batch_size in (None, 3):
        dataset = here if batch_size is None else here.batch(batch_size)
        other = there if batch_size is None else there.batch(batch_size)
        where = f"check_source({source.label()}){'' if batch_size is None else f', batch({batch_size})'}"
        whole = run(dataset.feed(**WAYS[0]), where, saving=True)
        if whole.error is not None and batch_size is None and not may_fail:
            raise LawBroken(f"a feed failed: {words(whole.error)}", where=where, fix="mend the source") from whole.error
        for way in WAYS[1:]:
            _require_same_run(run(dataset.feed(**way), where), whole, f"{where}, feed({way})")
        if batch_size is not None and isinstance(source, ColumnSource):
            rows = as_dataset(RowsOnly(source)).take(most_elements).batch(batch_size)
            _require_same_run(run(rows.feed(**WAYS[0]), where), whole, f"{where}, row by row")
        _resumes(dataset, other, whole, where)


def _require_same_run(got: Run, whole: Run, where: str) -> None:
    law, fix = "the elements depend on how the feed runs", "let an element depend on its index alone, whichever thread reads it and when"
    if type(got.error) is not type(whole.error):  # first: elements that are missing behind an error say less than the error
        raise LawBroken(f"{words(got.error)} came instead of {words(whole.error)}", where=where, fix=fix) from got.error
    require_same(got.items, whole.items, law, where=where, fix=fix)


def _resumes(dataset: Dataset, other: Dataset, whole: Run, where: str) -> None:
    if not whole.states:
        _, error = attempt(dataset.feed().state_dict)
        if not isinstance(error, StateUnavailable):
            raise LawBroken("a state could not be saved", where=where, fix="see the cause above") from error
        return
    for number, place in enumerate(spread(len(whole.states), _NUM_PLACES)):
        way = WAYS[number % len(WAYS)]
        words_of = f"{where}, feed({way}) resumed behind element {place}"
        tail = run(other.feed(**way), words_of, state=whole.states[place])
        _require_same_run(tail, whole._replace(items=whole.items[place:]), words_of)
