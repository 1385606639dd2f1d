from __future__ import annotations

import json
import threading
import warnings
from typing import Any

import pytest
from testing.breaking import assert_broken

import penstock as ps
from penstock.feed import Feed
from penstock.testing.runs import attempt, checked_close, quiet, require_same, run, words


def divide(x: int) -> float:
    return 6 / (x - 3)


def test_a_run_keeps_items_states_and_the_error_that_ended_it() -> None:
    dataset = ps.from_source(list(range(6)))
    done = run(dataset.feed(), "here", saving=True)
    assert (done.items, done.error, done.ended, len(done.states)) == ([0, 1, 2, 3, 4, 5], None, True, 7)
    assert [json.loads(state)["step"] for state in done.states] == list(range(7))
    assert run(dataset.feed(), "here", state=done.states[4]).items == [4, 5]
    assert run(dataset.feed(), "here", most=2)[:3] == ([0, 1], None, False)
    failed = run(dataset.map(divide).feed(), "here")
    assert (failed.items, failed.ended, words(failed.error)) == ([-2, -3, -6], False, "ZeroDivisionError: division by zero")


def test_a_stream_without_fast_forward_has_no_states() -> None:
    assert run(ps.from_generator(lambda: iter([1])).feed(), "here", saving=True)[0::3] == ([1], [])


def test_a_feed_that_goes_on_behind_its_error_is_named() -> None:
    class Resurrected(Feed):
        def __next__(self) -> Any:
            return 0 if self._condition == "failed" else super().__next__()

    dataset = ps.from_source([3]).map(divide)
    feed = Resurrected(dataset._root, ps.Options())
    assert_broken(
        lambda: run(feed, "here"), "after the error ZeroDivisionError: division by zero, next() did not raise", "here", "raised once"
    )


def test_a_feed_that_waits_too_long_is_closed_and_named() -> None:
    release = threading.Event()

    def stuck(x: int) -> int:
        release.wait(30)
        return x

    feed = ps.from_source([1]).map(stuck).feed(executor="threads", num_workers=1, grace_period_s=0.0)
    assert_broken(lambda: run(feed, "here", timeout_s=0.05), "did not end within 0.05 s", "here", "look for a lock")
    release.set()


def test_a_feed_with_stragglers_is_named() -> None:
    release = threading.Event()

    def stuck(x: int) -> int:
        if x:
            release.wait(30)
        return x

    feed = ps.from_source([0, 1]).map(stuck).feed(executor="threads", num_workers=1, grace_period_s=0.0)
    next(feed)
    assert_broken(lambda: checked_close(feed, "here"), "close() failed: 1 worker(s)", "here", "functions must return")
    release.set()


def test_runs_that_differ_are_named() -> None:
    require_same([1, [2]], [1, [2]], "law", where="here", fix="so")
    assert_broken(
        lambda: require_same([1], [1.0], "these differ", where="here", fix="so"), "these differ: element 0 is 1, not 1.0", "here", "so"
    )


def test_an_attempt_gives_the_result_or_the_error() -> None:
    assert attempt(lambda: 5) == (5, None)
    result, error = attempt(lambda: divide(3))
    assert result is None
    assert isinstance(error, ZeroDivisionError)
    assert words(None) == "no error"
    with pytest.raises(KeyboardInterrupt):
        attempt(_interrupt)


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_only_the_warning_of_empty_feeds_is_silent() -> None:
    with quiet():
        assert list(ps.from_source([])) == []
        with pytest.raises(UserWarning, match="another"):
            warnings.warn("another", stacklevel=1)
