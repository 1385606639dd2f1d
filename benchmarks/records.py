"""Records of 1 kB in one file: any of them through its index, in blocks of 256, and how fast the index is built.

The file of lines: `pread` is one call of the system per record from Python, into new bytes each; `spans` reads a block into working memory,
as decoders of blocks do, without looking at it; `elements` are the elements of `read_text`, a new str each. The TFRecord file:
`tfrecord_pread` reads a frame with one call of the system and checks nothing; `tfrecord_elements` are the elements of `read_tfrecord`, new
bytes each, with both check sums; `tfrecord_unchecked` are the same with `check_crc=False`. All in one thread, from the page cache, by the
source itself: no feed runs.

`read_file` reads the file in pieces of 4 MB into one buffer; `index_text` and `index_tfrecord` build the index of it, in records per second
like all others.
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
_FRAME_BYTES = 16


def _num_records(size: Size) -> int:
    return max(4 * _BLOCK, size.num_integers // 25)


def _text_file(size: Size, root: Path) -> Path:
    return root / "records" / f"{size.name}.txt"


def _tfrecord_file(size: Size, root: Path) -> Path:
    return root / "records" / f"{size.name}.tfrecord"


def _prepare(size: Size, root: Path) -> None:
    """Write lines of 999 letters and a line feed, and frames of the same size around other letters."""
    path = _text_file(size, root)
    num_records = _num_records(size)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_tfrecord(_tfrecord_file(size, root), num_records)
    if path.exists() and path.stat().st_size == num_records * _RECORD_BYTES:
        return
    generator = np.random.default_rng(5)
    with path.open("wb") as file:
        for begin in range(0, num_records, 4096):
            lines = generator.integers(97, 123, (min(4096, num_records - begin), _RECORD_BYTES), dtype=np.uint8)
            lines[:, -1] = 10
            file.write(lines.tobytes())


def _write_tfrecord(path: Path, num_records: int) -> None:
    from penstock.formats.tfrecord import RecordWriter

    if path.exists() and path.stat().st_size == num_records * _RECORD_BYTES:
        return
    generator = np.random.default_rng(6)
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for _ in range(num_records):
            writer.write(generator.bytes(_RECORD_BYTES - _FRAME_BYTES))


def _blocks(num_records: int) -> Iterator[Any]:
    generator = np.random.default_rng(7)
    while True:
        yield generator.integers(0, num_records, _BLOCK)


def _steady(run: rounds.Run, read: Callable[[Any], Any]) -> dict[str, Any]:
    num_records = _num_records(run.size)
    return drive.steady(map(read, _blocks(num_records)), max(4, num_records // _BLOCK), _BLOCK, run.size.min_seconds)


def _pread(path: Callable[[Size, Path], Path]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        descriptor = os.open(path(run.size, run.root), os.O_RDONLY)
        try:
            return _steady(run, lambda block: [os.pread(descriptor, _RECORD_BYTES, place * _RECORD_BYTES) for place in block.tolist()])
        finally:
            os.close(descriptor)

    return measure


def _source(run: rounds.Run) -> Any:
    from penstock.sources.text import text_source

    return text_source(_text_file(run.size, run.root))


def _spans(run: rounds.Run) -> dict[str, Any]:
    from penstock._contracts.transform import Scratch

    source, scratch = _source(run), Scratch()
    return _steady(run, lambda block: source.read(block, scratch)[1])


def _gathered(run: rounds.Run, source: Any, path: Path, expected: Callable[[bytes], Any]) -> dict[str, Any]:
    """Gather blocks, after one has been compared with the file."""

    def read(block: Any) -> list[Any]:
        rows: list[Any] = []
        source.gather(block.tolist(), rows)
        return rows

    block = next(_blocks(_num_records(run.size)))
    lines = np.memmap(path, np.uint8, "r").reshape(-1, _RECORD_BYTES)
    assert read(block) == [expected(lines[place].tobytes()) for place in block.tolist()]
    return _steady(run, read)


def _elements(run: rounds.Run) -> dict[str, Any]:
    return _gathered(run, _source(run), _text_file(run.size, run.root), lambda line: {"text": line[:-1].decode()})


def _tfrecord_elements(check_crc: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        from penstock._storage import open_storage
        from penstock.sources.tfrecord import TFRecordSource

        path = _tfrecord_file(run.size, run.root)
        source = TFRecordSource(open_storage(path, "benchmark"), check_crc=check_crc)
        return _gathered(run, source, path, lambda frame: {"record": frame[12:-4]})

    return measure


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
    from penstock.sources.text import TextLines

    return _index(run, _text_file(run.size, run.root), TextLines())


def _index_tfrecord(run: rounds.Run) -> dict[str, Any]:
    from penstock.sources.tfrecord import TFRecordFormat

    return _index(run, _tfrecord_file(run.size, run.root), TFRecordFormat())


CLAIM = rounds.Claim(
    name="records",
    title="Any record of 1 kB through an index, one thread, page cache; building the index",
    unit="records/s",
    prepare=_prepare,
    reference="pread",
    references={
        **dict.fromkeys(("tfrecord_pread", "tfrecord_elements", "tfrecord_unchecked"), "tfrecord_pread"),
        "read_file": "read_file",
        "index_text": "read_file",
        "index_tfrecord": "read_file",
    },
    targets=(
        rounds.Target(contestant="spans", metric="rate", sense=">=", bound=800_000),
        rounds.Target(contestant="elements", metric="ratio", sense=">=", bound=0.7),
        rounds.Target(contestant="tfrecord_elements", metric="rate", sense=">=", bound=800_000),
        rounds.Target(contestant="index_tfrecord", metric="ratio", sense=">=", bound=0.5),
        rounds.Target(contestant="index_text", metric="ratio", sense=">=", bound=0.5),
    ),
)
CONTESTANTS = {
    "pread": _pread(_text_file),
    "spans": _spans,
    "elements": _elements,
    "tfrecord_pread": _pread(_tfrecord_file),
    "tfrecord_elements": _tfrecord_elements(check_crc=True),
    "tfrecord_unchecked": _tfrecord_elements(check_crc=False),
    "read_file": _read_file,
    "index_text": _index_text,
    "index_tfrecord": _index_tfrecord,
}

if __name__ == "__main__":
    rounds.main(CLAIM, CONTESTANTS)
