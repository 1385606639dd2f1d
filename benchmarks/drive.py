"""What a contestant does with its batches while the clock runs; the same for all of them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import machine


def epochs(
    epoch: Callable[[], Iterable[Any]],
    elements_per_batch: int,
    min_seconds: float,
    check: Callable[[Iterable[Any]], object] | None = None,
) -> dict[str, Any]:
    """Consume one epoch to warm up, then at least one whole epoch and at least `min_seconds` on the clock.

    Every timed epoch includes its own start and end, so nothing that was prefetched before the clock started is counted.

    Args:
        epoch: returns the batches of an epoch.
        elements_per_batch: how many elements a batch has.
        min_seconds: how long the clock runs at least.
        check: consumes the first epoch, and raises where its content is wrong.
    """
    consumer = _Consumer()
    (check or consumer.take)(epoch())
    consumer.num_batches = 0
    clock, num_epochs = _Clock(), 0
    while not num_epochs or clock.elapsed_s() < min_seconds:
        consumer.take(epoch())
        num_epochs += 1
    return {**clock.stop(consumer.num_batches * elements_per_batch), "num_epochs": num_epochs, "batch": describe(consumer.batch)}


def steady(batches: Iterable[Any], num_batches: int, elements_per_batch: int, min_seconds: float) -> dict[str, Any]:
    """Consume `num_batches` of an endless stream to warm up, then the same number again and for at least `min_seconds`, on the clock.

    What was prefetched when the clock starts is balanced by what is prefetched when it stops.
    """
    stream, consumer = iter(batches), _Consumer()
    consumer.take(itertools.islice(stream, num_batches))
    consumer.num_batches = 0
    clock = _Clock()
    while not consumer.num_batches or clock.elapsed_s() < min_seconds:
        consumer.take(itertools.islice(stream, num_batches))
    return {**clock.stop(consumer.num_batches * elements_per_batch), "batch": describe(consumer.batch)}


def device(batches: Iterable[Any], num_warm: int, num_steps: int, step_s: float, elements_per_batch: int) -> dict[str, Any]:
    """Feed a stand-in device that takes `step_s` per batch and no CPU; "busy" is the share of the time in which it worked."""
    stream, consumer = iter(batches), _Consumer(step_s)
    consumer.take(itertools.islice(stream, num_warm))
    consumer.num_batches, consumer.busy_s = 0, 0.0
    clock = _Clock()
    consumer.take(itertools.islice(stream, num_steps))
    if consumer.num_batches != num_steps:
        raise RuntimeError(f"the stream ended after {consumer.num_batches} of {num_steps} steps")
    timing = clock.stop(num_steps * elements_per_batch)
    return {**timing, "busy": consumer.busy_s / timing["seconds"], "batch": describe(consumer.batch)}


class _Consumer:
    """A training loop without the training: holds one batch while it asks for the next, as `for batch in ...` does.

    Attributes:
        batch: the last batch, and the only one that is kept.
        num_batches: how many came.
        busy_s: how long the device took for them.
    """

    def __init__(self, step_s: float = 0.0) -> None:
        self._step_s = step_s
        self.batch: Any = None
        self.num_batches = 0
        self.busy_s = 0.0

    def take(self, batches: Iterable[Any]) -> None:
        for self.batch in batches:
            self.num_batches += 1
            if self._step_s:
                start = time.perf_counter()
                time.sleep(self._step_s)
                self.busy_s += time.perf_counter() - start


class _Clock:
    """Wall time, the CPU time of this session and the CPU time of everybody else."""

    def __init__(self) -> None:
        self._session = os.getsid(0)
        self._own_s, self._all_s = machine.session_cpu_s(self._session), machine.busy_s()
        self._start = time.perf_counter()

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._start

    def stop(self, count: int) -> dict[str, Any]:
        seconds = time.perf_counter() - self._start
        own_s = machine.session_cpu_s(self._session) - self._own_s
        other_s = machine.busy_s() - self._all_s - own_s
        return {"rate": count / seconds, "seconds": seconds, "cpu_s": own_s, "other_cores": max(0.0, other_s / seconds), "count": count}


def forever(epoch: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Chain epochs without an end."""
    while True:
        yield from epoch()


def describe(batch: Any) -> str:
    """Name shapes and dtypes of the numeric leaves of a batch, largest first, so that contestants can be compared."""
    leaves: list[tuple[int, str]] = []
    pending = [batch]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, (tuple, list)):
            pending.extend(value)
        elif hasattr(value, "shape") and hasattr(value, "dtype") and str(value.dtype) != "object":
            shape = tuple(int(length) for length in value.shape)
            kind = str(value.dtype).removeprefix("torch.")
            leaves.append((-len(shape), f"{kind}{list(shape)}"))
    return " ".join(text for _, text in sorted(leaves))
