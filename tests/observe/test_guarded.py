"""A listener that fails is switched off, with one warning."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock._contracts.event import BatchDelivered, Event
from penstock.errors import PlanError


def test_a_listener_that_fails_is_switched_off_and_the_run_goes_on() -> None:
    calls: list[Event] = []

    def broken(event: Event) -> None:
        calls.append(event)
        raise RuntimeError("the disk of the monitor is full")

    seen: list[Event] = []
    with ps.from_source(range(40)).batch(4).feed(executor="inline") as feed:
        feed.add_listener(broken)
        feed.add_listener(seen.append)
        with pytest.warns(RuntimeWarning, match="is switched off: RuntimeError: the disk of the monitor is full; training goes on"):
            assert len(list(feed)) == 10
    assert len(calls) == 1
    assert sum(event.num_delivered for event in seen if isinstance(event, BatchDelivered)) == 10


def test_what_is_no_function_is_no_listener() -> None:
    with ps.from_source(range(3)).feed() as feed, pytest.raises(PlanError, match="is no list of functions"):
        feed.add_listener(3)  # type: ignore[arg-type]
