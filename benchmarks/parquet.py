"""Epochs over Parquet files as batches of NumPy arrays: in order, in windows of groups and in pyarrow's own batch readers.

Files of 20 float32 columns and a label, 80 row groups. Penstock may keep a quarter of the decoded row groups, so each epoch decodes
them all, as the others do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import drive
import numpy as np
import rounds
from data import Size

_BATCH_SIZE = 1024
_NUM_FEATURES = 20
_NUM_FILES, _NUM_GROUPS = 4, 80
_WINDOW_GROUPS = 8


def _num_rows(size: Size) -> int:
    """Return so many that each row group has whole batches: some readers make none across the ends of groups or files."""
    least = _NUM_GROUPS * _BATCH_SIZE
    return least * max(1, size.num_integers // 5 // least)


def _folder(size: Size, root: Path) -> Path:
    return root / "parquet" / str(_num_rows(size))


def _prepare(size: Size, root: Path) -> None:
    folder = _folder(size, root)
    if (folder / f"part-{_NUM_FILES - 1}.parquet").exists():
        return
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return  # each contestant says that it is missing
    folder.mkdir(parents=True, exist_ok=True)
    rows = _num_rows(size) // _NUM_FILES
    for part in range(_NUM_FILES):
        generator = np.random.default_rng(part)
        columns: dict[str, Any] = {f"f{place:02d}": generator.standard_normal(rows, np.float32) for place in range(_NUM_FEATURES)}
        columns["label"] = generator.integers(0, 1000, rows)
        unfinished = folder / f"part-{part}.unfinished"
        pq.write_table(pa.table(columns), unfinished, row_group_size=_num_rows(size) // _NUM_GROUPS)
        unfinished.rename(folder / f"part-{part}.parquet")


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError:
        raise rounds.Missing("pyarrow is not installed") from None
    return pyarrow.parquet, pyarrow.dataset


def _epochs(run: rounds.Run, epoch: Callable[[], Any]) -> dict[str, Any]:
    timing = drive.epochs(epoch, _BATCH_SIZE, run.size.min_seconds)
    # Counted by epoch, should a reader make short batches.
    count = timing["num_epochs"] * _num_rows(run.size)
    return {**timing, "count": count, "rate": count / timing["seconds"]}


def _penstock(window_groups: int | None) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        _arrow()
        import penstock as ps

        kept = _num_rows(run.size) * (4 * _NUM_FEATURES + 8) // 4
        dataset = ps.read_parquet(str(_folder(run.size, run.root) / "*.parquet"), cache_bytes=kept)
        if window_groups is not None:
            dataset = dataset.shuffle(seed=7, window_groups=window_groups)
        dataset = dataset.batch(_BATCH_SIZE)

        def epoch() -> Iterator[Any]:
            with dataset.feed() as feed:
                yield from feed

        return _epochs(run, epoch)

    return measure


def _iter_batches(run: rounds.Run) -> dict[str, Any]:
    parquet, _ = _arrow()
    paths = sorted(_folder(run.size, run.root).glob("*.parquet"))

    def epoch() -> Iterator[Any]:
        for path in paths:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_BATCH_SIZE):
                    yield {name: column.to_numpy() for name, column in zip(batch.schema.names, batch.columns, strict=True)}

    return _epochs(run, epoch)


def _to_batches(run: rounds.Run) -> dict[str, Any]:
    _, dataset = _arrow()
    paths = sorted(map(str, _folder(run.size, run.root).glob("*.parquet")))

    def epoch() -> Iterator[Any]:
        for batch in dataset.dataset(paths).to_batches(batch_size=_BATCH_SIZE):
            yield {name: column.to_numpy() for name, column in zip(batch.schema.names, batch.columns, strict=True)}

    return _epochs(run, epoch)


def _hugging_face(run: rounds.Run) -> dict[str, Any]:
    """Read the files as a stream: what is said to be read once and shuffled in a buffer."""
    try:
        import datasets
    except ImportError:
        raise rounds.Missing("datasets is not installed") from None
    paths = sorted(map(str, _folder(run.size, run.root).glob("*.parquet")))
    stream = datasets.load_dataset("parquet", data_files=paths, split="train", streaming=True).with_format("numpy")

    def epoch() -> Iterator[Any]:
        yield from stream.batch(_BATCH_SIZE)

    return _epochs(run, epoch)


CLAIM = rounds.Claim(
    name="parquet",
    title="Parquet: epochs of batches of 1024 rows, 20 float32 columns and a label",
    unit="rows/s",
    prepare=_prepare,
    reference="pyarrow_to_batches",
    references={"penstock_in_order": "pyarrow_iter_batches"},
    targets=(
        rounds.Target(contestant="penstock_in_order", metric="ratio", sense=">=", bound=1.0),
        rounds.Target(contestant="penstock_in_windows", metric="ratio", sense=">=", bound=1.0),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "penstock_in_order": _penstock(None),
            "penstock_in_windows": _penstock(_WINDOW_GROUPS),
            "pyarrow_iter_batches": _iter_batches,
            "pyarrow_to_batches": _to_batches,
            "hugging_face_stream": _hugging_face,
        },
    )
