"""A change that an exception cuts ends the run for all, whoever comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from _engine.stepping import Stepper

import penstock as ps
from penstock._engine.scheduler import poison_on_interrupt
from penstock._engine.segment import Segment


class Killed(Exception):
    """Stands for what comes from outside, between two instructions."""


class Counter:
    """Two figures that belong together."""

    def __init__(self) -> None:
        self.poisoned = self.ended = False
        self.first = self.second = 0

    @poison_on_interrupt
    def add(self, number: int, *, error: BaseException | None = None) -> int:
        """Change both."""
        self.first += number
        if error is not None:
            raise error
        self.second += number
        return self.second


def test_a_change_that_ends_leaves_no_trace() -> None:
    counter = Counter()
    assert [counter.add(1), counter.add(2)] == [1, 3]
    assert not counter.poisoned
    assert not counter.ended


def test_a_change_that_was_cut_is_seen_by_the_next_and_by_all_after_it() -> None:
    counter = Counter()
    with pytest.raises(Killed):
        counter.add(1, error=Killed())
    assert (counter.poisoned, counter.ended) == (True, False)
    for _ in range(2):
        counter.add(1)
        assert (counter.poisoned, counter.ended) == (True, True)


@contextmanager
def cut(owner: type[Any], name: str, at: int) -> Iterator[None]:
    """Raise Killed behind the `at`-th call of a method, when it has changed what it changes."""
    method: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def cutting(*arguments: Any) -> Any:
        nonlocal calls
        out = method(*arguments)
        calls += 1
        if calls == at:
            raise Killed
        return out

    setattr(owner, name, cutting)
    try:
        yield
    finally:
        setattr(owner, name, method)


PLACES: list[tuple[type[Any], str]] = [(Segment, "_next_run"), (Segment, "open"), (Segment, "commit"), (Segment, "next_rows")]


@pytest.mark.parametrize("place", PLACES, ids=[name for _, name in PLACES])
@pytest.mark.parametrize("ordered", [True, False])
def test_others_do_not_go_on_with_half_a_change(ordered: bool, place: tuple[type[Any], str]) -> None:
    """The worst that may happen: the dying worker is slow to say so, and the others do all that they find to do."""
    for at in (1, 2, 3, 5, 9, 17):
        stepper = Stepper(ps.from_source(range(2400)).map(lambda x: np.full(5, x)).batch(4), at, ordered=ordered)
        with cut(*place, at), pytest.raises(Killed):
            stepper.run()
        with pytest.raises(AssertionError, match="stuck"):  # there is nothing to do until the error is booked
            stepper.run()
        assert not stepper.ended
