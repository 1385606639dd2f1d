"""What a packed row costs one of many ranks, with measured lengths and without, what it takes to plan all rows, and to measure lengths."""

from __future__ import annotations

import json
import multiprocessing
import re
import resource
import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size

_ROW = 2048
_WARM = 4
"""Rows before the clock runs: what is compared is no start."""
_SEED = 3
_WORDS = re.compile(r"\w+|[^\w\s]")
_NUM_PROCESSES = 2


def _lengths(count: int) -> Any:
    return np.minimum(np.random.default_rng(_SEED).lognormal(5.5, 1.0, count).astype(np.int32) + 1, _ROW)


class _Documents:
    """Documents of log-normal length, made when they are asked for."""

    def __init__(self, count: int) -> None:
        self.lengths = _lengths(count)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": np.full(self.lengths[index], index, np.int32)}


def _length(element: dict[str, Any]) -> int:
    return len(element["tokens"])


def _count(size: Size) -> int:
    return max(100_000, size.num_integers // 10)


def _folder(count: int, root: Path) -> Path:
    return root / "known" / str(count)


def _prepare(size: Size, root: Path) -> None:
    import penstock as ps

    count = _count(size)
    ps.from_source(_Documents(count)).measure(_folder(count, root), num_workers=0, length=_length)
    path = _texts(size, root)
    if not path.exists():
        rng = np.random.default_rng(_SEED)
        words = ["".join(map(chr, rng.integers(97, 123, number))) + "," * int(number == 9) for number in rng.integers(1, 10, 50_000)]
        lengths = np.minimum(rng.lognormal(4, 0.8, size.num_integers // 10).astype(int) + 1, len(words) // 2)
        with path.open("w") as file:
            for begin, length in zip(rng.integers(0, len(words) // 2, len(lengths)), lengths, strict=True):
                file.write(json.dumps({"text": " ".join(words[begin : begin + length])}) + "\n")
    ps.read_jsonl(path)  # which makes the index


def _texts(size: Size, root: Path) -> Path:
    return root / "known" / f"texts-{size.num_integers // 10}.jsonl"


def _num_words(element: dict[str, Any]) -> int:
    return len(_WORDS.findall(element["text"]))


def _measured(run: rounds.Run) -> dict[str, Any]:
    import penstock as ps

    folder = run.root / "known" / "measured"
    shutil.rmtree(folder, ignore_errors=True)
    begin, cpu_s = time.perf_counter(), _cpu_s()
    ds = ps.read_jsonl(_texts(run.size, run.root))
    ds.measure(folder, length=_num_words, num_workers=_NUM_PROCESSES)
    return {"rate": len(ds) / (time.perf_counter() - begin), "cpu_us": (_cpu_s() - cpu_s) / len(ds) * 1e6}


def _cpu_s() -> float:
    """Return the CPU time of this process and of those that it has waited for: another load of the machine changes it little."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _bare(run: rounds.Run) -> dict[str, Any]:
    path, begin, cpu_s = _texts(run.size, run.root), time.perf_counter(), _cpu_s()
    borders = [path.stat().st_size * number // _NUM_PROCESSES for number in range(_NUM_PROCESSES + 1)]
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=_bare_part, args=(path, first, last)) for first, last in pairwise(borders)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
        assert job.exitcode == 0
    seconds = time.perf_counter() - begin
    count = sum(len(np.load(f"{path}-{first}.npy")) for first in borders[:-1])
    return {"rate": count / seconds, "cpu_us": (_cpu_s() - cpu_s) / count * 1e6}


def _bare_part(path: Path, first: int, last: int) -> None:
    """Count the words of the lines that begin in a part of a file, as anybody would write it."""
    numbers = []
    with path.open("rb") as file:
        file.seek(max(0, first - 1))
        if first:
            file.readline()
        while file.tell() < last and (line := file.readline()):
            numbers.append(_num_words(json.loads(line)))
    np.save(f"{path}-{first}.npy", np.array(numbers, np.int32))


def _known(run: rounds.Run) -> Any:
    import penstock as ps

    count = _count(run.size)
    return ps.from_source(_Documents(count)).measure(_folder(count, run.root))


def _stream(run: rounds.Run) -> Any:
    import penstock as ps

    return ps.from_source(_Documents(_count(run.size)))


def _rank(documents: Callable[[rounds.Run], Any], num_ranks: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        given, is_known = documents(run), documents is _known
        begin = time.perf_counter()
        dataset = given.pack_sequences(_ROW, by="length" if is_known else None)
        most = min(1024, (len(dataset) if is_known else _count(run.size) // 6) // num_ranks - _WARM)
        plan_ns = (time.perf_counter() - begin) / _count(run.size) * 1e9
        taken, seconds = 0, 0.0
        for rank in range(0, num_ranks, max(1, num_ranks // 8)):  # several, as one of many has few rows
            with dataset.shard_by_rank(rank=rank, num_ranks=num_ranks).feed(executor="inline") as feed:
                for _ in range(_WARM):
                    next(feed)
                start = time.perf_counter()
                taken += sum(1 for _, _ in zip(range(most), feed, strict=False))
                seconds += time.perf_counter() - start
        return {"rate": taken / seconds, "row_us": seconds / taken * 1e6, **({"plan_ns": plan_ns} if is_known else {})}

    return measure


_RANKS = (1, 8, 64, 1024)

CLAIM = rounds.Claim(
    name="known",
    title="rows of 2,048 tokens that one of many ranks gets, packed by measured lengths (known) and by a stream (stream); "
    "lines of JSON whose words two workers count (measure), and two bare processes (bare)",
    unit="rows/s",
    prepare=_prepare,
    reference="known_1",
    references={"stream_8": "stream_1", "measure": "bare"},
    also=("row_us", "plan_ns", "cpu_us"),
    targets=(
        rounds.Target(contestant="known_1024", metric="ratio", sense=">=", bound=0.91),
        rounds.Target(contestant="measure", metric="ratio", sense=">=", bound=0.9),
    ),
    timeout_s=900,
)

if __name__ == "__main__":
    ways = {f"known_{number}": _rank(_known, number) for number in _RANKS}
    rounds.main(CLAIM, {**ways, "stream_1": _rank(_stream, 1), "stream_8": _rank(_stream, 8), "measure": _measured, "bare": _bare})
