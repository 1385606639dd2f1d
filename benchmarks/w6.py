"""W6: elements of very uneven cost (2 ms, every 50th 200 ms), 16 workers, batches of 32: in order, and in the order of completion."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import drive
import numpy as np
import rounds
from data import Size

_NUM_WORKERS = 16
_BATCH_SIZE = 32
_FAST_S, _SLOW_S, _EVERY = 0.002, 0.200, 50
_MEAN_S = ((_EVERY - 1) * _FAST_S + _SLOW_S) / _EVERY
_ALLOWED = _NUM_WORKERS / _MEAN_S  # elements per second, if a sleep were exact and handing over cost nothing
_EPOCH_S = 20.0
"""How long an epoch would take at that rate, at full size: the last slow elements, which nothing can hide, weigh 1 % then. In an epoch
of 4 s they are 5 %, of anybody's: sixteen bare threads reach 0.95 there and 0.98 in 30 s."""


def _load(index: int) -> np.int64:
    time.sleep(_SLOW_S if index % _EVERY == _EVERY - 1 else _FAST_S)
    return np.int64(index)


def _num_elements(epoch_s: float) -> int:
    return int(_ALLOWED * epoch_s) // _BATCH_SIZE * _BATCH_SIZE


def _measured(batches: Any, run: rounds.Run, share: float = 1.0) -> dict[str, Any]:
    """Measure epochs; `share` of an epoch is enough for one that takes many times as long."""
    count = _num_elements(share * (_EPOCH_S if run.size.name == "full" else 2.0))

    def epoch() -> Iterable[Any]:
        return batches(count)

    result = drive.epochs(epoch, _BATCH_SIZE, run.size.min_seconds)
    return {**result, "of_allowed": result["rate"] / _ALLOWED}


def _bare(count: int) -> Iterator[Any]:
    """Sixteen threads that take numbers and sleep, nothing handed over."""
    lock, numbers = threading.Lock(), iter(range(count))

    def work() -> None:
        while True:
            with lock:
                index = next(numbers, None)
            if index is None:
                return
            _load(index)

    threads = [threading.Thread(target=work) for _ in range(_NUM_WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from (np.empty(_BATCH_SIZE, np.int64) for _ in range(count // _BATCH_SIZE))


def _penstock(**options: Any) -> Any:
    def batches(count: int) -> Iterable[Any]:
        import penstock as ps

        return ps.from_source(range(count)).map(_load).batch(_BATCH_SIZE, drop_remainder=True).feed(num_workers=_NUM_WORKERS, **options)

    return lambda run: _measured(batches, run)


class _Tail:
    """The elements as a map-style dataset for PyTorch."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return _load(index)


def _dataloader(in_order: bool) -> Any:
    def measure(run: rounds.Run) -> dict[str, Any]:
        load = rounds.torch().utils.data.DataLoader
        options = {"batch_size": _BATCH_SIZE, "num_workers": _NUM_WORKERS, "prefetch_factor": 4, "drop_last": True}

        def batches(count: int) -> Iterable[Any]:
            return load(_Tail(count), in_order=in_order, **options)  # type: ignore[no-any-return]

        return _measured(batches, run)

    return measure


def _spdl(order: str) -> Any:
    def measure(run: rounds.Run) -> dict[str, Any]:
        try:
            from spdl.pipeline import PipelineBuilder
        except ImportError:
            raise rounds.Missing("spdl is not installed") from None

        def batches(count: int) -> Iterator[Any]:
            builder = PipelineBuilder().add_source(range(count)).pipe(_load, concurrency=_NUM_WORKERS, output_order=order)
            pipeline = builder.aggregate(_BATCH_SIZE, drop_last=True).pipe(np.array).add_sink(4).build(num_threads=_NUM_WORKERS + 2)
            with pipeline.auto_stop():
                yield from pipeline.get_iterator()

        return _measured(batches, run, share=0.1 if order == "input" else 1.0)

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="w6",
    title=f"W6: {_NUM_WORKERS} workers, 2 ms per element, every {_EVERY}th 200 ms, batches of {_BATCH_SIZE}",
    unit="elements/s",
    prepare=_nothing,
    reference="bare_threads",
    also=("of_allowed",),
    targets=(
        rounds.Target(contestant="penstock", metric="of_allowed", sense=">=", bound=0.86),
        rounds.Target(contestant="penstock_unordered", metric="of_allowed", sense=">=", bound=0.95),
    ),
)

if __name__ == "__main__":
    contestants = {
        "bare_threads": lambda run: _measured(_bare, run),
        "penstock": _penstock(),
        "penstock_unordered": _penstock(ordered=False),
        "dataloader": _dataloader(True),
        "dataloader_out_of_order": _dataloader(False),
        "spdl": _spdl("input"),
        "spdl_out_of_order": _spdl("completion"),
    }
    rounds.main(CLAIM, contestants)
