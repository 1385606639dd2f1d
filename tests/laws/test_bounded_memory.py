"""Elements of any sizes, maps with workers of their own, little memory, several epochs: the elements are those of the plain loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as ps

COUNT = 2000


def made(widths: list[int]) -> Callable[[int], dict[str, Any]]:
    """Return a function whose results take as many bytes as `widths` say: in turn, each for a hundredth of the elements."""

    def make(number: int) -> dict[str, Any]:
        return {"number": number, "fill": np.zeros(widths[number * 100 // COUNT % len(widths)])}

    return make


def more(element: dict[str, Any]) -> dict[str, Any]:
    return {**element, "more": 1.0}


def kept(element: dict[str, Any]) -> bool:
    return bool(element["number"] % 7)


def numbers_of(item: Any) -> list[int]:
    """Return the numbers in an element, a batch, or a list of elements."""
    return [one["number"] for one in item] if isinstance(item, list) else np.atleast_1d(item["number"]).tolist()


@settings(max_examples=12)
@given(
    widths=st.lists(st.sampled_from([1, 100, 1000, 5000]), min_size=1, max_size=5),
    own=st.lists(st.sampled_from([None, 1, 3]), min_size=1, max_size=3),
    has_filter=st.booleans(),
    batch_size=st.sampled_from([0, 1, 4, 32]),
    memory_bytes=st.sampled_from([1, 1_000_000, 10_000_000]),
    workers=st.sampled_from([0, 1, 3]),
    num_epochs=st.integers(1, 3),
)
@example([1000], [4, None], False, 32, 10_000_000, 2, 2)  # a block of the first map, longer than what is left of its chunk
def test_elements_are_those_of_the_plain_loop(
    widths: list[int], own: list[int | None], has_filter: bool, batch_size: int, memory_bytes: int, workers: int, num_epochs: int
) -> None:
    ds: ps.Dataset = ps.from_source(range(COUNT))
    for function, concurrency in zip([made(widths), more, more], own, strict=False):
        ds = ds.map(function, concurrency=concurrency)
    ds = ds.filter(kept) if has_filter else ds
    if batch_size:
        ds = ds.batch(batch_size, collate_fn=None if len(set(widths)) == 1 else list)
    with ds.feed(executor="threads" if workers else "inline", num_workers=workers, memory_bytes=memory_bytes) as feed:
        for _ in range(num_epochs):
            found = [number for item in feed for number in numbers_of(item)]
            assert found == [number for number in range(COUNT) if number % 7 or not has_filter]
