"""`from_arrays(...).batch(256)` against one `np.take` per batch, for records of 1 and 12 kB.

Twice: as a program has it that keeps its batches (`np.take(records, order)`, a new array each), and into one buffer that is reused, which
stays in the CPU's cache and which nobody may keep: the most that the machine can do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import drive
import numpy as np
import rounds
from data import Size
from numpy.typing import NDArray

_BATCH_SIZE = 256
_RECORD_BYTES = {"1kB": 1024, "12kB": 12_288}


def _records(run: rounds.Run, record_bytes: int) -> NDArray[np.uint8]:
    """Return records of a fifth of a gigabyte in the full size, of less in the others."""
    num_records = max(2 * _BATCH_SIZE, 4 * run.size.num_small * 1024 // record_bytes)
    records = np.empty((num_records, record_bytes), np.uint8)
    records[:] = np.arange(num_records, dtype=np.uint64)[:, None] % 251
    return records


def _steady(run: rounds.Run, batches: Iterable[Any], num_records: int) -> dict[str, Any]:
    # An endless feed: an epoch is a few milliseconds here, so starting one would be what is measured.
    return drive.steady(batches, num_records // _BATCH_SIZE, _BATCH_SIZE, run.size.min_seconds)


def _take(record_bytes: int, shuffled: bool, reused: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        records = _records(run, record_bytes)
        batch = np.zeros((_BATCH_SIZE, record_bytes), np.uint8) if reused else None
        generator = np.random.default_rng(7)

        def epoch() -> Iterator[Any]:
            order = generator.permutation(len(records)) if shuffled else np.arange(len(records))
            for start in range(0, len(records) - _BATCH_SIZE + 1, _BATCH_SIZE):
                yield np.take(records, order[start : start + _BATCH_SIZE], axis=0, out=batch, mode="clip")

        return _steady(run, drive.forever(epoch), len(records))

    return measure


def _penstock(record_bytes: int, shuffled: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        records = _records(run, record_bytes)
        dataset = ps.from_arrays(records)
        if shuffled:
            dataset = dataset.shuffle(seed=7)
        dataset = dataset.batch(_BATCH_SIZE, drop_remainder=True).repeat()
        with dataset.feed() as feed:
            return _steady(run, feed, len(records))

    return measure


def _dataloader(record_bytes: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        utils = rounds.torch().utils.data
        records = _records(run, record_bytes)
        loader = utils.DataLoader(records, batch_size=_BATCH_SIZE, shuffle=True, drop_last=True)
        return _steady(run, drive.forever(lambda: loader), len(records))

    return measure


def _nothing(size: Size, root: Path) -> None:
    """The records are made in each process."""


def _claim() -> rounds.Claim:
    references = {}
    for label in _RECORD_BYTES:
        for order in ("shuffled", "ordered"):
            references[f"penstock_{label}_{order}"] = f"take_{label}_{order}"
            references[f"take_reused_{label}_{order}"] = f"take_{label}_{order}"
        references[f"dataloader_{label}_shuffled"] = f"take_{label}_shuffled"
    return rounds.Claim(
        name="gather",
        title="from_arrays(...).batch(256) against one np.take per batch",
        unit="records/s",
        prepare=_nothing,
        reference="take_1kB_shuffled",
        references=references | {f"take_{label}_{order}": "" for label in _RECORD_BYTES for order in ("shuffled", "ordered")},
        targets=tuple(
            rounds.Target(contestant=name, metric="ratio", sense=">=", bound=1.0) for name in references if name.startswith("penstock")
        ),
    )


if __name__ == "__main__":
    contestants: dict[str, Callable[[rounds.Run], dict[str, Any]]] = {}
    for label, record_bytes in _RECORD_BYTES.items():
        for order in ("shuffled", "ordered"):
            contestants[f"take_{label}_{order}"] = _take(record_bytes, order == "shuffled", reused=False)
            contestants[f"take_reused_{label}_{order}"] = _take(record_bytes, order == "shuffled", reused=True)
            contestants[f"penstock_{label}_{order}"] = _penstock(record_bytes, order == "shuffled")
        contestants[f"dataloader_{label}_shuffled"] = _dataloader(record_bytes)
    rounds.main(_claim(), contestants)
