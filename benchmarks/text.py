"""Lines of text, JSON and CSV in a new random order each epoch, in batches of 256; and what it costs to find the lines.

What people do today: plain Python in one thread that reads each line with one call of the system (`os.pread`; it knows where the lines
begin and how long they are), Hugging Face datasets (which converts files to Arrow first, off the clock), and pyarrow for numbers of CSV
(which holds them in memory). Penstock with one worker is held against the one thread (`penstock_*_1`); `penstock_*` has its default
workers. Its index is built before the clock. Every line of an epoch is compared with the file before the clock.
"""

from __future__ import annotations

import csv
import itertools
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
    return size.num_integers // 25 // _BATCH_SIZE * _BATCH_SIZE


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


_COLUMNS = ("id", "label", *(f"x{number}" for number in range(8)))


def _epochs(run: rounds.Run, kind: str, epoch: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    """Measure epochs, after one of which each row is compared with the file."""
    expected = {_key(kind, row): row for row in _rows(run, kind)}

    def check(batches: Iterable[Any]) -> None:
        seen = set()
        for row in itertools.chain.from_iterable(map(_of_batch, batches)):
            key = _key(kind, row)
            wanted = expected[key]
            assert row.keys() == wanted.keys(), f"{row} is not {wanted}"
            assert all(_same(value, wanted[name]) for name, value in row.items()), f"{row} is not {wanted}"
            seen.add(key)
        assert len(seen) == len(expected), f"an epoch has {len(seen)} of {len(expected)} lines"
        expected.clear()  # or the collector looks at them all on the clock

    result = drive.epochs(epoch, _BATCH_SIZE, run.size.min_seconds, check)
    del result["batch"]  # lists, arrays of objects and columns, by contestant: their rows have been compared
    return result


def _rows(run: rounds.Run, kind: str) -> Iterator[dict[str, Any]]:
    """Read a file as Python's own modules do."""
    with open(_path(run, _FILES[kind]), newline="") as file:
        match kind:
            case "text":
                yield from ({"text": line.rstrip("\n")} for line in file)
            case "jsonl":
                yield from map(json.loads, file)
            case "csv":
                yield from csv.DictReader(file)
            case _:
                yield from ({name: float(text) for name, text in row.items()} for row in csv.DictReader(file))


def _key(kind: str, row: dict[str, Any]) -> Any:
    return row["text"] if kind == "text" else int(row["id"])


def _of_batch(batch: Any) -> Iterable[dict[str, Any]]:
    if isinstance(batch, list):
        return batch
    return (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return bool(value == wanted)
    return bool(abs(float(value) - wanted) <= 1e-6 * max(1.0, abs(wanted)))  # float32 and float64


def _read(kind: str, num_workers: int | None = None) -> Callable[[rounds.Run], dict[str, Any]]:
    """Read lines, JSON values, CSV records as text, or their numbers column by column."""

    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        path = _path(run, _FILES[kind])
        if kind == "numbers":
            columns = {"id": np.int64, "label": np.int32, **dict.fromkeys(_COLUMNS[2:], np.float32)}
            dataset = ps.read_csv(path, columns=columns)
        else:
            dataset = {"text": ps.read_text, "jsonl": ps.read_jsonl, "csv": ps.read_csv}[kind](path)
        batches = dataset.shuffle(seed=7).batch(_BATCH_SIZE, drop_remainder=True)
        if num_workers is not None:
            batches = batches.with_options(executor="threads", num_workers=num_workers)
        return _epochs(run, kind, lambda: batches)

    return measure


def _python(kind: str) -> Callable[[rounds.Run], dict[str, Any]]:
    """Read each line with one call, in random order, and decode it."""

    def measure(run: rounds.Run) -> dict[str, Any]:
        path, spans, begin = _path(run, _FILES[kind]), [], 0
        with open(path, "rb") as file:
            for line in file:
                spans.append((begin, len(line)))
                begin += len(line)
        spans = spans[len(spans) % _BATCH_SIZE :]  # without the header of CSV
        decode = _DECODERS[kind]

        def epoch() -> Iterator[list[Any]]:
            order = random.sample(spans, len(spans))
            with open(path, "rb", buffering=0) as file:
                descriptor, pread = file.fileno(), os.pread
                for start in range(0, len(order), _BATCH_SIZE):
                    yield [decode(pread(descriptor, length - 1, place)) for place, length in order[start : start + _BATCH_SIZE]]

        return _epochs(run, kind, epoch)

    return measure


def _csv_text(line: bytes) -> dict[str, Any]:
    return dict(zip(_COLUMNS, next(csv.reader([line.decode()])), strict=True))


def _csv_numbers(line: bytes) -> dict[str, Any]:
    number, label, *rest = next(csv.reader([line.decode()]))
    return dict(zip(_COLUMNS, (int(number), int(label), *map(float, rest)), strict=True))


_FILES = {"text": "txt", "jsonl": "jsonl", "csv": "csv", "numbers": "csv"}
_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "text": lambda line: {"text": line.decode()},
    "jsonl": json.loads,
    "csv": _csv_text,
    "numbers": _csv_numbers,
}


def _arrow(kind: str, builder: str) -> Callable[[rounds.Run], dict[str, Any]]:
    """Shuffle an Arrow file of lines, JSON values or CSV records."""

    def measure(run: rounds.Run) -> dict[str, Any]:
        os.environ["HF_HUB_OFFLINE"] = "1"
        try:
            import datasets
        except ImportError:
            raise rounds.Missing("datasets is not installed") from None
        datasets.disable_progress_bars()
        cache = str(run.root / "text" / "arrow")
        table = datasets.load_dataset(builder, data_files=_path(run, _FILES[kind]), split="train", cache_dir=cache)
        return _epochs(run, kind, lambda: table.shuffle(keep_in_memory=True).iter(_BATCH_SIZE, drop_last_batch=True))

    return measure


def pyarrow_numbers(run: rounds.Run) -> dict[str, Any]:
    """Take random rows of a table in memory, of one chunk: a take from several first looks for the chunk of each row."""
    try:
        from pyarrow import csv as arrow_csv
    except ImportError:
        raise rounds.Missing("pyarrow is not installed") from None

    table = arrow_csv.read_csv(_path(run, "csv")).combine_chunks()

    def epoch() -> Iterator[dict[str, Any]]:
        order = np.random.default_rng().permutation(table.num_rows)
        for start in range(0, len(order), _BATCH_SIZE):
            part = table.take(order[start : start + _BATCH_SIZE])
            yield {name: part[name].to_numpy() for name in part.column_names}

    return _epochs(run, "numbers", epoch)


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
_CONTESTANTS: dict[str, Callable[[rounds.Run], dict[str, Any]]] = {
    f"{who}_{kind}{end}": measure
    for kind in _KINDS
    for who, end, measure in (
        ("python", "", _python(kind)),
        ("penstock", "_1", _read(kind, 1)),
        ("penstock", "", _read(kind)),
    )
} | {
    "datasets_text": _arrow("text", "text"),
    "datasets_jsonl": _arrow("jsonl", "json"),
    "datasets_numbers": _arrow("numbers", "csv"),
    "pyarrow_numbers": pyarrow_numbers,
    "python_read": python_read,
    "penstock_index": penstock_index,
}

CLAIM = rounds.Claim(
    name="text",
    title="random lines of text, JSON and CSV in batches of 256",
    unit="lines/s",
    prepare=_prepare,
    reference="python_text",
    references={
        **{name: f"python_{kind}" for name in _CONTESTANTS for kind in _KINDS if kind in name},
        **dict.fromkeys(("penstock_index", "python_read"), "python_read"),
    },
    targets=(
        *(rounds.Target(contestant=f"penstock_{kind}_1", metric="ratio", sense=">=", bound=1.0) for kind in _KINDS),
        rounds.Target(contestant="penstock_index", metric="ratio", sense=">=", bound=0.5),
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, _CONTESTANTS)
