"""FIFOQueue beside the standard queues: items through a bound of 16, there and back between two threads, 1,000 waiters at the end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import rounds
from data import Size

_BOUND = 16
_NUM_WAITERS = 1000

Ends = tuple[Callable[[Any], None], Callable[[], Any]]
"""How to put in and how to take out."""


def _fifo() -> Ends:
    import penstock as ps

    made = ps.queues.FIFOQueue(_BOUND)
    return made.enqueue, made.dequeue


def _stdlib() -> Ends:
    made: queue.Queue[Any] = queue.Queue(_BOUND)
    return made.put, made.get


def _simple() -> Ends:
    """Make the quickest that the standard library has: two SimpleQueues, the second hands the credits back."""
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    credits: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(_BOUND):
        credits.put(None)

    def put(item: Any) -> None:
        credits.get()
        items.put(item)

    def get() -> Any:
        item = items.get()
        credits.put(None)
        return item

    return put, get


def _through(make: Callable[[], Ends], count: int) -> float:
    """Return seconds for `count` items from one thread to another."""
    put, get = make()

    def produce() -> None:
        for item in range(count):
            put(item)

    thread = threading.Thread(target=produce)
    start = time.perf_counter()
    thread.start()
    for item in range(count):
        if get() != item:
            raise RuntimeError("the items came in another order")
    thread.join()
    return time.perf_counter() - start


def _ping_pong(make: Callable[[], Ends], count: int) -> float:
    """Return seconds for `count` times there and back."""
    (send, receive), (send_back, receive_back) = make(), make()

    def answer() -> None:
        for _ in range(count):
            send_back(receive())

    thread = threading.Thread(target=answer)
    thread.start()
    start = time.perf_counter()
    for item in range(count):
        send(item)
        receive_back()
    seconds = time.perf_counter() - start
    thread.join()
    return seconds


def _close_s() -> float:
    """Return seconds from `close()` until the last of all waiters has left its call."""
    import penstock as ps

    closing, left = ps.queues.FIFOQueue(1), []

    def wait() -> None:
        try:
            closing.dequeue()
        except ps.errors.QueueClosed:
            left.append(time.perf_counter())

    threads = [threading.Thread(target=wait) for _ in range(_NUM_WAITERS)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)  # each sleeps for good after 20 ms
    start = time.perf_counter()
    closing.close()
    for thread in threads:
        thread.join()
    if len(left) != _NUM_WAITERS:
        raise RuntimeError(f"{len(left)} of {_NUM_WAITERS} were told of the end")
    return max(left) - start


def _measure(make: Callable[[], Ends], closes: bool = False) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        count = max(1000, run.size.num_integers // 20)
        _through(make, count // 10)
        everybody, own, start = machine.busy_s(), time.process_time(), time.perf_counter()
        seconds = _through(make, count)
        trips_s = _ping_pong(make, count // 10)
        other_s = machine.busy_s() - everybody - (time.process_time() - own)
        other_cores = max(0.0, other_s / (time.perf_counter() - start))
        close = {"close_ms": _close_s() * 1e3} if closes else {}
        return {"rate": count / seconds, "ping_pong_us": trips_s / (count // 10) * 1e6, "other_cores": other_cores, **close}

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="queues",
    title="Queues between two threads, bound 16: items, there and back, and 1,000 waiters at the end",
    unit="items/s",
    prepare=_nothing,
    reference="stdlib_queue",
    also=("ping_pong_us", "close_ms"),
    targets=(
        rounds.Target(contestant="fifo_queue", metric="ratio", sense=">=", bound=1.3),
        rounds.Target(contestant="fifo_queue", metric="ping_pong_us", sense="<=", bound=25.0),
        rounds.Target(contestant="fifo_queue", metric="close_ms", sense="<=", bound=100.0),
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"fifo_queue": _measure(_fifo, closes=True), "stdlib_queue": _measure(_stdlib), "simple_queues": _measure(_simple)})
