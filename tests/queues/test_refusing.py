from __future__ import annotations

import pytest

from penstock.errors import EnqueueCancelled, QueueClosed, QueueTimeout
from penstock.queues.exchange import ENDED, LEFT, Attempt, Reading, Writing
from penstock.queues.report import refusal


def ended(attempt: Attempt, state: int, done: int = 0) -> Attempt:
    attempt.state = state
    if isinstance(attempt, Writing):
        attempt.num_done = done
    elif isinstance(attempt, Reading):
        attempt.num_left = done
    return attempt


@pytest.mark.parametrize(
    ("attempt", "kind", "what"),
    [
        (ended(Reading(3, True), ENDED, 0), QueueClosed, "the queue is closed, and no element is left of the 3 asked for"),
        (ended(Reading(3, True), ENDED, 1), QueueClosed, "the queue is closed, and only 1 element is left of the 3 asked for"),
        (ended(Reading(3, True), ENDED, 2), QueueClosed, "the queue is closed, and only 2 elements are left of the 3 asked for"),
        (ended(Reading(3, True), LEFT), QueueTimeout, "3 elements did not come within 0.5 s; nothing was taken"),
        (ended(Writing([1]), ENDED), EnqueueCancelled, "the queue is closed and takes nothing more"),
        (ended(Writing([1, 2]), ENDED, 1), EnqueueCancelled, "the queue is closed and takes nothing more; 1 of 2 elements are in"),
        (ended(Writing([1]), LEFT), QueueTimeout, "there was no room within 0.5 s"),
        (ended(Writing([1, 2]), LEFT, 1), QueueTimeout, "there was no room within 0.5 s; 1 of 2 elements are in"),
    ],
)
def test_each_refusal_says_what_happened_and_how_many_are_in(attempt: Attempt, kind: type[Exception], what: str) -> None:
    error = refusal(attempt, 0.5, "FIFOQueue 'images'", "2 of 4 elements in it")
    assert type(error) is kind
    assert (error.what, error.where) == (what, "FIFOQueue 'images', 2 of 4 elements in it")
    assert error.num_done == (attempt.num_done if isinstance(attempt, Writing) else 0)
