"""A run of filters, flat_maps and the maps among them, in one worker. Holds no lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from penstock._engine.program import Sift
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.operator import Operator
from penstock._ops.streams import FilterOp
from penstock._ops.worker import WorkerContext

__all__ = ["Without", "sift"]

Without = Sequence[tuple[int, ...]]
"""Elements to leave out: (step, number among those that its input gave)."""


def sift(
    steps: Sequence[Sift | Operator], block: Block, origins: Ints | None, worker: WorkerContext, without: Without = ()
) -> tuple[Block, Ints]:
    """Run filters, flat_maps and the maps among them; their failures count in input offsets.

    `without` leaves out elements that fail: before step n those with the given numbers, one after the other.
    """
    origins = np.arange(len(block), dtype=np.int64) if origins is None else origins
    several = block.origins is not None
    for number, step in enumerate(steps):
        for left_out, element in without:
            if left_out == number:
                keep = np.delete(np.arange(len(block)), element)
                block, origins = block.select(keep), origins[keep]
        worker.block, worker.operator, worker.origins = block, step, origins
        worker.step = number if several else None
        try:
            if hasattr(step, "sift"):
                after, after_origins = cast(Sift, step).sift(block, origins)
                several = several or len(after) > len(block) or type(step) is not FilterOp
            else:
                after, after_origins = step.up(block, origins, origins, worker), origins
                after.rows()
        except ElementFailed as failed:
            raise _located(failed, number if several else None, block, origins) from failed.error
        block, origins = after, after_origins
    return block, origins


def _located(failed: ElementFailed, step: int | None, block: Block, origins: Ints) -> ElementFailed:
    """Say which input of a run of steps failed, and which of the elements that it gave."""
    at = min(failed.element, len(origins) - 1)
    out = failed.moved(int(origins[at]))
    if step is not None:
        out.inner = step, at - int(np.searchsorted(origins, origins[at]))
        out.key = block.key_of(at)
    return out
