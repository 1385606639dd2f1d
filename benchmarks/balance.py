"""How much more work than the mean the dearest of 64 ranks has, with documents of log-normal length, balanced and dealt as they come."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size
from numpy.typing import NDArray

_RANKS = 64
_SIGMA = 1.2
_BATCH_SIZES = (1, 8, 16)
_SEED = 4


class _Documents:
    """Documents that are their own numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index


def _count(size: Size) -> int:
    return size.num_integers // 5


def _lengths(size: Size) -> NDArray[np.int64]:
    return np.random.default_rng(_SEED).lognormal(5.5, _SIGMA, _count(size)).astype(np.int64) + 1


def _length(element: int) -> int:
    lengths: Any = _length.known  # type: ignore[attr-defined]
    return int(lengths[element])


def _folder(size: Size, root: Path) -> Path:
    return root / "balance" / str(_count(size))


def _measured(size: Size, root: Path) -> Any:
    import penstock as ps

    lengths = _length.known = _lengths(size)  # type: ignore[attr-defined]
    return ps.from_source(_Documents(len(lengths))).measure(_folder(size, root), num_workers=0, length=_length)


def _prepare(size: Size, root: Path) -> None:
    _measured(size, root)


def _figures(balanced: bool) -> Any:
    def measure(run: rounds.Run) -> dict[str, Any]:
        lengths, dataset = _lengths(run.size), _measured(run.size, run.root).shuffle(seed=1)
        if balanced:
            dataset = dataset.balance("length", num_ranks=_RANKS)
        begin = time.perf_counter()
        with dataset.batch(len(lengths)).feed(executor="inline") as feed:
            order = next(feed)
        seconds = time.perf_counter() - begin
        found: dict[str, Any] = {"rate": len(lengths) / seconds, "element_ns": seconds / len(lengths) * 1e9}
        for batch_size in _BATCH_SIZES:
            whole = len(order) - len(order) % (_RANKS * batch_size)
            work = lengths[order[:whole]].reshape(-1, batch_size, _RANKS).sum(axis=1)
            found[f"dearest_{batch_size}"] = float(work.max(axis=1).sum() / work.mean(axis=1).sum())
        return found

    return measure


CLAIM = rounds.Claim(
    name="balance",
    title="documents of log-normal length (sigma 1.2) on 64 ranks: the dearest rank of a step over the mean, for batches of 1, 8 and 16",
    unit="elements/s",
    prepare=_prepare,
    reference="dealt",
    also=("element_ns", *(f"dearest_{batch_size}" for batch_size in _BATCH_SIZES)),
    targets=(rounds.Target(contestant="balanced", metric="dearest_8", sense="<=", bound=1.02),),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"balanced": _figures(balanced=True), "dealt": _figures(balanced=False)})
