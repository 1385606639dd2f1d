"""What a packed row costs one of many ranks, with measured lengths and without, and what it takes to plan all rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size

_ROW = 2048
_WARM = 4
"""Rows before the clock runs: what is compared is no start."""
_SEED = 3


def _lengths(count: int) -> Any:
    return np.minimum(np.random.default_rng(_SEED).lognormal(5.5, 1.0, count).astype(np.int32) + 1, _ROW)


class _Documents:
    """Documents of log-normal length, made when they are asked for."""

    def __init__(self, count: int) -> None:
        self.lengths = _lengths(count)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": np.full(self.lengths[index], index, np.int32)}


def _length(element: dict[str, Any]) -> int:
    return len(element["tokens"])


def _count(size: Size) -> int:
    return max(100_000, size.num_integers // 10)


def _folder(count: int, root: Path) -> Path:
    return root / "known" / str(count)


def _prepare(size: Size, root: Path) -> None:
    import penstock as ps

    count = _count(size)
    ps.from_source(_Documents(count)).measure(_folder(count, root), num_workers=0, length=_length)


def _known(run: rounds.Run) -> Any:
    import penstock as ps

    count = _count(run.size)
    return ps.from_source(_Documents(count)).measure(_folder(count, run.root))


def _stream(run: rounds.Run) -> Any:
    import penstock as ps

    return ps.from_source(_Documents(_count(run.size)))


def _rank(documents: Callable[[rounds.Run], Any], num_ranks: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        given, is_known = documents(run), documents is _known
        begin = time.perf_counter()
        dataset = given.pack_sequences(_ROW, by="length" if is_known else None)
        most = min(1024, (len(dataset) if is_known else _count(run.size) // 6) // num_ranks - _WARM)
        plan_ns = (time.perf_counter() - begin) / _count(run.size) * 1e9
        taken, seconds = 0, 0.0
        for rank in range(0, num_ranks, max(1, num_ranks // 8)):  # several, as one of many has few rows
            with dataset.shard_by_rank(rank=rank, num_ranks=num_ranks).feed(executor="inline") as feed:
                for _ in range(_WARM):
                    next(feed)
                start = time.perf_counter()
                taken += sum(1 for _, _ in zip(range(most), feed, strict=False))
                seconds += time.perf_counter() - start
        return {"rate": taken / seconds, "row_us": seconds / taken * 1e6, **({"plan_ns": plan_ns} if is_known else {})}

    return measure


_RANKS = (1, 8, 64, 1024)

CLAIM = rounds.Claim(
    name="known",
    title="rows of 2,048 tokens that one of many ranks gets, packed by measured lengths (known) and by a stream (stream)",
    unit="rows/s",
    prepare=_prepare,
    reference="known_1",
    references={"stream_8": "stream_1"},
    also=("row_us", "plan_ns"),
    targets=(rounds.Target(contestant="known_1024", metric="ratio", sense=">=", bound=0.91),),
)

if __name__ == "__main__":
    ways = {f"known_{number}": _rank(_known, number) for number in _RANKS}
    rounds.main(CLAIM, {**ways, "stream_1": _rank(_stream, 1), "stream_8": _rank(_stream, 8)})
