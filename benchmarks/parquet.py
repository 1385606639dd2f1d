"""Epochs over Parquet files as batches of 1024 rows in NumPy arrays: in order, in windows of groups, and by what pyarrow has for it.

Files of 20 float32 columns and a label, 80 row groups. Penstock may keep a quarter of the decoded row groups, so each epoch decodes
them all, as the others do. pyarrow's own batch readers (`iter_batches` of a file, `to_batches` of a dataset) are asked for batches of
several sizes, which are cut to 1024 rows without a copy; the fastest of them counts. `pyarrow_row_groups` is no batch reader: a loop of
`read_row_group` that cuts each group.
Before the clock, an epoch of each contestant is compared with what was written by sums over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
_READ_SIZES = (1024, 8192, 65_536)  # rows that pyarrow reads at once: multiples of a batch


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
    for part in range(_NUM_FILES):
        unfinished = folder / f"part-{part}.unfinished"
        pq.write_table(pa.table(_columns(size, part)), unfinished, row_group_size=_num_rows(size) // _NUM_GROUPS)
        unfinished.rename(folder / f"part-{part}.parquet")


def _columns(size: Size, part: int) -> dict[str, Any]:
    rows = _num_rows(size) // _NUM_FILES
    generator = np.random.default_rng(part)
    columns: dict[str, Any] = {f"f{place:02d}": generator.standard_normal(rows, np.float32) for place in range(_NUM_FEATURES)}
    return {**columns, "label": generator.integers(0, 1000, rows)}


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError:
        raise rounds.Missing("pyarrow is not installed") from None
    return pyarrow.parquet, pyarrow.dataset


def _epochs(run: rounds.Run, epoch: Callable[[], Any]) -> dict[str, Any]:
    def check(batches: Iterable[Any]) -> None:
        """Compare rows, labels and a sum in which each value counts with its row's label."""
        got = np.zeros(3)
        for batch in batches:
            got += _sums(batch)
        wanted = sum(_sums(_columns(run.size, part)) for part in range(_NUM_FILES))
        assert np.allclose(got, wanted, rtol=1e-9), f"an epoch has sums {got}, the files {wanted}"

    timing = drive.epochs(epoch, _BATCH_SIZE, run.size.min_seconds, check)
    # Counted by epoch, should a reader make short batches.
    count = timing["num_epochs"] * _num_rows(run.size)
    return {**timing, "count": count, "rate": count / timing["seconds"]}


def _sums(batch: Any) -> Any:
    labels = np.asarray(batch["label"])
    values = sum((place + 1) * np.asarray(batch[f"f{place:02d}"], np.float64) for place in range(_NUM_FEATURES))
    return np.array([len(labels), labels.sum(), values @ labels])


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


def _cut(columns: dict[str, Any], rows: int) -> Iterator[dict[str, Any]]:
    """Cut columns to batches, as views."""
    for start in range(0, rows, _BATCH_SIZE):
        yield {name: column[start : start + _BATCH_SIZE] for name, column in columns.items()}


def _iter_batches(read_size: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        parquet, _ = _arrow()
        paths = sorted(_folder(run.size, run.root).glob("*.parquet"))

        def epoch() -> Iterator[Any]:
            for path in paths:
                with parquet.ParquetFile(path) as file:
                    for batch in file.iter_batches(batch_size=read_size):
                        yield from _cut(_arrays(batch), batch.num_rows)

        return _epochs(run, epoch)

    return measure


def _to_batches(read_size: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        _, dataset = _arrow()
        paths = sorted(map(str, _folder(run.size, run.root).glob("*.parquet")))

        def epoch() -> Iterator[Any]:
            for batch in dataset.dataset(paths).to_batches(batch_size=read_size):
                yield from _cut(_arrays(batch), batch.num_rows)

        return _epochs(run, epoch)

    return measure


def _arrays(batch: Any) -> dict[str, Any]:
    return {name: column.to_numpy() for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def _row_groups(run: rounds.Run) -> dict[str, Any]:
    parquet, _ = _arrow()
    paths = sorted(_folder(run.size, run.root).glob("*.parquet"))

    def epoch() -> Iterator[Any]:
        for path in paths:
            with parquet.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    yield from _cut({name: table[name].to_numpy() for name in table.column_names}, table.num_rows)

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


_READERS = {
    f"pyarrow_{kind}_{read_size}": make(read_size)
    for kind, make in (("iter_batches", _iter_batches), ("to_batches", _to_batches))
    for read_size in _READ_SIZES
}

CLAIM = rounds.Claim(
    name="parquet",
    title="Parquet: epochs of batches of 1024 rows, 20 float32 columns and a label",
    unit="rows/s",
    prepare=_prepare,
    reference="pyarrow_best",
    best={"pyarrow_best": tuple(_READERS)},
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
            **_READERS,
            "pyarrow_row_groups": _row_groups,
            "hugging_face_stream": _hugging_face,
        },
    )
