from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._ops.block import Block, ElementFailed
from penstock._ops.collation import Collate, Pad, Stack
from penstock._ops.rows import Rows
from penstock._ops.stack import BatchSpec
from penstock.sources.arrays import ArraySource


def name(row: int) -> str:
    return f"number {row}"


def allocate(wanted: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[np.ndarray]:
    return [np.empty(shape, dtype) for shape, dtype in wanted]


def rows_of(sizes: list[int], guess: Any = None, collation: Any = None, lock: Any = None) -> Rows:
    return Rows(sizes, None if guess is None else BatchSpec(guess, lambda: "guess"), allocate, name, collation or Stack(), lock)


def filled(elements: list[Any], order: Sequence[int], guess: Any = None) -> Rows:
    rows = rows_of([len(elements)], guess)
    for row in order:
        rows.put(row, elements[row])
    return rows


ELEMENTS = st.sampled_from([1, 2, 3.0, np.float32(4), "text", np.zeros(2), np.ones(2), np.zeros(3), {"x": 1}, {"x": 2.0}])


def verdict(rows: Rows) -> str:
    """Say what comes out, or the error."""
    try:
        (batch,) = rows.finish(1)
    except ElementFailed as failure:
        return f"{failure.offset} {failure.stage} {failure.error}"
    return repr(batch)


@given(st.lists(ELEMENTS, min_size=1, max_size=4), ELEMENTS, st.data())
def test_the_outcome_does_not_depend_on_who_was_first_nor_on_the_unit_before(elements: list[Any], guess: Any, data: st.DataObject) -> None:
    expected = verdict(filled(elements, range(len(elements))))
    order = data.draw(st.permutations(range(len(elements))))
    assert verdict(filled(elements, order)) == expected
    assert verdict(filled(elements, order, guess)) == expected


@pytest.mark.usefixtures("nervous")
def test_several_threads_may_fill_different_rows_at_once() -> None:
    num_rows, num_threads = 2000, 8
    start = threading.Barrier(num_threads)
    rows = rows_of([num_rows], lock=threading.Lock())

    def fill(first: int) -> None:
        start.wait()
        for row in range(first, num_rows, num_threads):
            rows.put(row, {"x": np.full(3, row, np.int32), "y": row})

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (batch,) = rows.finish(1)
    assert batch["y"].tolist() == list(range(num_rows))
    assert (batch["x"] == np.arange(num_rows)[:, None]).all()


def test_memory_is_asked_for_once_and_not_for_objects() -> None:
    asked = []

    def counting(wanted: Any) -> Any:
        asked.append(wanted)
        return allocate(wanted)

    rows = Rows([2], None, counting, name, Stack())
    rows.put_rows(0, [{"x": 1, "path": "a"}, {"x": 2, "path": "b"}])
    assert asked == [[((2,), np.dtype("int64"))]]
    assert rows.finish(1)[0]["path"].tolist() == ["a", "b"]


def block(indices: list[int], tree: Any) -> Block:
    source = ArraySource(tree)
    positions = np.array(indices, np.int64)
    return Block(np.zeros(len(indices), np.int64), positions, np.zeros(len(indices), np.uint64), source=source, column_source=source)


@given(st.lists(st.one_of(ELEMENTS, st.none(), st.just(b"b")), min_size=1, max_size=5), st.one_of(st.none(), ELEMENTS), st.data())
def test_a_column_of_objects_is_judged_as_its_elements_are_however_it_is_cut(elements: list[Any], guess: Any, data: st.DataObject) -> None:
    column = np.empty(len(elements), object)
    for row, element in enumerate(elements):
        column[row] = element
    rows = rows_of([len(elements)], guess)
    ends = [*sorted(data.draw(st.sets(st.integers(1, len(elements)))) | {len(elements)})]
    for begin, end in data.draw(st.permutations(list(zip([0, *ends], ends, strict=False)))):
        rows.put_block(begin, block(list(range(begin, end)), column))
    assert verdict(rows) == verdict(filled(elements, range(len(elements))))


COLLATIONS = {"stack": Stack(), "pad": Pad(None, -1), "list": Collate(list)}


@pytest.mark.parametrize("name", sorted(COLLATIONS))
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_rows_that_are_missing_are_left_out_of_their_batches(name: str, sizes: list[int], data: st.DataObject) -> None:
    collation, count = COLLATIONS[name], sum(sizes)
    missing = data.draw(st.frozensets(st.integers(0, count - 1)))
    odd = data.draw(st.frozensets(st.integers(0, count - 1), max_size=1)) if name == "list" else frozenset()
    elements: list[Any] = [str(row) if row in odd else {"a": np.full(1 + row % 2 * (name == "pad"), row), "b": row} for row in range(count)]
    rows = rows_of(sizes, data.draw(st.sampled_from([None, elements[0]])), collation)
    for row in data.draw(st.permutations(range(count))):
        if row not in missing:
            rows.put(row, elements[row])
    borders = np.cumsum([0, *sizes]).tolist()
    kept = [[row for row in range(begin, end) if row not in missing] for begin, end in pairwise(borders)]
    found = rows.finish(len(sizes), missing=missing)
    assert [batch is None for batch in found] == [not some for some in kept]
    for batch, some in zip(found, kept, strict=True):
        if not some:
            continue
        if name == "list":
            assert [one if isinstance(one, str) else int(one["b"]) for one in batch] == [
                elements[row] if row in odd else row for row in some
            ]
        else:
            assert batch["b"].tolist() == some
            assert [values[0] for values in batch["a"].tolist()] == some
