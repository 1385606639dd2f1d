"""Async functions of the user, one coroutine per element. The event loop is the caller's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock._contracts.failing import cause_of
from penstock._contracts.policy import Policy
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.worker import WorkerContext, generator_of

__all__ = ["AwaitedOp", "CallResult"]


class CallResult(NamedTuple):
    """What became of one element: its value, or the error. `worker` is the place among those in flight."""

    value: Any
    error: BaseException | None
    worker: int = 0


@dataclass(frozen=True, slots=True)
class AwaitedOp:
    """`await fn(element)` on every element, up to `concurrency` of them at once; with `random`, `fn(element, rng=a generator of its own)`.

    `gather` runs a whole block on a loop of its own, where no other loop waits for it: for `ds[i]` and inside of leaves.
    """

    fn: Callable[..., Any]
    name: str
    seed: int
    stage: int
    random: bool
    concurrency: int
    gather: Callable[[AwaitedOp, Block], list[CallResult]]
    policy: Policy | None = None

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        block.rows()  # what cannot be read is a failure of the read, not of the call
        outcomes = self.gather(self, block)
        last = outcomes[-1] if outcomes else None
        if last is not None and last.error is not None:
            raise ElementFailed(len(outcomes) - 1, self.name, last.error, self.policy) from last.error
        return block.with_rows([outcome.value for outcome in outcomes])

    async def outcome(self, block: Block, offset: int, worker: int) -> CallResult:
        """Compute one element. Never raises: SystemExit and KeyboardInterrupt would end the event loop, StopIteration the task."""
        try:
            row = block.rows()[offset]
            if self.random:
                key = int(block.epochs[offset]), int(block.indices[offset]), int(block.lanes[offset])
                return CallResult(await self.fn(row, rng=generator_of(self.seed, self.stage, *key)), None, worker)
            return CallResult(await self.fn(row), None, worker)
        except BaseException as error:
            return CallResult(None, _raised(error), worker)


def _raised(error: BaseException) -> BaseException:
    """Return what the user raised: Python makes a RuntimeError of a StopIteration that leaves a coroutine."""
    cause = cause_of(error)
    return cause if isinstance(error, RuntimeError) and isinstance(cause, StopIteration) else error
