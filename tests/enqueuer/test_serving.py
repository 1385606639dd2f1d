"""What a worker process sends, message by message; the parent's end is played here."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from enqueuer import feeding

from penstock._processes.child import Child
from penstock._processes.inbox import Inbox
from penstock.enqueuer.given import Given
from penstock.enqueuer.serving import FINISHED, NOTHING, Duty, serve_items

pytestmark = pytest.mark.usefixtures("fork_server")


def duty(generator: Any, worker: int = 0, num_workers: int = 1, *, share: bool = False, credit: int = 100, seed: int | None = None) -> Duty:
    return Duty(given=Given(generator), worker=worker, num_workers=num_workers, seed=seed, share=share, credit=credit, where="worker 0")


def messages(what: Duty) -> list[Any]:
    child = Child.start(serve_items, (what,), name="worker 0")
    inbox = Inbox(10)
    found: list[Any] = []
    while not found or found[-1] != "end":
        message = child.receive()
        if isinstance(message, int):
            found.append({NOTHING: "nothing", FINISHED: "end"}[message])
        else:
            found.append(inbox.open(message, child.take_fd))
    child.stop(10.0)
    assert child.exit_code == 0
    return found


def test_a_share_is_every_nth_item_and_none_keeps_its_place_there_alone() -> None:
    assert messages(duty(feeding.some_none)) == [0, 2, 3, 5, 6, 8, 9, 11, "end"]
    assert messages(duty(feeding.some_none, 1, 3, share=True)) == ["nothing"] * 4 + ["end"]
    assert messages(duty(feeding.twenty, 2, 9, share=True)) == [2, 11, "end"]
    assert messages(duty(feeding.own_share, 2, 9, share=True)) == [(2, 2), (11, 2), (20, 2), "end"]


def test_a_worker_sends_no_more_than_it_was_granted() -> None:
    child = Child.start(serve_items, (duty(feeding.endless, credit=3),), name="worker 0")
    inbox = Inbox(10)

    def take(num: int) -> list[Any]:
        return [inbox.open(child.receive(), child.take_fd) for _ in range(num)]

    assert take(3) == [0, 1, 2]
    child.send((2, []))
    assert take(2) == [3, 4]
    # It waits for the next grant now: asked to end, it ends by itself, which it would not while it makes and sends.
    child.stop(60.0)
    assert child.exit_code == 0


def test_the_seed_of_a_worker_is_the_one_of_numpy_and_python() -> None:
    state, other = np.random.RandomState(9), random.Random(9)
    expected = [(int(state.randint(10**9)), other.randrange(10**9)) for _ in range(3)]
    assert messages(duty(feeding.noise, seed=9)) == [*expected, "end"]
    assert messages(duty(feeding.noise, seed=2**32 + 9))[0][0] == expected[0][0]
