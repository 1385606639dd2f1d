from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from penstock._contracts.event import ElementLost, ElementRetried
from penstock._engine.chunk import LostElement
from penstock._engine.error_policy import LossAnnouncer, tell_retry
from penstock._ops.block import ElementFailed


def loss(number: int) -> LostElement:
    key = 0, number, 0
    return LostElement(number, number, 0, "on_error", None, key, "", (key,), None, "m", 1, ValueError(number), 0)


def test_what_was_lost_is_told_once_and_in_order() -> None:
    told: list[Any] = []
    lost = deque(map(loss, range(3)))
    losses = LossAnnouncer(lost, told.append, told.append)
    losses.tell()
    losses.tell()
    assert [(type(event), event.keys) for event in told] == [(ElementLost, ((0, number, 0),)) for number in range(3)]
    assert not lost
    assert losses.broken is None


def test_what_cannot_be_written_down_ends_the_run() -> None:
    errors: list[BaseException] = []

    def full(event: Any) -> None:
        raise OSError("full")

    losses = LossAnnouncer(deque([loss(0)]), full, errors.append)
    losses.tell()
    assert errors == [losses.broken]
    assert str(losses.broken) == "full"


def test_an_error_of_a_listener_that_is_no_oserror_is_its_own() -> None:
    def wrong(event: Any) -> None:
        raise KeyError("wrong")

    losses = LossAnnouncer(deque([loss(0)]), wrong, wrong)
    with pytest.raises(KeyError):
        losses.tell()
    assert losses.broken is None


def test_a_retry_is_told_with_its_element() -> None:
    told: list[Any] = []
    error = ValueError()
    tell_retry(told.append, ElementFailed(0, "m", error), (0, 7, 0), 2, 1, 0.5)
    (event,) = told
    assert isinstance(event, ElementRetried)
    assert event[1:] == ("m", 2, (0, 7, 0), 1, 0.5, error)
