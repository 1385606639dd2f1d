from __future__ import annotations

import asyncio
from typing import Any

from _engine.engines import block_of

from penstock._engine.async_calls import AsyncCalls, gather_alone
from penstock._ops.map import AwaitedOp, CallResult


def lanes_of(fn: Any, concurrency: int, **hooks: Any) -> AsyncCalls:
    def wrong(error: BaseException) -> None:
        raise AssertionError from error

    return AsyncCalls(AwaitedOp(fn, "fn", 0, 0, False, concurrency, gather_alone), hooks.pop("on_error", wrong), **hooks)


async def run(lanes: AsyncCalls, *blocks: list[Any]) -> list[list[CallResult]]:
    """Run blocks and return their outcomes in the order of the blocks."""
    futures = [asyncio.get_running_loop().create_future() for _ in blocks]
    for rows, future in zip(blocks, futures, strict=True):
        lanes.add(block_of(rows), lambda outcomes, _, future=future: future.set_result(outcomes))  # type: ignore[misc]
    try:
        return list(await asyncio.gather(*futures))
    finally:
        await lanes.cancel()


def test_calls_begin_in_order_over_all_blocks_and_no_more_at_once_than_there_are_lanes() -> None:
    begun: list[int] = []
    ends: list[tuple[int, bool]] = []

    async def fn(x: int) -> int:
        begun.append(x)
        assert len(lanes) <= 3
        for _ in range(7 - x):
            await asyncio.sleep(0)
        return -x

    counts: list[int] = []
    lanes = lanes_of(
        fn,
        3,
        on_begin=lambda: counts.append(lanes.num_started),
        on_end=lambda call, end: ends.append((call.call_slot, call.begin_ns <= end)),
    )
    found = asyncio.run(run(lanes, [0, 1], [2, 3, 4], [5, 6]))
    assert [[outcome.value for outcome in outcomes] for outcomes in found] == [[0, -1], [-2, -3, -4], [-5, -6]]
    assert begun == list(range(7))
    assert len(ends) == lanes.num_started == counts[-1] == 7
    assert {lane for lane, _ in ends} == {0, 1, 2}


def test_a_failure_cancels_what_stands_behind_it_in_its_block_only() -> None:
    cancelled: list[int] = []

    async def fn(x: int) -> int:
        try:
            if x == 1:
                await asyncio.sleep(0)
                raise LookupError(x)
            if 1 < x < 5:
                await asyncio.Event().wait()
            for _ in range(5):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            cancelled.append(x)
            raise
        return x

    first, second = asyncio.run(run(lanes_of(fn, 4), [0, 1, 2, 3, 4], [5, 6]))
    assert first[0].value == 0  # wanted, and waited for
    assert isinstance(first[1].error, LookupError)
    assert len(first) == 2
    assert [outcome.value for outcome in second] == [5, 6]
    assert cancelled == [2, 3]  # 4 was never begun
