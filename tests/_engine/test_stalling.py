"""What an engine without workers does about it."""

from __future__ import annotations

import io
import pdb
import threading
import warnings
from typing import Any

import pytest
from _engine.engines import engine_of

import penstock as ps
from penstock._contracts.event import Notice
from penstock._engine.watchdog import Watch
from penstock.errors import FeedStalled


def test_an_engine_without_workers_ends_its_consumers_wait_with_a_fault_of_ours() -> None:
    events: list[Any] = []
    engine = engine_of(ps.from_source(range(9)), watch=Watch(0.01), listeners=[events.append])
    engine.wait()
    ready = engine.poll()
    assert ready is not None
    assert ready.error is not None
    assert isinstance(ready.error.error, FeedStalled)
    assert "no worker has anything to do; likely cause: a fault of penstock" in str(ready.error.error)
    assert [event.text for event in events if isinstance(event, Notice) and event.kind == "stall"] == [ready.error.error.what]


def test_an_engine_that_is_told_to_warn_goes_on() -> None:
    engine = engine_of(ps.from_source(range(9)), watch=Watch(0.01, "warn"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(RuntimeWarning, match="no worker has anything to do"):
            engine.wait()
    assert engine.poll() is None


def test_who_has_gone_on_when_the_facts_are_gathered_is_no_stall() -> None:
    events: list[Any] = []
    engine = engine_of(ps.from_source(range(9)), watch=Watch(0.01), listeners=[events.append])
    engine._report_stall("stuck")
    assert engine.poll() is None
    assert events == []


class Slow(io.StringIO):
    """What a user types, after five times the limit."""

    def readline(self, *size: Any) -> str:
        threading.Event().wait(1.0)
        return "continue\n"


def stops(number: int) -> int:
    if number == 3:
        pdb.Pdb(stdin=Slow(), stdout=io.StringIO(), nosigint=True, readrc=False).set_trace()
    return number


async def stops_in_a_call(number: int) -> int:
    return stops(number)


@pytest.mark.parametrize("fn", [stops, stops_in_a_call])
@pytest.mark.parametrize("on_stall", ["raise", "warn"])
def test_a_function_in_a_debugger_is_no_stall(fn: Any, on_stall: Any) -> None:
    with ps.from_source(range(6)).map(fn).feed(stall_timeout_s=0.2, on_stall=on_stall) as feed:
        assert list(feed) == [0, 1, 2, 3, 4, 5]
        assert [text for text in feed.stats().notices if "nothing has arrived" in text or "has been with one" in text] == []
