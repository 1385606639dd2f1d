"""Async reads with 20 ms latency, 64 at once: elements per second, beside what the latency allows and what bare asyncio reaches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drive
import rounds
from data import Size

_LATENCY_S = 0.020
_IN_FLIGHT = 64
_BATCH_SIZE = 64
_ALLOWED = _IN_FLIGHT / _LATENCY_S  # 3,200 elements per second


async def _read(index: int) -> int:
    await asyncio.sleep(_LATENCY_S)
    return index


def _read_blocking(index: int) -> int:
    time.sleep(_LATENCY_S)
    return index


def _num_elements(run: rounds.Run) -> int:
    return max(2 * _IN_FLIGHT, run.size.num_integers // 200)


def _measured(epoch: Any, run: rounds.Run) -> dict[str, Any]:
    result = drive.epochs(epoch, 1, run.size.min_seconds)
    return {**result, "of_allowed": result["rate"] / _ALLOWED}


def _limit(run: rounds.Run) -> dict[str, Any]:
    """Bare asyncio: as many coroutines as may be in flight, each of which takes the next number; no task per element."""
    count = _num_elements(run)

    async def all_elements() -> list[int]:
        numbers, found = iter(range(count)), [0] * count

        async def lane() -> None:
            for index in numbers:
                found[index] = await _read(index)

        await asyncio.gather(*(lane() for _ in range(_IN_FLIGHT)))
        return found

    return _measured(lambda: asyncio.run(all_elements()), run)


def _penstock(fn: Any, **options: Any) -> Any:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        dataset = ps.from_source(range(_num_elements(run))).map(fn, concurrency=_IN_FLIGHT).batch(_BATCH_SIZE)

        def epoch() -> Iterator[Any]:
            for batch in dataset.feed(**options):
                yield from batch

        return _measured(epoch, run)

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="async_map",
    title="Async reads with 20 ms latency, 64 in flight",
    unit="elements/s",
    prepare=_nothing,
    also=("of_allowed",),
    targets=(
        rounds.Target(contestant="penstock", metric="of_allowed", sense=">=", bound=0.95),
        rounds.Target(contestant="penstock", metric="ratio", sense=">=", bound=0.95),
    ),
)

if __name__ == "__main__":
    contestants = {
        "limit": _limit,
        "penstock": _penstock(_read),
        "penstock_inline": _penstock(_read, executor="inline"),
        "penstock_threads": _penstock(_read_blocking),
    }
    rounds.main(CLAIM, contestants)
