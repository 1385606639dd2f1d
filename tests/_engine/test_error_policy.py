from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock as ps
from penstock._contracts.event import ElementRetried
from penstock._engine.chunk import Failure
from penstock._engine.error_policy import SKIPPED, in_pieces
from penstock._ops.block import ElementFailed

LIMIT_S = 30.0


def pieces(bad: set[int], known: tuple[int, ...] = (), give_up_at: int = 99) -> tuple[Any, list[Any]]:
    ran: list[Any] = []

    def run(begin: int, end: int) -> str:
        ran.append((begin, end))
        for row in range(begin, end):
            if row in bad:
                raise ElementFailed(row - begin, "f", ValueError(row))
        return f"{begin}..{end}"

    def handle(row: int, failed: ElementFailed | None) -> Any:
        if row == give_up_at:
            return Failure(0, ValueError("up"), "f", 0)
        return SKIPPED if failed is None else f"mended {row}"

    done, end, failure = in_pieces(0, 8, known, run, handle)
    return ([text for _, text in done], end, None if failure is None else failure.at), ran


def test_the_rows_before_a_failure_run_again_and_those_behind_it_once() -> None:
    assert pieces({3}) == ((["0..3", "mended 3", "4..8"], 8, None), [(0, 8), (0, 3), (4, 8)])
    assert pieces({0, 7}) == ((["mended 0", "1..7", "mended 7"], 8, None), [(0, 8), (1, 8), (1, 7)])


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
