"""What runs of one dataset have found out: the sizes of their tasks, the number of active workers, and free memory for the next run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from penstock._engine.scheduler import Scheduler
from penstock._engine.slots import KEEP_BYTES

__all__ = ["TuningCache"]


class TuningCache:
    """So that each epoch but the first begins with tasks that are worth their booking, and in memory that is there.

    Elements and their order do not depend on it. From any thread: what is kept is never changed, only replaced; a buffer is taken by one.
    """

    __slots__ = ("_found", "_spare", "executor")

    def __init__(self) -> None:
        self.executor: str | None = None  # the one that executor="auto" found to be the fastest
        self._found: dict[Any, Any] = {}
        self._spare: deque[Any] = deque()

    def __reduce__(self) -> tuple[type[TuningCache], tuple[()]]:
        """Leave all behind in a copy: memory has one owner, and elsewhere other sizes are best."""
        return TuningCache, ()

    def begin(self, scheduler: Scheduler) -> None:
        """Let a new run begin with what the last one of the same shape ended with."""
        found = self._found.get(_shape(scheduler))
        if found is None:
            return
        sizes, active = found
        for segment, (blocks, chunks, expected_spec) in zip(scheduler.segments, sizes, strict=True):
            segment.expected_spec = expected_spec
            segment.chunk_size.begin(chunks)
            for block, known in zip(segment.blocks, blocks, strict=True):
                block.begin(known)
        scheduler.active.begin(active)

    def keep(self, scheduler: Scheduler) -> None:
        """Keep what a run has found out; its workers have ended."""
        if not scheduler.failures:
            sizes = [([block.found for block in one.blocks], one.chunk_size.items, one.expected_spec) for one in scheduler.segments]
            self._found[_shape(scheduler)] = sizes, scheduler.active.found

    @property
    def spare_bytes(self) -> int:
        """The bytes of the free buffers of earlier runs."""
        return sum(map(len, tuple(self._spare)))

    def take_spare(self) -> list[Any]:
        """Return the free buffers of earlier runs; they belong to the caller now."""
        spare = []
        while True:
            try:
                spare.append(self._spare.pop())
            except IndexError:
                return spare

    def keep_spare(self, buffers: Iterable[Any]) -> None:
        """Keep free buffers for the next run, no more bytes than a pool keeps."""
        room = KEEP_BYTES - self.spare_bytes
        for buffer in buffers:
            if len(buffer) <= room:
                room -= len(buffer)
                self._spare.append(buffer)


def _shape(scheduler: Scheduler) -> Any:
    return (
        scheduler.num_workers,
        scheduler.memory_bytes,
        tuple((segment.plan.name, len(segment.plan.stages)) for segment in scheduler.segments),
    )
