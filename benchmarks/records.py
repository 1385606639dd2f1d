"""Records of 1 kB in one file: any of them through its index, in blocks of 256, and how fast the index is built.

`pread` is one call of the system per record from Python, into new bytes each; `spans` reads a block into working memory, as decoders of
blocks do; `elements` are the elements of the source, new bytes each. All in one thread, from the page cache. `read_file` reads the file in
pieces of 4 MB into one buffer; `index_text` and `index_tfrecord` build the index of it, in records per second like all others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import drive
import numpy as np
import rounds
from data import Size

_RECORD_BYTES = 1000
_BLOCK = 256


def _num_records(size: Size) -> int:
    return max(4 * _BLOCK, size.num_integers // 25)


def _text_file(size: Size, root: Path) -> Path:
    return root / "records" / f"{size.name}.txt"


def _tfrecord_file(size: Size, root: Path) -> Path:
    return root / "records" / f"{size.name}.tfrecord"


def _prepare(size: Size, root: Path) -> None:
    """Write lines of 999 letters and a line feed."""
    path = _text_file(size, root)
    num_records = _num_records(size)
    if path.exists() and path.stat().st_size == num_records * _RECORD_BYTES:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(5)
    with path.open("wb") as file:
        for begin in range(0, num_records, 4096):
            lines = generator.integers(97, 123, (min(4096, num_records - begin), _RECORD_BYTES), dtype=np.uint8)
            lines[:, -1] = 10
            file.write(lines.tobytes())


def _blocks(num_records: int) -> Iterator[Any]:
    generator = np.random.default_rng(7)
    while True:
        yield generator.integers(0, num_records, _BLOCK)


def _steady(run: rounds.Run, read: Callable[[Any], Any]) -> dict[str, Any]:
    num_records = _num_records(run.size)
    return drive.steady(map(read, _blocks(num_records)), max(4, num_records // _BLOCK), _BLOCK, run.size.min_seconds)


def _pread(run: rounds.Run) -> dict[str, Any]:
    descriptor = os.open(_text_file(run.size, run.root), os.O_RDONLY)
    try:
        return _steady(run, lambda block: [os.pread(descriptor, _RECORD_BYTES, place * _RECORD_BYTES) for place in block.tolist()])
    finally:
        os.close(descriptor)


def _source(run: rounds.Run) -> Any:
    from penstock.sources import text_source

    return text_source(_text_file(run.size, run.root))


def _spans(run: rounds.Run) -> dict[str, Any]:
    from penstock._contracts.transform import Scratch

    source, scratch = _source(run), Scratch()
    return _steady(run, lambda block: source.read(block, scratch)[1])


def _elements(run: rounds.Run) -> dict[str, Any]:
    source = _source(run)

    def read(block: Any) -> int:
        rows: list[Any] = []
        source.gather(block.tolist(), rows)
        return len(rows)

    return _steady(run, read)


def _timed(run: rounds.Run, work: Callable[[], None]) -> dict[str, Any]:
    """Do it once unmeasured, then for the time that is asked for."""
    work()
    start, count = time.perf_counter(), 0
    while not count or time.perf_counter() - start < run.size.min_seconds:
        work()
        count += 1
    seconds = time.perf_counter() - start
    return {"rate": count * _num_records(run.size) / seconds, "seconds": seconds, "count": count}


def _read_file(run: rounds.Run) -> dict[str, Any]:
    buffer = np.empty(4 << 20, np.uint8)

    def work() -> None:
        with open(_text_file(run.size, run.root), "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return _timed(run, work)


def _index(run: rounds.Run, path: Path, format: Any) -> dict[str, Any]:
    from penstock._storage import open_storage
    from penstock.sources.indexing import build

    return _timed(run, lambda: build(open_storage(path, "benchmark"), 0, format) and None)


def _index_text(run: rounds.Run) -> dict[str, Any]:
    from penstock.sources import TextLines

    return _index(run, _text_file(run.size, run.root), TextLines())


def _index_tfrecord(run: rounds.Run) -> dict[str, Any]:
    try:
        from penstock.sources.tfrecord import TFRecordFormat
    except ImportError:
        raise rounds.Missing("this Penstock reads no TFRecord files") from None
    from penstock.formats.tfrecord import RecordWriter

    path, data = _tfrecord_file(run.size, run.root), bytes(_RECORD_BYTES - 16)
    if not path.exists():
        with path.open("wb") as file:
            writer = RecordWriter(file)
            for _ in range(_num_records(run.size)):
                writer.write(data)
    return _index(run, path, TFRecordFormat())


CLAIM = rounds.Claim(
    name="records",
    title="Any record of 1 kB through an index, one thread, page cache; building the index",
    unit="records/s",
    prepare=_prepare,
    reference="pread",
    references={"read_file": "read_file", "index_text": "read_file", "index_tfrecord": "read_file"},
    targets=(
        rounds.Target(contestant="spans", metric="rate", sense=">=", bound=800_000),
        rounds.Target(contestant="elements", metric="ratio", sense=">=", bound=0.7),
        rounds.Target(contestant="index_tfrecord", metric="ratio", sense=">=", bound=0.5),
        rounds.Target(contestant="index_text", metric="ratio", sense=">=", bound=0.5),
    ),
)
CONTESTANTS = {
    "pread": _pread,
    "spans": _spans,
    "elements": _elements,
    "read_file": _read_file,
    "index_text": _index_text,
    "index_tfrecord": _index_tfrecord,
}

if __name__ == "__main__":
    rounds.main(CLAIM, CONTESTANTS)
