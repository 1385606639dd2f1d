"""Lines of text, JSON and CSV in a new random order each epoch, in batches of 256; and what it costs to find the lines.

What people do today: plain Python that seeks to the lines (it knows where they are), Hugging Face datasets (which converts files to
Arrow first, off the clock), and pyarrow for numbers of CSV (which holds them in memory).
"""

from __future__ import annotations

import csv
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import drive
import numpy as np
import rounds
from data import Size

_BATCH_SIZE = 256
_WORDS = ("the", "of", "and", "to", "in", "you", "that", "it", "for", "was", "with", "they", "this", "have", "from", "word", "not")


def _num_lines(size: Size) -> int:
    return size.num_integers // 10 // _BATCH_SIZE * _BATCH_SIZE


def _path(run: rounds.Run, kind: str) -> str:
    return str(run.root / "text" / f"{_num_lines(run.size)}.{kind}")


def _prepare(size: Size, root: Path) -> None:
    """Write one file of each kind: about 100 bytes a line."""
    run = rounds.Run(size=size, root=root)
    (root / "text").mkdir(parents=True, exist_ok=True)
    writers: dict[str, Callable[[random.Random, int], str]] = {
        "txt": lambda rng, number: " ".join(rng.choices(_WORDS, k=25)),
        "jsonl": lambda rng, number: json.dumps({"id": number, "text": " ".join(rng.choices(_WORDS, k=12)), "score": rng.random()}),
        "csv": lambda rng, number: ",".join([str(number), str(number % 10), *(f"{rng.gauss(0, 1):.6f}" for _ in range(8))]),
    }
    for kind, line in writers.items():
        path = Path(_path(run, kind))
        if path.exists():
            continue
        rng = random.Random(11)
        with path.with_suffix(".partial").open("w") as file:
            if kind == "csv":
                file.write(",".join(["id", "label", *(f"x{number}" for number in range(8))]) + "\n")
            file.writelines(line(rng, number) + "\n" for number in range(_num_lines(size)))
        path.with_suffix(".partial").replace(path)


def _epochs(run: rounds.Run, epoch: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    return drive.epochs(epoch, _BATCH_SIZE, run.size.min_seconds)


def _read(run: rounds.Run, kind: str, **options: Any) -> dict[str, Any]:
    import penstock as ps

    open_them = {"txt": ps.read_text, "jsonl": ps.read_jsonl, "csv": ps.read_csv}[kind]
    dataset = open_them(_path(run, kind), **options).shuffle(seed=7)
    return _epochs(run, lambda: dataset.batch(_BATCH_SIZE, drop_remainder=True))


def penstock_text(run: rounds.Run) -> dict[str, Any]:
    """Read lines."""
    return _read(run, "txt")


def penstock_jsonl(run: rounds.Run) -> dict[str, Any]:
    """Read JSON values."""
    return _read(run, "jsonl")


def penstock_csv(run: rounds.Run) -> dict[str, Any]:
    """Read CSV records as text."""
    return _read(run, "csv")


def penstock_numbers(run: rounds.Run) -> dict[str, Any]:
    """Read CSV records as numbers, column by column."""
    columns = {"id": np.int64, "label": np.int32, **{f"x{number}": np.float32 for number in range(8)}}
    return _read(run, "csv", columns=columns)


def _seek(run: rounds.Run, kind: str, decode: Callable[[str], Any]) -> dict[str, Any]:
    """Seek to each line, in random order."""
    path, begins, begin = _path(run, kind), [], 0
    with open(path, "rb") as file:
        for line in file:
            begins.append(begin)
            begin += len(line)
    begins = begins[len(begins) % _BATCH_SIZE :]  # without the header of CSV

    def epoch() -> Iterator[list[Any]]:
        order = random.sample(begins, len(begins))
        with open(path, "rb") as file:
            for start in range(0, len(order), _BATCH_SIZE):
                batch = []
                for place in order[start : start + _BATCH_SIZE]:
                    file.seek(place)
                    batch.append(decode(file.readline().decode().rstrip("\n")))
                yield batch

    return _epochs(run, epoch)


def python_text(run: rounds.Run) -> dict[str, Any]:
    """Seek to lines."""
    return _seek(run, "txt", lambda line: {"text": line})


def python_jsonl(run: rounds.Run) -> dict[str, Any]:
    """Seek to JSON values."""
    return _seek(run, "jsonl", json.loads)


def python_csv(run: rounds.Run) -> dict[str, Any]:
    """Seek to CSV records."""
    names = ["id", "label", *(f"x{number}" for number in range(8))]
    return _seek(run, "csv", lambda line: dict(zip(names, next(csv.reader([line])), strict=True)))


def python_numbers(run: rounds.Run) -> dict[str, Any]:
    """Seek to CSV records and convert them."""

    def numbers(line: str) -> tuple[int, int, list[float]]:
        number, label, *rest = next(csv.reader([line]))
        return int(number), int(label), list(map(float, rest))

    return _seek(run, "csv", numbers)


def _arrow(run: rounds.Run, kind: str, builder: str) -> dict[str, Any]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import datasets
    except ImportError:
        raise rounds.Missing("datasets is not installed") from None
    datasets.disable_progress_bars()
    cache = str(run.root / "text" / "arrow")
    table = datasets.load_dataset(builder, data_files=_path(run, kind), split="train", cache_dir=cache)
    return _epochs(run, lambda: table.shuffle(keep_in_memory=True).iter(_BATCH_SIZE, drop_last_batch=True))


def datasets_text(run: rounds.Run) -> dict[str, Any]:
    """Shuffle an Arrow file of lines."""
    return _arrow(run, "txt", "text")


def datasets_jsonl(run: rounds.Run) -> dict[str, Any]:
    """Shuffle an Arrow file of JSON values."""
    return _arrow(run, "jsonl", "json")


def datasets_numbers(run: rounds.Run) -> dict[str, Any]:
    """Shuffle an Arrow file of CSV records."""
    return _arrow(run, "csv", "csv")


def pyarrow_numbers(run: rounds.Run) -> dict[str, Any]:
    """Take random rows of a table in memory."""
    from pyarrow import csv as arrow_csv

    table = arrow_csv.read_csv(_path(run, "csv"))

    def epoch() -> Iterator[dict[str, Any]]:
        order = np.random.default_rng().permutation(table.num_rows)
        for start in range(0, len(order), _BATCH_SIZE):
            part = table.take(order[start : start + _BATCH_SIZE])
            yield {name: part[name].to_numpy() for name in part.column_names}

    return _epochs(run, epoch)


def penstock_index(run: rounds.Run) -> dict[str, Any]:
    """Build the index of the text file, check sum included."""
    from penstock._storage import open_storage
    from penstock.sources.indexing import build
    from penstock.sources.text import TextLines

    storage = open_storage(_path(run, "txt"), "benchmark")
    return drive.epochs(lambda: [build(storage, 0, TextLines())], _num_lines(run.size), run.size.min_seconds)


def python_read(run: rounds.Run) -> dict[str, Any]:
    """Read the text file, 4 MiB at a time into one buffer."""
    buffer = bytearray(4 << 20)

    def epoch() -> Iterator[int]:
        with open(_path(run, "txt"), "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
        yield 1

    return drive.epochs(epoch, _num_lines(run.size), run.size.min_seconds)


_KINDS = ("text", "jsonl", "csv", "numbers")
CLAIM = rounds.Claim(
    name="text",
    title="random lines of text, JSON and CSV in batches of 256",
    unit="lines/s",
    prepare=_prepare,
    reference="python_text",
    references={
        "penstock_index": "python_read",
        **{f"{who}_{kind}": f"python_{kind}" for kind in _KINDS for who in ("penstock", "datasets", "pyarrow")},
    },
    targets=(
        *(rounds.Target(contestant=f"penstock_{kind}", metric="ratio", sense=">=", bound=1.0) for kind in _KINDS),
        rounds.Target(contestant="penstock_index", metric="ratio", sense=">=", bound=0.5),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "python_text": python_text,
            "penstock_text": penstock_text,
            "datasets_text": datasets_text,
            "python_jsonl": python_jsonl,
            "penstock_jsonl": penstock_jsonl,
            "datasets_jsonl": datasets_jsonl,
            "python_csv": python_csv,
            "penstock_csv": penstock_csv,
            "python_numbers": python_numbers,
            "penstock_numbers": penstock_numbers,
            "pyarrow_numbers": pyarrow_numbers,
            "datasets_numbers": datasets_numbers,
            "python_read": python_read,
            "penstock_index": penstock_index,
        },
    )
