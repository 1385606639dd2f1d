from __future__ import annotations

from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._order.arithmetic import (
    batch_rows,
    concatenate_parts,
    repeated,
    shard_length,
    shard_resume,
    sharded,
    window_length,
)

LENGTHS = st.integers(0, 60)
SHARDS = st.integers(1, 8).flatmap(lambda number: st.tuples(st.just(number), st.integers(0, number - 1)))


def ints(values: object) -> np.ndarray:
    return np.array(values, np.int64)


@given(LENGTHS, SHARDS)
def test_a_shard_is_as_long_as_the_slice_of_a_list(length: int, shard: tuple[int, int]) -> None:
    assert shard_length(length, *shard) == len(range(length)[shard[1] :: shard[0]])


@given(LENGTHS, SHARDS)
def test_a_shard_has_the_positions_of_the_slice_of_a_list(length: int, shard: tuple[int, int]) -> None:
    expected = list(range(length)[shard[1] :: shard[0]])
    assert sharded(np.arange(len(expected)), *shard).tolist() == expected


@given(LENGTHS, SHARDS)
def test_a_shard_resumes_at_its_first_position_that_is_not_behind(place: int, shard: tuple[int, int]) -> None:
    number, index = shard
    local = next(local for local in count() if local * number + index >= place)
    assert shard_resume(place, number, index) == local


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 5), st.data())
def test_a_position_above_a_repeat_is_a_pass_and_a_position_below_it(length: int, times: int, epoch: int, data: st.DataObject) -> None:
    order = [(epoch * times + number, place) for number in range(times) for place in range(length)]
    chosen = data.draw(st.lists(st.integers(0, len(order) - 1), max_size=20))
    epochs, inner = repeated(np.full(len(chosen), epoch), ints(chosen), length, times)
    assert list(zip(epochs.tolist(), inner.tolist(), strict=True)) == [order[place] for place in chosen]


def test_positions_near_two_to_the_63_are_exact() -> None:
    last = 2**63 - 1
    epochs, inner = repeated(ints([0]), ints([last]), 10, None)
    assert (int(epochs[0]), int(inner[0])) == divmod(last, 10)
    assert shard_resume(last, 7, 3) == -(-(last - 3) // 7)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.data())
def test_each_position_of_a_concatenation_belongs_to_one_child(lengths: list[int], data: st.DataObject) -> None:
    order = [(child, place) for child, length in enumerate(lengths) for place in range(length)]
    if not order:
        return
    chosen = data.draw(st.lists(st.integers(0, len(order) - 1), min_size=1, max_size=20))
    found: dict[int, tuple[int, int]] = {}
    for child, offsets, positions in concatenate_parts(ints(chosen), lengths):
        for offset, place in zip(offsets.tolist(), positions.tolist(), strict=True):
            assert offset not in found
            found[offset] = (child, place)
    assert [found[offset] for offset in range(len(chosen))] == [order[place] for place in chosen]


@given(LENGTHS, st.integers(1, 9), st.data())
def test_the_rows_of_batches_are_the_parts_of_a_list(length: int, size: int, data: st.DataObject) -> None:
    batches = cut(length, size, drop=False)
    if not batches:
        return
    chosen = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, len(batches) - 1)), max_size=6))
    epochs, rows, sizes = batch_rows(ints([epoch for epoch, _ in chosen]), ints([place for _, place in chosen]), length, size)
    flat = iter(zip(epochs.tolist(), rows.tolist(), strict=True))
    assert [list(islice(flat, size)) for size in sizes] == [[(epoch, row) for row in batches[place]] for epoch, place in chosen]
    assert next(flat, None) is None


@given(LENGTHS, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.data())
def test_windows_stand_at_every_shift_and_are_short_only_at_the_end(
    length: int, size: int, shift: int, stride: int, drop: bool, data: st.DataObject
) -> None:
    windows = [list(range(start, length, stride))[:size] for start in range(0, length, shift)]
    windows = [window for window in windows if len(window) == size or not drop]
    assert window_length(length, size, shift, stride, drop) == len(windows)
    if not windows:
        return
    chosen = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, len(windows) - 1)), max_size=6))
    epochs, rows, sizes = batch_rows(ints([e for e, _ in chosen]), ints([place for _, place in chosen]), length, size, shift, stride)
    flat = iter(zip(epochs.tolist(), rows.tolist(), strict=True))
    assert [list(islice(flat, count)) for count in sizes] == [[(epoch, row) for row in windows[place]] for epoch, place in chosen]
    assert next(flat, None) is None


def test_sizes_beyond_memory_and_64_bits_are_harmless() -> None:
    huge = 2**70
    assert (window_length(5, huge, huge, huge, False), window_length(5, huge, 1, huge, True)) == (1, 0)
    _, rows, sizes = batch_rows(ints([0]), ints([0]), 5, huge)
    assert (rows.tolist(), sizes) == ([0, 1, 2, 3, 4], [5])
    _, rows, sizes = batch_rows(ints([0, 0]), ints([0, 3]), 5, huge, 1, huge)
    assert (rows.tolist(), sizes) == ([0, 3], [1, 1])


def cut(length: int, size: int, drop: bool) -> list[list[int]]:
    """Cut 0..length-1 in parts, the plain way."""
    parts = [list(range(length))[start : start + size] for start in range(0, length, size)]
    return [part for part in parts if len(part) == size or not drop]


@pytest.mark.parametrize("chosen", [[1, 4, 2], [1, 7, 2], []])
def test_what_lies_below_a_repeat_is_in_arrays_of_its_own(chosen: list[int]) -> None:
    epochs, positions = np.zeros(len(chosen), np.int64), ints(chosen)
    for array in repeated(epochs, positions, 5, 3):
        assert not any(np.shares_memory(array, given) for given in (epochs, positions))
