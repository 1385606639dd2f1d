"""JSON lines tokenised with a regular expression and packed as token files by two workers, beside two bare processes.

Each bare process reads the lines of its half of the file, does the same with them, and writes the tokens through a buffer to a file that it
syncs. Both clocks run from the call to the last synced file; that of Penstock has the start of its workers, the sample, the hashes and the
manifest on it. A fork server that has imported the packages runs before, as bare processes are forked. The index of the lines is built
before the clock. `megatron` also writes the index of the documents. What was packed is compared with the files of the bare processes.
`tokens_per_cpu_s` counts the CPU time of all processes: other programs on the machine change it less than the rate.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import random
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
import rounds
from data import Size
from numpy.typing import NDArray

_WORKERS = 2
_NUM_WORDS = 20_000
_PIECES = re.compile(r"\w+|[^\w\s]")
_FILE_BYTES = 1 << 20


def _prepare(size: Size, root: Path) -> None:
    """Write documents of 20 to 980 words, 500 in the mean."""
    path = _path(size, root)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    rng, left = random.Random(5), size.num_tokens // 10
    with path.with_suffix(".partial").open("w") as file:
        while left > 0:
            words = [f"word{number}" for number in rng.choices(range(_NUM_WORDS), k=rng.randrange(20, 981))]
            file.write(json.dumps({"text": ", ".join(words)}) + "\n")
            left -= 2 * len(words)
    path.with_suffix(".partial").replace(path)


def _path(size: Size, root: Path) -> Path:
    return root / "tokenise" / f"{size.num_tokens // 10}.jsonl"


@functools.cache
def _vocabulary() -> dict[str, int]:
    return {",": 1, **{f"word{number}": number + 2 for number in range(_NUM_WORDS)}}


def tokenise(element: dict[str, Any]) -> NDArray[np.uint16]:
    """Return the tokens of a document."""
    vocabulary = _vocabulary()
    return np.array([vocabulary.get(piece, 0) for piece in _PIECES.findall(element["text"])], np.uint16)


def _bare_half(path: Path, begin: int, end: int, out: Path) -> None:
    machine.die_with_parent()
    with path.open("rb") as lines, out.open("wb", buffering=_FILE_BYTES) as file:
        lines.seek(begin)
        while lines.tell() < end:
            file.write(tokenise(json.loads(lines.readline())).data)
        file.flush()
        os.fsync(file.fileno())


def _halves(path: Path) -> list[tuple[int, int]]:
    """Return where the halves of a file begin and end, each of whole lines."""
    with path.open("rb") as file:
        file.seek(path.stat().st_size // 2)
        file.readline()
        return [(0, file.tell()), (file.tell(), path.stat().st_size)]


def _bare(path: Path, folder: Path) -> list[Path]:
    context = multiprocessing.get_context("fork")
    outs = [folder / f"{number}.bin" for number in range(_WORKERS)]
    halves = zip(_halves(path), outs, strict=True)
    workers = [context.Process(target=_bare_half, args=(path, begin, end, out)) for (begin, end), out in halves]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)
    return outs


def _pack(fmt: str) -> Callable[[Path, Path], list[Path]]:
    def pack(path: Path, folder: Path) -> list[Path]:
        import penstock as ps

        dataset = ps.read_jsonl(path).map(tokenise)
        options: dict[str, Any] = {"format": fmt, "num_workers": _WORKERS, "num_shards": 4 * _WORKERS}
        return [*map(Path, ps.pack(dataset, folder / "out", **options).files())]

    return pack


def _measured(write: Callable[[Path, Path], list[Path]]) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        path = _path(run.size, run.root)
        path.read_bytes()
        if write is not _bare:
            import penstock as ps

            len(ps.read_jsonl(path))
            multiprocessing.set_forkserver_preload(["__main__", "penstock.packing", "penstock.feed", "penstock.sources"])
            process = multiprocessing.get_context("forkserver").Process(target=time.time)
            process.start()
            process.join()
        with tempfile.TemporaryDirectory(dir=run.root) as name:
            begun, used_s = time.perf_counter(), machine.session_cpu_s(os.getsid(0))
            files = write(path, Path(name))
            seconds, cpu_s = time.perf_counter() - begun, machine.session_cpu_s(os.getsid(0)) - used_s
            found = b"".join(file.read_bytes() for file in files)
            if write is not _bare:
                (Path(name) / "bare").mkdir()
                assert found == b"".join(file.read_bytes() for file in _bare(path, Path(name) / "bare"))
        return {"rate": len(found) / 2 / seconds, "seconds": seconds, "tokens_per_cpu_s": len(found) / 2 / cpu_s}

    return measure


CLAIM = rounds.Claim(
    name="tokenise",
    title="JSON lines tokenised with a regular expression and packed as token files by two workers",
    unit="tokens/s",
    prepare=_prepare,
    reference="bare",
    also=("tokens_per_cpu_s",),
    targets=tuple(rounds.Target(contestant=name, metric="ratio", sense=">=", bound=0.9) for name in ("tokens", "megatron")),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"bare": _measured(_bare), "tokens": _measured(_pack("tokens")), "megatron": _measured(_pack("megatron"))})
