"""An observer that fails is switched off, with one warning, and training goes on."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import pytest
from observe.test_progress import Terminal

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


class Silent(Terminal):
    """Nothing can be written on it, for any reason."""

    write = None  # type: ignore[assignment]


def closed() -> Terminal:
    stream = Terminal()
    stream.close()
    return stream


def full_disk() -> io.TextIOWrapper:
    return open("/dev/full", "w")


@pytest.mark.parametrize("shows", [False, True], ids=["progress", "show"])
@pytest.mark.parametrize(
    "made",
    [
        closed,
        Silent,
        pytest.param(full_disk, marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")),
    ],
)
def test_a_line_or_picture_that_cannot_be_drawn_is_one_warning(made: Callable[[], Any], shows: bool) -> None:
    stream = made()
    with (  # noqa: PT031
        pytest.warns(RuntimeWarning, match="training goes on") as caught,
        ps.from_source(range(6)).batch(2).feed(num_workers=0) as feed,
    ):
        if shows:
            feed.show(stream=stream)
        assert len(list(feed if shows else feed.progress(stream=stream))) == 3
    assert len(caught) == 1
    assert shows or caught[0].filename == __file__
    if made is full_disk:
        assert "No space left" in str(caught[0].message)
        with pytest.raises(OSError, match="No space left"):
            stream.close()
