"""User functions, one element at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy import ndarray

from penstock._contracts.element import WEIGHTLESS, bytes_of
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

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        out: list[Any] = []
        append = out.append
        rows = block.each()
        left = room = block.room - block.num_bytes
        light: Any = None  # the type of elements that need not be measured
        all_light = WEIGHTLESS.issuperset
        try:
            if self.random:
                fn, at = self.fn, worker.keyed(self.seed, self.stage).at
                keys = zip(rows, block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
                for row, epoch, index, lane in keys:
                    append(value := fn(row, rng=at(epoch, index, lane)))
                    kind = type(value)
                    if kind is not light:
                        if kind in WEIGHTLESS:
                            light = kind
                            continue
                        if kind is dict and all_light(map(type, value.values())):  # 0.15 us, and measuring it 0.7
                            continue
                        left -= value.nbytes if kind is ndarray else bytes_of(value)
                        if left < 0:
                            break
            else:
                fn = self.fn
                for row in rows:
                    append(value := fn(row))
                    kind = type(value)
                    if kind is not light:
                        if kind in WEIGHTLESS:
                            light = kind
                            continue
                        if kind is dict and all_light(map(type, value.values())):
                            continue
                        left -= value.nbytes if kind is ndarray else bytes_of(value)
                        if left < 0:
                            break
        except BaseException as error:
            raise ElementFailed(len(out), self.name, error, self.policy) from error
        return block.with_rows(out, room - left)

    def apply_into(self, block: Block, worker: WorkerContext, sink: RowSink, row: int) -> tuple[int, int]:
        """Write each result into its row before the next is computed: it is still in the cache."""
        if sink.small:
            values = self._small(block, worker)
            return len(values), sink.put_rows(row, values)
        rows, put, fn = block.each(), sink.put, self.fn
        done = kept = 0
        room = block.room - block.num_bytes
        try:
            if self.random:
                at = worker.keyed(self.seed, self.stage).at
                keys = zip(rows, block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
                for element, epoch, index, lane in keys:
                    kept += put(row + done, fn(element, rng=at(epoch, index, lane)))
                    done += 1
                    if kept > room:
                        break
            else:
                for element in rows:
                    kept += put(row + done, fn(element))
                    done += 1
                    if kept > room:
                        break
        except BaseException as error:
            raise ElementFailed(done, self.name, error, self.policy) from error
        return done, kept

    def _small(self, block: Block, worker: WorkerContext) -> list[Any]:
        """Return the results that go into rows of 64 bytes at most: measuring each would cost as much as handing it on."""
        if self.random:
            nothing = block.epochs
            return self.apply(block, nothing, nothing, worker).rows()
        out: list[Any] = []
        append, fn, rows = out.append, self.fn, block.each()
        try:
            for row in rows:
                append(fn(row))
        except BaseException as error:
            raise ElementFailed(len(out), self.name, error, self.policy) from error
        return out
