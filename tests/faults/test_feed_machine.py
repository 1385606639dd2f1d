"""A state machine over a running feed with worker processes: whatever is done to it, it delivers the plain list. FAULTS 5.2, point 7."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from typing import Any

import pytest
from faults.cells import pids
from faults.jobs_in_workers import row
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import penstock as ps
from penstock.errors import FeedClosed

pytestmark = [pytest.mark.usefixtures("fork_server"), pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="worker processes")]

NUM_BATCHES = 30
WAYS = st.sampled_from(
    [
        {"num_workers": 1},
        {"num_workers": 2},
        {"num_workers": 3, "memory_bytes": 1},
    ]
)


def dataset() -> ps.Dataset:
    return ps.from_source(range(4 * NUM_BATCHES)).shuffle(seed=8).map(row).batch(4)


def model(epoch: int) -> list[bytes]:
    """Return the plain list of an epoch."""
    with dataset().feed(executor="inline") as feed:
        feed.set_epoch(epoch)
        return [batch.tobytes() for batch in feed]


def send(pid: int, what: signal.Signals) -> None:
    """Send a worker a signal, unless it is gone: an earlier one may have ended it a moment ago."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)


class FeedMachine(RuleBasedStateMachine):
    """Its model is a list of each epoch and a position."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[int, list[bytes]] = {}
        self.feed: Any = None

    @initialize(way=WAYS)
    def begin(self, way: dict[str, Any]) -> None:
        self.feed = dataset().feed(executor="processes", **way)
        self.epoch, self.position = 0, 0

    @property
    def whole(self) -> list[bytes]:
        if self.epoch not in self.models:
            self.models[self.epoch] = model(self.epoch)
        return self.models[self.epoch]

    def _next(self) -> None:
        if self.position == NUM_BATCHES:
            with pytest.raises(StopIteration):
                next(self.feed)
            return
        assert next(self.feed).tobytes() == self.whole[self.position]
        self.position += 1

    @rule()
    def take_one(self) -> None:
        self._next()

    @rule(count=st.integers(2, 12))
    def take_many(self, count: int) -> None:
        for _ in range(count):
            self._next()

    @rule(way=WAYS)
    def go_on_in_another_feed(self, way: dict[str, Any]) -> None:
        state = json.loads(json.dumps(self.feed.state_dict()))
        self.feed.close()
        self.feed = dataset().feed(executor="processes", **way)
        self.feed.load_state_dict(state)
        if self.position == NUM_BATCHES:  # the state of an end is the start of the next epoch
            self.epoch, self.position = self.epoch + 1, 0

    @rule(count=st.integers(1, 5))
    def loop_and_leave(self, count: int) -> None:
        """A `for` begins the next epoch where one has begun, and is left."""
        self.feed.set_epoch(self.epoch + 1)
        self.epoch, self.position = self.epoch + 1, 0
        for batch in self.feed:
            assert batch.tobytes() == self.whole[self.position]
            self.position += 1
            if self.position == count:
                break

    @rule()
    def begin_an_epoch(self) -> None:
        self.epoch, self.position = self.epoch + 1, 0
        self.feed.set_epoch(self.epoch)

    @rule()
    def close_and_begin_again(self) -> None:
        self.feed.close()
        self.feed.close()
        with pytest.raises((FeedClosed, StopIteration) if self.position == NUM_BATCHES else FeedClosed):
            next(self.feed)  # an end that was seen stays an end
        self.begin({"num_workers": 2})

    @rule(number=st.integers(0, 2), what=st.sampled_from([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))
    def kill_a_worker(self, number: int, what: signal.Signals) -> None:
        for pid in self._workers()[number : number + 1]:
            send(pid, what)

    @rule(number=st.integers(0, 2))
    def stop_a_worker_and_let_it_go_on(self, number: int) -> None:
        for pid in self._workers()[number : number + 1]:
            send(pid, signal.SIGSTOP)
            send(pid, signal.SIGCONT)

    @rule(number=st.integers(0, 2))
    def stop_a_worker_and_kill_it(self, number: int) -> None:
        for pid in self._workers()[number : number + 1]:
            send(pid, signal.SIGSTOP)
            self.feed.state_dict()
            send(pid, signal.SIGKILL)

    def _workers(self) -> list[int]:
        """Return those that run: not reaped, so that their numbers are theirs."""
        found = []
        for pid in pids(self.feed):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                continue
            found.append(pid)
        return found

    def teardown(self) -> None:
        if self.feed is not None:
            self.feed.close()


def _run(num_examples: int, num_steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        FeedMachine,
        settings=settings(
            deadline=None,
            max_examples=num_examples,
            stateful_step_count=num_steps,
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
        ),
    )


def test_a_feed_delivers_the_plain_list_whatever_is_done_to_it_and_its_workers() -> None:
    _run(5, 12)


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [28, 29, 30, 31])  # other steps each
def test_a_feed_delivers_the_plain_list_whatever_is_done_to_it_and_its_workers_at_length(num_steps: int) -> None:
    _run(10, num_steps)
