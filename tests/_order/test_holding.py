"""Each holding fold against plain Python, saved as JSON and resumed at every item."""

from __future__ import annotations

import json
from typing import Any

from _order.references import bucketed, concatenated, drawn, first_fitted, windowed
from hypothesis import given
from hypothesis import strategies as st

from penstock._order.chain import BufferedElement, Chain, HoldingFold
from penstock._order.holding import BucketFold, ConcatenateFold, Group, PackFold, ShuffleBufferFold, WindowFold

PASSES = st.lists(st.lists(st.integers(0, 9), max_size=25), min_size=1, max_size=3)


def weight(held: BufferedElement) -> Any:
    """Items are pairs (name, size)."""
    return held.item[1]


def named(sizes: list[int], number: int = 0) -> list[tuple[str, int]]:
    return [(f"{number}.{place}", size) for place, size in enumerate(sizes)]


def plain(out: Any) -> Any:
    """Turn what comes out into names."""
    if isinstance(out, BufferedElement):
        return out.item[0]
    if isinstance(out, Group):
        names = [held.item[0] for held in out.items]
        return names if out.layout is None else [(name, *span) for name, span in zip(names, out.layout, strict=True)]
    return [held.item[0] for held in out]


def run(fold: HoldingFold, passes: list[list[int]], *, reload: bool = False) -> list[list[Any]]:
    """Return what comes out of each pass; with `reload`, a new chain goes on after every step, from JSON and the items held."""
    chain, out = Chain([fold]), []
    for number, sizes in enumerate(passes):
        out.append([])
        for item in [*named(sizes, number), None]:
            if reload:
                chain = reloaded(fold, chain)
            outs = chain.push(item) if item is not None else chain.end()[0]
            out[-1].extend(map(plain, outs))
    return out


def reloaded(fold: HoldingFold, chain: Chain) -> Chain:
    held = sorted(chain.held(), key=lambda one: one.number)
    numbers = {one.number: 2 * place for place, one in enumerate(held)}  # of two items that each input gives
    state = json.loads(json.dumps(chain.snapshot(numbers)))
    again = Chain([fold], state, recall=2 * len(held))
    for one in held:
        assert [*again.push(one.item), *again.push(("not held", 0))] == []
    return again


FOLDS = st.one_of(
    st.builds(
        lambda boundaries, batches, drop: (
            BucketFold(boundaries, batches[: len(boundaries) + 1], drop, weight),
            lambda sizes, number: bucketed(sizes, boundaries, batches, drop),
        ),
        st.lists(st.integers(1, 9), max_size=3, unique=True).map(sorted).map(tuple),
        st.tuples(*[st.integers(1, 4)] * 4),
        st.booleans(),
    ),
    st.builds(
        lambda capacity, num_bins: (
            PackFold(capacity, num_bins, weight),
            lambda sizes, number: first_fitted(sizes, capacity, num_bins),
        ),
        st.integers(9, 20),
        st.integers(1, 5),
    ),
    st.integers(1, 20).map(lambda capacity: (ConcatenateFold(capacity, weight), lambda sizes, number: concatenated(sizes, capacity))),
    st.builds(
        lambda size, most, seed, again: (
            ShuffleBufferFold(size, most, seed, again, weight),
            lambda sizes, number: drawn(sizes, number if again else 0, size, most, seed),
        ),
        st.integers(1, 8),
        st.integers(1, 40),
        st.integers(0, 2**64 - 1),
        st.booleans(),
    ),
    st.builds(
        lambda size, shift, stride, drop: (
            WindowFold(size, shift, stride, drop),
            lambda sizes, number: windowed(sizes, size, shift, stride, drop),
        ),
        st.integers(1, 4),
        st.integers(1, 6),
        st.integers(1, 3),
        st.booleans(),
    ),
)


@given(FOLDS, PASSES)
def test_each_fold_does_what_plain_python_says(pair: Any, passes: list[list[int]]) -> None:
    fold, reference = pair
    assert run(fold, passes) == [reference(named(sizes, number), number) for number, sizes in enumerate(passes)]


@given(FOLDS, PASSES)
def test_each_fold_can_be_saved_as_json_and_resumed_at_every_item(pair: Any, passes: list[list[int]]) -> None:
    assert run(pair[0], passes, reload=True) == run(pair[0], passes)


# -- what each promises ---------------------------------------------------------------------------------------------------------------


def test_an_item_larger_than_the_buffers_bytes_passes_through_alone() -> None:
    chain = Chain([ShuffleBufferFold(10, 5, 0, True, weight)])
    assert [len(chain.push(item)) for item in (("a", 50), ("b", 50), ("c", 1))] == [0, 1, 1]


def test_windows_are_those_of_tf_data() -> None:
    # tf.data.Dataset.range(7).window(3, shift=2, stride=2, drop_remainder=...): the examples of its documentation.
    def windows(size: int, shift: int, stride: int, drop: bool) -> list[list[int]]:
        (out,) = run(WindowFold(size, shift, stride, drop), [[0] * 7])
        return [[int(name.partition(".")[2]) for name in group] for group in out]

    assert windows(3, 3, 1, False) == [[0, 1, 2], [3, 4, 5], [6]]
    assert windows(3, 3, 1, True) == [[0, 1, 2], [3, 4, 5]]
    assert windows(3, 1, 2, True) == [[0, 2, 4], [1, 3, 5], [2, 4, 6]]
    assert windows(2, 4, 1, True) == [[0, 1], [4, 5]]


def test_work_for_an_item_does_not_grow_with_what_is_held() -> None:
    asked = []

    def counted(held: BufferedElement) -> int:
        asked.append(held.number)
        return 1

    chain = Chain([ConcatenateFold(10**6, counted)])
    for item in range(1000):
        chain.push(item)
    assert len(asked) == 1000
