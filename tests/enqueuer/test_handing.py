"""The queue between workers and `get()`: its end, its error, its stop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.enqueuer.handing import END, Handing
from penstock.errors import EnqueueCancelled, FeedClosed


def test_items_of_any_kind_come_in_order_and_then_the_end_each_time() -> None:
    handing = Handing(10, "it")
    items: list[Any] = [1, None, "x", (1, 2), {"a": object()}, [], END]
    for item in items[:-1]:
        handing.put(0, (0, 0, 0), item)
    handing.end()
    assert [handing.take() for _ in items] == items
    assert handing.take() is END
    assert handing.over


def test_an_error_comes_behind_the_items_once_and_the_first_one_counts() -> None:
    handing = Handing(10, "it")
    handing.put(0, (0, 0, 0), 1)
    handing.end(ValueError("first"))
    handing.end(ValueError("second"))
    handing.end()
    assert handing.take() == 1
    with pytest.raises(ValueError, match="first"):
        handing.take()
    for _ in range(2):
        with pytest.raises(FeedClosed) as caught:
            handing.take()
        assert caught.value.what == "its workers have failed; the error was raised before"


def test_a_stop_drops_what_waits_and_wakes_who_waits() -> None:
    handing = Handing(1, "it")
    handing.put(0, (0, 0, 0), 1)
    caught: list[BaseException] = []
    waits = threading.Event()

    def put() -> None:
        waits.set()
        try:
            handing.put(0, (0, 0, 0), 2)
        except EnqueueCancelled as error:
            caught.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    waits.wait()
    handing.stop()
    thread.join()
    assert len(caught) == 1
    assert handing.take() is END
    assert handing.queue.size() == 0
    handing.stop()


def test_a_stop_ends_who_waits_for_an_item() -> None:
    handing = Handing(1, "it")
    got: list[Any] = []
    waits = threading.Event()

    def take() -> None:
        waits.set()
        got.append(handing.take())

    thread = threading.Thread(target=take)
    thread.start()
    waits.wait()
    handing.stop()
    thread.join()
    assert got == [END]


def test_after_a_stop_an_error_is_no_news() -> None:
    handing = Handing(1, "it")
    handing.end(ValueError("too late"))
    handing.stop()
    assert handing.take() is END
