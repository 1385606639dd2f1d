from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps


def _is_even(value: Any) -> bool:
    return bool(value % 2 == 0)


def _twice(value: Any) -> list[Any]:
    return [value, value]


def _seven() -> Iterator[int]:
    return iter(range(7))


def _kept() -> ps.Dataset:
    return ps.from_arrays(np.arange(20)).filter(_is_even)


BELOW = {
    "filter": _kept(),
    "filter, take": _kept().take(3),
    "filter, repeat": _kept().repeat(2),
    "filter, batch": _kept().batch(4),
    "filter, batch, map": _kept().batch(4).map(np.negative),
    "filter, batch, repeat": _kept().batch(4).repeat(2),
    "filter, enumerate": _kept().enumerate(),
    "flat_map": ps.from_arrays(np.arange(5)).flat_map(_twice),
    "unbatch": ps.from_arrays(np.arange(6)).batch(4).unbatch(),
    "generator": ps.from_generator(_seven, fast_forward=True),
    "generator, batch": ps.from_generator(_seven, fast_forward=True).batch(3),
}


def _plain(tree: Any) -> Any:
    return tuple(map(_plain, tree)) if isinstance(tree, tuple) else np.asarray(tree).tolist()


@pytest.mark.parametrize("below", BELOW.values(), ids=BELOW.keys())
@pytest.mark.parametrize("num_workers", [0, 2])
def test_enumerate_behind_a_fold_numbers_what_is_left(below: ps.Dataset, num_workers: int) -> None:
    wanted = [(number, _plain(element)) for number, element in enumerate(below, 5)]
    assert len(wanted) >= 2
    assert [_plain(element) for element in below.enumerate(5).feed(executor="threads", num_workers=num_workers)] == wanted


@pytest.mark.parametrize("below", BELOW.values(), ids=BELOW.keys())
def test_what_stands_above_an_enumerate_behind_a_fold_sees_the_pairs(below: ps.Dataset) -> None:
    wanted = [number for number, _ in enumerate(below)]
    ds = below.enumerate().map(lambda pair: pair[0]).batch(2)
    assert [number for batch in ds for number in batch.tolist()] == wanted


@pytest.mark.parametrize("below", BELOW.values(), ids=BELOW.keys())
def test_a_feed_saved_behind_such_an_enumerate_resumes_at_its_number(below: ps.Dataset) -> None:
    ds = below.enumerate()
    whole = [_plain(element) for element in ds]
    for step in range(1, len(whole)):
        with ds.feed(num_workers=0) as feed:
            for _ in range(step):
                next(feed)
            state = feed.state_dict()
        with ds.feed(executor="threads", num_workers=2) as feed:
            feed.load_state_dict(state)
            assert [_plain(element) for element in feed] == whole[step:]


@pytest.mark.parametrize(
    "options", [{"executor": "inline"}, {"executor": "threads", "num_workers": 1}, {"executor": "threads", "num_workers": 3}], ids=str
)
@pytest.mark.parametrize("bad", [(), (1,), (0, 9)], ids=str)
def test_batches_keep_their_numbers_beside_skip(bad: tuple[int, ...], options: dict[str, Any]) -> None:
    def check(value: int) -> int:
        if value in bad:
            raise ValueError(f"cannot use {value}")
        return value

    with ps.from_source(range(10)).map(check).batch(3).enumerate().feed(on_error=ps.Skip(), **options) as feed:
        found = [(number, batch.tolist()) for number, batch in feed]
    batches = [[value for value in range(start, min(start + 3, 10)) if value not in bad] for start in range(0, 10, 3)]
    assert found == [(number, batch) for number, batch in enumerate(batches) if batch]
