"""Runs one training loop and writes down when its steps ran, what it was given and how long it waited."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock._contracts.event import BatchDelivered, BlockDone, Event
from penstock.observe import Snapshot, Stats
from penstock.observe.progress import Progress
from timeline import Lane

__all__ = ["InLine", "ThroughPenstock", "Trial", "digest_of", "run_trial"]

Batch = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One finished loop. Times are seconds since its start; `steps` holds (start, end) of every step."""

    total_s: float
    steps: tuple[tuple[float, float], ...]
    ready: tuple[tuple[float, int], ...]
    snapshot: Snapshot

    @property
    def busy_s(self) -> float:
        """Return the time spent in steps."""
        return sum(end - start for start, end in self.steps)

    @property
    def first_batch_s(self) -> float:
        """Return the time to the first batch."""
        return self.steps[0][0]

    @property
    def busy_share_after_first(self) -> float:
        """Return the part of the time from the first batch to the end in which a step ran."""
        return self.busy_s / (self.total_s - self.first_batch_s)

    def lane(self, title: str) -> Lane:
        """Return this loop as a lane of the picture."""
        return Lane(title=title, steps=self.steps, ready=self.ready, total_s=self.total_s)


class InLine:
    """The loop that people write first: read, decode and augment the elements of a batch one by one, then stack them.

    Args:
        dataset: anything whose `[i]` reads and computes element i in this thread.
        batch_size: elements per batch; a last batch that is not full is dropped.
    """

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self._dataset, self._batch_size = dataset, batch_size
        self._stats = Stats()

    def __enter__(self) -> Iterator[Batch]:
        return self._batches()

    def __exit__(self, *_: object) -> None:
        """Nothing runs behind a plain loop, so there is nothing to stop."""

    def _batches(self) -> Iterator[Batch]:
        dataset, size = self._dataset, self._batch_size
        for start in range(0, len(dataset) - size + 1, size):
            start_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
            elements = [dataset[index] for index in range(start, start + size)]
            batch = {
                "data": np.stack([element["data"] for element in elements]),
                "label": np.array([element["label"] for element in elements], np.int64),
            }
            end_ns = time.perf_counter_ns()
            self._stats(BlockDone("in line", 0, start_ns, end_ns, time.thread_time_ns() - cpu_ns, size))
            self._stats(BatchDelivered(end_ns, end_ns - start_ns, 0, 1))
            yield batch

    def ready(self) -> list[tuple[int, int]]:
        """Return nothing: a plain loop never has a batch ready."""
        return []

    def snapshot(self) -> Snapshot:
        """Return the figures of the loop."""
        return self._stats.snapshot()


class ThroughPenstock:
    """The same batches from a feed.

    Args:
        dataset: a batched dataset.
        num_workers: threads.
        out: a folder for a timeline and for curves that TensorBoard shows, or None.
    """

    def __init__(self, dataset: Any, num_workers: int, out: Path | None = None) -> None:
        self._dataset, self._num_workers, self._out = dataset, num_workers, out
        self._ready: list[tuple[int, int]] = []
        self._stats = Stats()
        self._feed: Any = None

    def __enter__(self) -> Iterator[Batch]:
        self._feed = self._dataset.feed(executor="threads", num_workers=self._num_workers, listeners=[self._stats, self._note])
        if self._out is not None:
            self._feed.trace(self._out / "timeline.json")
            self._feed.observe(tensorboard=self._out / "tensorboard")
        batches: Iterator[Batch] = iter(self._feed.__enter__())
        return batches

    def __exit__(self, *error: Any) -> None:
        self._feed.__exit__(*error)

    def _note(self, event: Event) -> None:
        if isinstance(event, BatchDelivered):
            self._ready.append((event.time_ns, event.num_ready))

    def ready(self) -> list[tuple[int, int]]:
        """Return (perf_counter_ns, batches ready) at every hand-over."""
        return self._ready

    def snapshot(self) -> Snapshot:
        """Return the figures of the feed."""
        return self._stats.snapshot()


def run_trial(source: InLine | ThroughPenstock, step: Callable[[Batch], object], *, what: str, num_steps: int) -> Trial:
    """Run `step` on every batch of `source` and time it, from before the source is opened to the end of the last step."""
    steps: list[tuple[float, float]] = []
    opened: AbstractContextManager[Iterator[Batch]] = source
    start_ns = time.perf_counter_ns()
    with Progress(what, num_steps, unit="steps") as progress, opened as batches:
        for batch in batches:
            step_ns = time.perf_counter_ns()
            step(batch)
            steps.append(((step_ns - start_ns) / 1e9, (time.perf_counter_ns() - start_ns) / 1e9))
            progress.advance()
    return Trial(
        total_s=steps[-1][1],
        steps=tuple(steps),
        ready=_since(source.ready(), start_ns),
        snapshot=source.snapshot(),
    )


def digest_of(batch: Batch) -> str:
    """Return the SHA-256 of every byte of a batch's images and labels."""
    state = hashlib.sha256(np.ascontiguousarray(batch["data"]).data)
    state.update(np.ascontiguousarray(batch["label"], np.int64).data)
    return state.hexdigest()


def _since(ready: Sequence[tuple[int, int]], start_ns: int) -> tuple[tuple[float, int], ...]:
    return tuple(((time_ns - start_ns) / 1e9, count) for time_ns, count in ready)
