"""A program that exits while all sorts of objects are alive. Run as a script: how they are used, and what is imported before them."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _text(name: str, lines: str) -> str:
    with open(name, "w", encoding="utf-8") as file:
        file.write(lines)
    return name


def _tar() -> str:
    with tarfile.open("a.tar", "w") as archive:
        for number in range(4):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    return "a.tar"


def _tfrecord(compression: str | None = None) -> str:
    ps.pack(ps.from_arrays({"x": np.arange(4)}), "records", format="tfrecord", compression=compression, executor="threads")
    return "records/*.tfrecord*"


def _packed(fmt: str) -> str:
    ps.pack(ps.from_arrays({"x": np.arange(4)}), fmt, format=fmt, executor="threads")
    return fmt


def _tokens() -> str:
    np.arange(64, dtype=np.uint16).tofile("t.bin")
    return "t.bin"


def _list() -> str:
    _text("one", "data")
    return _text("list.txt", "one 0\none 1\n")


def _enqueuer(**options: Any) -> Any:
    enqueuer = ps.GeneratorEnqueuer(lambda: iter(range(100)), **options)
    enqueuer.start(workers=2)
    next(enqueuer.get())
    return enqueuer


def _queue() -> Any:
    queue = ps.queues.FIFOQueue(3)
    runner = ps.queues.QueueRunner(queue, [lambda: queue.enqueue(1)] * 2)
    return queue, runner, runner.create_threads(start=True), queue.dequeue()


async def _twice(x: int) -> int:
    return 2 * x


def _fails(x: int) -> int:
    raise ValueError(x)


INDEXED: dict[str, Callable[[], Any]] = {
    "arrays": lambda: ps.from_arrays(np.arange(9)),
    "async map": lambda: ps.from_source(range(9)).map(_twice, concurrency=2),
    "cache in memory": lambda: ps.from_source(range(9)).map(float).cache(),
    "cache on disk": lambda: ps.from_source(range(9)).map(float).cache("cached"),
    "csv": lambda: ps.read_csv(_text("a.csv", "a,b\n1,2\n3,4\n")),
    "files": lambda: ps.read_files(_text("a.txt", "x")),
    "images": lambda: (os.mkdir("c"), _text("c/a.jpg", "x"), ps.read_images("."))[-1],
    "jsonl": lambda: ps.read_jsonl(_text("a.jsonl", "1\n2\n")),
    "list": lambda: ps.read_list(_list()),
    "packed": lambda: ps.read_packed(_packed("tfrecord")),
    "parquet": lambda: ps.read_parquet(_packed("parquet") + "/*.parquet"),
    "tar": lambda: ps.read_tar(_tar()),
    "text": lambda: ps.read_text(_text("a.txt", "a\nb\n")),
    "tfrecord": lambda: ps.read_tfrecord(_tfrecord()),
    "tokens": lambda: ps.read_tokens(_tokens(), 8, dtype="uint16"),
}

STREAMS: dict[str, Callable[[], Any]] = {
    "compressed tfrecord": lambda: ps.read_tfrecord(_tfrecord("GZIP"), compression="GZIP"),
    "generator": lambda: ps.from_generator(lambda: (x for x in range(9))),
    "stream": lambda: ps.from_stream([1, 2, 3]),
    "skipped": lambda: ps.from_source(range(9)).map(_fails, on_error=ps.Skip()).concatenate(ps.from_source([1, 2])),
}

OTHERS: dict[str, Callable[[], Any]] = {
    "enqueuer of processes": lambda: _enqueuer(use_multiprocessing=True, start_method="fork"),
    "enqueuer of threads": _enqueuer,
    "queue": _queue,
}

USES: dict[str, Callable[[Any], Any]] = {
    "looked at": lambda ds: ds[0],
    "ended": list,
    "running": lambda ds: (feed := ds.repeat().feed(executor="threads", num_workers=2), next(feed)),
    "running in the consumer": lambda ds: (feed := ds.repeat().feed(num_workers=0), next(feed)),
}


def said_at_exit(use: str, *others: str, folder: Path) -> tuple[int, str, str]:
    """Run the program; return its status and all that it said."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, __file__, use, ",".join(others)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


if __name__ == "__main__":
    use, others = sys.argv[1:]
    for other in filter(None, others.split(",")):
        importlib.import_module(other)
    import numpy as np

    import penstock as ps

    warnings.filterwarnings("ignore", ".* was skipped: stage")
    kept = []
    for kind, make in (OTHERS if use == "others" else INDEXED if use == "looked at" else {**INDEXED, **STREAMS}).items():
        os.chdir(tempfile.mkdtemp())
        made = make()
        print(kind)
        kept.append((made, USES[use](made) if use in USES else None))
    # As a library written in C does: it holds modules, whose names are then set to None before the last objects go.
    sys.kept = list(sys.modules.values())  # type: ignore[attr-defined]
