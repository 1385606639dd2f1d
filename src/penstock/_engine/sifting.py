"""A run of filters, flat_maps and the maps among them, in one worker. Holds no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np

from penstock._engine.program import Sift
from penstock._ops.block import UNLIMITED, Block, ElementFailed, Ints
from penstock._ops.operator import Operator
from penstock._ops.streams import FilterOp
from penstock._ops.worker import WorkerContext
from penstock.errors import StateMismatch

__all__ = ["Without", "sift", "whole_inputs"]

Without = Sequence[tuple[int, ...]]
"""Elements to leave out: (step, number among those that its input gave); or (step, number, 1), that one and all behind it."""


def sift(
    steps: Sequence[Sift | Operator], block: Block, origins: Ints | None, worker: WorkerContext, without: Without = ()
) -> tuple[Block, Ints]:
    """Run filters, flat_maps and the maps among them; their failures count in input offsets. What comes out has `taken`.

    `without` leaves out elements that fail: before step n those with the given numbers, one after the other.

    Raises:
        ElementFailed: a step failed.
        StateMismatch: an input does not give an element that was left out before the state was saved.
    """
    origins = np.arange(len(block), dtype=np.int64) if origins is None else origins
    several = block.origins is not None
    taken: int | None = None
    block.taken = None
    for number, step in enumerate(steps):
        for left_out, element, *rest in without:
            if left_out == number:
                if element >= len(block):
                    raise StateMismatch(
                        f"the data or functions are other ones than when the state was saved: number {element} of the results of one "
                        f"element was left out, and it gives {len(block)} now",
                        where="load_state_dict()",
                        fix="resume with the data and functions that the state was saved with",
                    )
                keep = np.arange(element) if rest else np.delete(np.arange(len(block)), element)
                block, origins = block.select(keep), origins[keep]
        worker.block, worker.operator, worker.origins = block, step, origins
        try:
            if hasattr(step, "sift"):
                after, after_origins = cast(Sift, step).sift(block, origins)
                several = several or len(after) > len(block) or type(step) is not FilterOp
                if after.taken is not None:
                    taken = int(origins[after.taken])
                    after.taken = None  # a filter that keeps all returns the block itself
            else:
                after, after_origins = step.up(block, origins, origins, worker), origins
                after.rows()
                if len(after) < len(block):
                    after, taken = whole_inputs(block, after, origins, partial(_up, step, origins, worker))
                    after_origins = origins[: len(after)]
        except ElementFailed as failed:
            raise _located(failed, number, several, block, origins) from failed.error
        worker.weigh(block.num_bytes + after.num_bytes)
        block, origins = after, after_origins
    block.taken = taken
    return block, origins


def _up(step: Operator, origins: Ints, worker: WorkerContext, block: Block, begin: int) -> Block:
    """Run a map on elements from `begin` on."""
    here = origins[begin : begin + len(block)]
    return step.up(block, here, here, worker)


def whole_inputs(block: Block, made: Block, origins: Ints, run: Callable[[Block, int], Block]) -> tuple[Block, int]:
    """End what was made of a part of a block behind a whole input, the first one at least; return it with the first input not taken.

    `run(block, begin)` makes the same of some of the elements, from number `begin` on.
    """
    count = len(made)
    last = origins[count - 1]
    if origins[count] != last:
        return made, int(origins[count])
    first = int(np.searchsorted(origins, last))
    if first:
        return made.with_rows(made.rows()[:first], made.num_bytes), int(last)
    end = int(np.searchsorted(origins, last, side="right"))
    rest = block.select(slice(count, end))
    rest.room = UNLIMITED
    try:
        added = run(rest, count)
    except ElementFailed as failed:
        raise failed.moved(count + failed.offset) from failed.error
    out = block.select(slice(0, end)).with_rows([*made.rows(), *added.rows()], made.num_bytes + added.num_bytes)
    return out, int(last) + 1


def _located(failed: ElementFailed, step: int, several: bool, block: Block, origins: Ints) -> ElementFailed:
    """Say which input of a run of steps failed, and, where inputs give several elements, which of them."""
    at = min(failed.element, len(origins) - 1)
    out = failed.moved(int(origins[at]))
    out.step = step
    if several:
        out.inner = step, at - int(np.searchsorted(origins, origins[at]))
        out.key = block.key_of(at)
    return out
