"""Runs with one known bottleneck, and healthy runs; the program `scenarios.py NAME PORT` prints what the report of one says."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

import penstock as ps
from penstock import Dataset
from penstock.errors import EnqueueCancelled
from penstock.observe.diagnose import judge

PORT = 0
DATA = bytes(1_000_000)
"""SHA-256 of so much takes about 0.6 ms, without the GIL."""


def serve(listener: socket.socket) -> None:
    """Answer each number that a connection sends with one byte, after so many microseconds; ends when the listener is closed."""

    def answer(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                time.sleep(int(line) / 1e6)
                connection.sendall(b"x")

    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


_LOCAL = threading.local()


def fetch(micros: int) -> None:
    """Ask the server, and wait for its answer."""
    connection = getattr(_LOCAL, "connection", None)
    if connection is None:
        connection = _LOCAL.connection = socket.create_connection(("127.0.0.1", PORT))
    connection.sendall(b"%d\n" % micros)
    connection.recv(1)


def fetching(micros: int) -> Callable[[int], int]:
    def fetch_element(number: int) -> int:
        fetch(micros)
        return number

    return fetch_element


async def fetch_async(number: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"20000\n")
    await reader.read(1)
    writer.close()
    return number


def digest(number: int, times: int = 4) -> int:
    for _ in range(times):
        hashlib.sha256(DATA).digest()
    return number


def light(number: int) -> int:
    hashlib.sha256(DATA[:20_000]).digest()
    return number


def count(number: int) -> int:
    total = 0
    for step in range(30_000):
        total += step * number
    return number


def with_some_slow(number: int) -> int:
    fetch(400_000 if number % 97 == 5 else 1_000)
    return number


def with_some_large(number: int) -> int:
    digest(number, 600 if number % 97 == 5 else 1)
    return number


def image(number: int) -> Any:
    fetch(2_000)
    return np.full(500_000, number, np.float32)


def often_wrong(number: int) -> int:
    fetch(1_000)
    if number % 3:
        raise ValueError(f"element {number} is damaged")
    return number


def flaky(seen: set[int], number: int) -> int:
    fetch(500)
    if number % 3 == 0 and number not in seen:
        seen.add(number)
        raise OSError("try again")
    return number


class Cold:
    """Loads something for a second in each thread that calls it."""

    def __init__(self) -> None:
        self.loaded = threading.local()

    def __call__(self, number: int) -> int:
        if not hasattr(self.loaded, "model"):
            until_s = time.monotonic() + 1.2
            while time.monotonic() < until_s:
                digest(0)
            self.loaded.model = True
        return light(number)


class Step:
    """A training step of so many milliseconds on the device; every `every` batches it validates for a while."""

    def __init__(self, ms: float, every: int = 0, pause_ms: float = 0.0) -> None:
        self.ms, self.every, self.pause_ms, self.number = ms, every, pause_ms, 0

    def __call__(self, batch: Any) -> None:
        self.number += 1
        time.sleep((self.pause_ms if self.every and self.number % self.every == 0 else self.ms) / 1e3)


def slow_numbers(count: int) -> Iterator[int]:
    for number in range(count):
        fetch(4_000)
        yield number


def numbers(count: int) -> Dataset:
    return ps.from_source(range(count))


def run(dataset: Dataset, step: Callable[[Any], None] | None = None, keep: int = 0, **options: Any) -> dict[str, Any]:
    """Feed a dataset to a loop that keeps so many batches, and return what the report says."""
    kept: list[Any] = []
    with dataset.feed(**{"executor": "threads", **options}) as feed:
        for batch in feed:
            kept = [*kept, batch][-keep:] if keep else []
            if step is not None:
                step(batch)
    verdict = judge(feed.stats())
    assert feed.report().splitlines()[0] == verdict.headline
    return {"kind": verdict.kind, "stage": verdict.stage, "text": feed.report()}


def crowded() -> dict[str, Any]:
    """Compute beside two programs for each CPU."""
    code = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    import subprocess

    with ExitStack() as others:
        for _ in range(2 * len(os.sched_getaffinity(0))):
            other = others.enter_context(subprocess.Popen([sys.executable, "-c", code]))
            others.callback(other.kill)
        return run(numbers(300).map(digest).batch(10), num_workers=2)


def queue_run(
    queue: Any, work: Callable[[int], Any], count: int, read: int = 1, share: float = 1.2, step: Callable[[Any], None] | None = None
) -> dict[str, Any]:
    """Fill a queue from two threads with `count` elements each, read `share * count`, and return its report."""

    def fill() -> None:
        for number in range(count):
            work(number)
            try:
                queue.enqueue(number)
            except EnqueueCancelled:
                return

    threads = [threading.Thread(target=fill, name=f"filler-{number}") for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(int(share * count) // read):
        batch = queue.dequeue_many(read)
        if step is not None:
            step(batch)
    text = queue.report()
    queue.close(cancel_pending_enqueues=True)
    for thread in threads:
        thread.join()
    return {"kind": "queue", "stage": None, "text": text}


SICK: dict[str, Callable[[], dict[str, Any]]] = {
    "cpu": lambda: run(numbers(600).map(digest).batch(10), num_workers=2),
    "workers": lambda: run(numbers(400).map(digest).batch(10), num_workers=1),
    "gil": lambda: run(numbers(600).map(count).batch(10), num_workers=2),
    "waits": lambda: run(numbers(400).map(fetching(5_000)).batch(10), num_workers=2),
    "slow, waiting": lambda: run(numbers(800).shuffle(seed=3).map(with_some_slow).batch(8), Step(2), num_workers=4),
    "slow, computing": lambda: run(numbers(500).shuffle(seed=3).map(with_some_large).batch(8), Step(4), num_workers=2),
    "concurrency": lambda: run(numbers(300).map(fetching(5_000), concurrency=1).map(light).batch(10), num_workers=2),
    "bursts": lambda: run(numbers(2400).map(fetching(1_000)).batch(10), Step(0.2, 60, 600), num_workers=2),
    "kept": lambda: run(numbers(400).map(image).batch(4), Step(6), keep=14, num_workers=2),
    "memory": lambda: run(numbers(400).map(image).batch(4), Step(6), num_workers=2, memory_bytes=18_000_000),
    "errors, retried": lambda: run(
        numbers(240).map(lambda number, seen=set(): flaky(seen, number)).batch(10), num_workers=2, on_error=ps.Retry(3, backoff_s=0.02)
    ),
    "errors, skipped": lambda: run(numbers(900).map(often_wrong).batch(10), num_workers=2, on_error=ps.Skip()),
    "start": lambda: run(numbers(600).map(Cold()).batch(10), Step(20), num_workers=2),
    "start, buffer": lambda: run(ps.from_generator(lambda: slow_numbers(500)).shuffle(400).batch(10), Step(5), num_workers=2),
    "inline": lambda: run(numbers(300).map(fetching(3_000)).batch(10), Step(20), num_workers=0),
    "stream": lambda: run(ps.from_generator(lambda: slow_numbers(400)).map(light).batch(10), num_workers=2),
    "crowded": crowded,
    "queue, margin": lambda: queue_run(ps.queues.RandomShuffleQueue(1000, 800), fetching(2_000), 1000, read=10, share=0.3),
    "queue, waits": lambda: queue_run(ps.queues.FIFOQueue(20), fetching(5_000), 200),
    "queue, cpu": lambda: queue_run(ps.queues.FIFOQueue(20), digest, 300),
    "queue, bursts": lambda: queue_run(ps.queues.FIFOQueue(4), fetching(4_000), 300, step=Step(0.1, 100, 400)),
    "queue, reader": lambda: queue_run(ps.queues.FIFOQueue(20), light, 200, step=Step(3)),
}  # fmt: skip

_EXPECTED = {
    "queue, margin": "min_after_dequeue=800 is too large",
    "queue, waits": "what fills FIFOQueue 'FIFOQueue' is the bottleneck, waiting for I/O",
    "queue, cpu": "what fills FIFOQueue 'FIFOQueue' is the bottleneck, CPU-bound",
    "queue, bursts": "has too little room for bursts",
    "queue, reader": "what reads FIFOQueue 'FIFOQueue' is the bottleneck",
}

HEALTHY: dict[str, Callable[[], dict[str, Any]]] = {
    "map": lambda: run(numbers(600).map(light).batch(10), Step(20)),
    "small elements": lambda: run(ps.from_arrays({"x": np.zeros((60_000, 8), np.float32)}).batch(1000), Step(20)),
    "filtered": lambda: run(numbers(1200).filter(lambda number: number % 2).map(light).batch(10), Step(20)),
    "async": lambda: run(numbers(300).map(fetch_async, concurrency=32).batch(5), Step(25)),
    "generator": lambda: run(ps.from_generator(lambda: iter(range(600))).map(light).batch(10), Step(20)),
    "validation now and then": lambda: run(numbers(600).map(light).batch(10), Step(15, 20, 100)),
}  # fmt: skip


def expected(name: str) -> str:
    """Return what the first line of a report begins with or contains."""
    return _EXPECTED[name]


if __name__ == "__main__":
    name, PORT = sys.argv[1], int(sys.argv[2])
    print(json.dumps({**SICK, **HEALTHY}[name]()))
