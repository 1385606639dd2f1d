from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock as ps
from penstock._contracts.event import ElementRetried

LIMIT_S = 30.0


@pytest.mark.parametrize(
    "options", [{"executor": "threads", "num_workers": 2}, {"executor": "threads", "num_workers": 2, "ordered": False}]
)
def test_close_ends_the_wait_before_a_retry_at_once(options: dict[str, Any]) -> None:
    waiting = threading.Event()

    def listen(event: Any) -> None:
        if isinstance(event, ElementRetried) and event.wait_s == 25.0:
            waiting.set()

    def fail(value: int) -> int:
        raise OSError("down")

    feed = (
        ps.from_source([1, 2, 3]).map(fail, on_error=ps.Retry(5, backoff_s=25.0)).feed(listeners=[listen], grace_period_s=20.0, **options)
    )
    consumer = threading.Thread(target=lambda: list(feed), daemon=True)
    failed: list[Any] = []
    threading.excepthook, before = lambda args: failed.append(args.exc_type), threading.excepthook
    try:
        consumer.start()
        assert waiting.wait(LIMIT_S)
        feed.close()  # raises StillRunning if a worker waited on
        consumer.join(LIMIT_S)
    finally:
        threading.excepthook = before
    assert failed == [ps.errors.FeedClosed]


def test_a_retry_is_announced_with_its_number_and_wait() -> None:
    events: list[Any] = []
    left = [3]

    def flaky(value: int) -> int:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(f"left {left[0]}")
        return value

    with ps.from_source([7]).map(flaky, on_error=ps.Retry(3, backoff_s=0.001)).feed(executor="inline", listeners=[events.append]) as feed:
        assert list(feed) == [7]
    retries = [event for event in events if isinstance(event, ElementRetried)]
    assert [(event.stage, event.key, event.retry, event.wait_s) for event in retries] == [
        ("test_a_retry_is_announced_with_its_number_and_wait.flaky", (0, 0, 0), number, 0.001 * 2 ** (number - 1)) for number in (1, 2, 3)
    ]
    assert [str(event.error) for event in retries] == ["left 2", "left 1", "left 0"]


def test_replace_behind_a_retry_puts_no_batch_in_the_place_of_another() -> None:
    def fail(batch: Any) -> Any:
        raise OSError("down")

    policy = ps.Retry(1, backoff_s=0.001, then=ps.Replace())
    with ps.from_source(range(4)).batch(2).map(fail).feed(executor="inline", on_error=policy) as feed, pytest.raises(OSError, match="down"):
        next(feed)
