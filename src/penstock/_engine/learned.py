"""What the runs of one dataset have found out about the sizes of tasks and units, for its next run."""

from __future__ import annotations

from typing import Any

from penstock._engine.flow import Flow

__all__ = ["Learned"]


class Learned:
    """Sizes by the shape of a program, so that each epoch but the first begins with tasks that are worth their booking.

    Elements and their order do not depend on it. From any thread: what is kept is never changed, only replaced.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Any, Any] = {}

    def begin(self, flow: Flow) -> None:
        """Let a new run begin with what the last one of the same shape ended with."""
        found = self._found.get(_shape(flow))
        if found is None:
            return
        sizes, active = found
        for segment, (blocks, units) in zip(flow.segments, sizes, strict=True):
            segment.units.begin(units)
            for block, known in zip(segment.blocks, blocks, strict=True):
                block.begin(known)
        flow.active.begin(active)

    def keep(self, flow: Flow) -> None:
        """Keep what a run has found out; its workers have ended."""
        if not flow.failures:
            sizes = [([block.found for block in segment.blocks], segment.units.items) for segment in flow.segments]
            self._found[_shape(flow)] = sizes, flow.active.found


def _shape(flow: Flow) -> Any:
    return flow.num_workers, flow.memory_bytes, tuple((segment.plan.name, len(segment.plan.stages)) for segment in flow.segments)
