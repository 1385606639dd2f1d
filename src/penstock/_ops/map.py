"""User functions, one element at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock._contracts.policy import Policy
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.operator import RowSink
from penstock._ops.worker import WorkerContext

__all__ = ["MapOp"]


@dataclass(frozen=True, slots=True)
class MapOp:
    """`fn` on every element; with `random`, `fn(element, rng=generator of the element's key)`."""

    fn: Callable[..., Any]
    name: str
    seed: int
    stage: int
    random: bool
    policy: Policy | None = None

    def down(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions

    def up(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        out: list[Any] = []
        append = out.append
        rows = block.each()
        try:
            if self.random:
                fn, at = self.fn, worker.keyed(self.seed, self.stage).at
                keys = zip(rows, block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
                for row, epoch, index, lane in keys:
                    append(fn(row, rng=at(epoch, index, lane)))
            else:
                fn = self.fn
                for row in rows:
                    append(fn(row))
        except BaseException as error:
            raise ElementFailed(len(out), self.name, error, self.policy) from error
        return block.with_rows(out)

    def up_into(self, block: Block, worker: WorkerContext, sink: RowSink, row: int) -> None:
        """Write each result into its row before the next is computed: it is still in the cache."""
        if sink.small:
            nothing = block.epochs
            sink.put_rows(row, self.up(block, nothing, nothing, worker).rows())
            return
        rows, put, fn = block.each(), sink.put, self.fn
        done = 0
        try:
            if self.random:
                at = worker.keyed(self.seed, self.stage).at
                keys = zip(rows, block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
                for element, epoch, index, lane in keys:
                    put(row + done, fn(element, rng=at(epoch, index, lane)))
                    done += 1
            else:
                for element in rows:
                    put(row + done, fn(element))
                    done += 1
        except BaseException as error:
            raise ElementFailed(done, self.name, error, self.policy) from error
