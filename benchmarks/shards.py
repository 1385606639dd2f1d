"""What many shards cost at the start: TFRecord files of two records each, indexed before; the catalogue beside one index after the other.

`files` only looks at the files, as everything that reads them has to: it lists them and asks the system for size and time of each.
`start` opens the dataset through the catalogue, `indices` through the index of each file, as it was before there was a catalogue; both
for the second time in a process, with what the system remembers of the files. The memory is what the opened source holds, by tracemalloc:
per shard, without its path and the 24 bytes of the places of its two records.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rounds
from data import Size

_PAST_NS = 1_700_000_000_000_000_000


def _num_shards(size: Size) -> int:
    return max(300, size.num_integers // 100)


def _folder(size: Size, root: Path) -> Path:
    return root / "shards" / size.name


def _prepare(size: Size, root: Path) -> None:
    """Write the shards, and open them once, so that all indices are there."""
    from penstock.formats.tfrecord import RecordWriter

    folder = _folder(size, root)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(_num_shards(size)):
        path = folder / f"part-{number:06d}.tfrecord"
        if not path.exists():
            with path.open("wb") as file:
                writer = RecordWriter(file)
                for record in (b"%020d" % number, b""):
                    writer.write(record)
            os.utime(path, ns=(_PAST_NS, _PAST_NS))
    os.environ["XDG_CACHE_HOME"] = str(root / "shards" / "cache")
    _open(folder)


def _open(folder: Path) -> Any:
    import penstock as ps

    return ps.read_tfrecord(str(folder / "*.tfrecord"))


def _look(folder: Path) -> Any:
    from penstock._storage import open_storage

    return open_storage(str(folder / "*.tfrecord"), "shards.py")


def _one_by_one(folder: Path) -> Any:
    from penstock.sources.indexing import open_indices
    from penstock.sources.tfrecord import TFRecordFormat

    return open_indices(_look(folder), TFRecordFormat())


def _measured(open_them: Callable[[Path], Any]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        os.environ["XDG_CACHE_HOME"] = str(run.root / "shards" / "cache")
        folder, count = _folder(run.size, run.root), _num_shards(run.size)
        open_them(folder)
        start = time.perf_counter()
        opened = open_them(folder)
        seconds = time.perf_counter() - start
        del opened
        tracemalloc.start()
        opened = open_them(folder)
        held = tracemalloc.get_traced_memory()[0]
        del opened
        held -= count * (len(os.fsencode(folder)) + len("/part-000000.tfrecord") + 1 + 24)
        return {"rate": count / seconds, "seconds": seconds, "bytes_a_shard": held / count, "shards": count}

    return measure


CLAIM = rounds.Claim(
    name="shards",
    title="Opening a dataset of many shards that are indexed",
    unit="shards/s",
    prepare=_prepare,
    reference="files",
    also=("seconds", "bytes_a_shard", "shards"),
    targets=(
        rounds.Target(contestant="start", metric="rate", sense=">=", bound=100_000.0),
        rounds.Target(contestant="start", metric="bytes_a_shard", sense="<=", bound=100.0),
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"files": _measured(_look), "start": _measured(_open), "indices": _measured(_one_by_one)})
