from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from penstock._ops.block import Block, ElementFailed
from penstock._ops.map import AwaitedOp, CallResult
from penstock._ops.worker import KeyedGenerator, WorkerContext

NOWHERE = np.zeros(0, np.int64)


def block_of(rows: list[Any]) -> Block:
    count = len(rows)
    return Block(np.full(count, 3, np.int64), np.arange(count), np.full(count, 5, np.uint64), rows=rows)


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def one_by_one(op: AwaitedOp, block: Block) -> list[CallResult]:
    """Gather as a loop does: up to the first failure."""
    out: list[CallResult] = []
    for offset in range(len(block)):
        out.append(finished(op.outcome(block, offset, offset)))
        if out[-1].error is not None:
            break
    return out


def awaited(fn: Any, random: bool = False) -> AwaitedOp:
    return AwaitedOp(fn, "fn", 11, 2, random, 4, one_by_one)


def test_each_element_becomes_what_its_coroutine_returns_under_the_same_key() -> None:
    async def double(x: int) -> int:
        return 2 * x

    block = block_of([1, 2, 3])
    out = awaited(double).apply(block, NOWHERE, NOWHERE, WorkerContext(0))
    assert out.rows() == [2, 4, 6]
    assert out.lanes is block.lanes
    assert awaited(double).apply(block_of([]), NOWHERE, NOWHERE, WorkerContext(0)).rows() == []


def test_each_element_has_a_generator_of_its_own_with_the_numbers_of_its_key() -> None:
    async def keep(x: int, rng: np.random.Generator) -> Any:
        return rng

    generators = awaited(keep, random=True).apply(block_of([7, 8]), NOWHERE, NOWHERE, WorkerContext(0)).rows()
    keyed = KeyedGenerator(11, 2)
    assert generators[1].random(3).tolist() == keyed.at(3, 1, 5).random(3).tolist()
    assert generators[0].random(3).tolist() == keyed.at(3, 0, 5).random(3).tolist()


ERRORS = [LookupError(1), StopIteration(1), StopAsyncIteration(1), SystemExit(1), KeyboardInterrupt(), GeneratorExit()]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_whatever_it_raises_is_the_outcome_and_names_the_first_failing_offset(error: BaseException) -> None:
    async def fails(x: int) -> int:
        if x >= 2:
            raise error
        return x

    with pytest.raises(ElementFailed) as caught:
        awaited(fails).apply(block_of([0, 1, 2, 3]), NOWHERE, NOWHERE, WorkerContext(0))
    assert (caught.value.offset, caught.value.stage, caught.value.error) == (2, "fn", error)
