"""Whole files, spans of files and look-ups of records, good and bad, for the kernels in C and the twin; part of fuzz_kernels.py."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CASES", "look_up", "read_file", "read_spans"]

_SIZES = (0, 1, 100, 5000, 70_000)


def read_file(library: Any, rng: np.random.Generator) -> None:
    """Read whole files, empty, missing and no files too, into buffers that hold them just so, or not."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a")
        for size in _SIZES:
            data = rng.bytes(size)
            with open(path, "wb") as file:
                file.write(data)
            for capacity in {0, 1, size, size + 1, size + 2, int(rng.integers(0, 2 * size + 2))}:
                buffer = np.zeros(capacity, np.uint8)
                expected = -1 if size == 0 else -2 - size if size >= capacity else size
                if library.read_file(os.fsencode(path), buffer) != expected or (expected > 0 and buffer[:size].tobytes() != data):
                    raise AssertionError(f"{size} bytes are not read as they are into {capacity}")
        for other in (folder, path + "x", ""):
            if library.read_file(os.fsencode(other), np.zeros(9, np.uint8)) != -1:
                raise AssertionError(f"{other!r} is read as a file")


def read_spans(library: Any, rng: np.random.Generator) -> None:
    """Compare bytes, places and verdicts; every array is an allocation of its own, no byte longer than it must be."""
    from penstock.kernels import spans

    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, str(number)) for number in range(len(_SIZES))]
        for path, size in zip(paths, _SIZES, strict=True):
            with open(path, "wb") as file:
                file.write(rng.bytes(size))
        encoded = [os.fsencode(path) + b"\0" for path in paths]
        starts = np.cumsum([0, *map(len, encoded[:-1])]).astype(np.int64)
        known = np.array([spans.known_of(os.stat(path)) for path in paths], np.int64)
        if rng.random() < 0.1:
            known[rng.integers(0, len(paths)), rng.integers(0, 3)] += 1
        files = spans.Files(b"".join(encoded), starts, known)
        for _ in range(20):
            _compare(library.read_spans, spans.read_spans_twin, files, rng)


def _compare(one: Callable[..., int], other: Callable[..., int], files: Any, rng: np.random.Generator) -> None:
    from penstock.kernels import spans

    files_of, offsets, lengths, descriptors = _rows(rng)
    block = spans.Spans(files_of, offsets, lengths, descriptors)
    gap, most_kept = int(rng.choice([0, 1, 64, 4096])), int(rng.integers(0, 4))
    room = int(np.clip(block.lengths, 0, 1 << 20).sum()) + gap * block.files.size
    if rng.random() < 0.1:
        room = int(rng.integers(0, room + 1))
    results = [_call(read, files, block, gap, room, most_kept) for read in (one, other)]
    if results[0] != results[1]:
        raise AssertionError(f"C and Python read spans differently: {block} {gap} {room}: {results[0][:3]} {results[1][:3]}")


def _call(read: Callable[..., int], files: Any, block: Any, gap: int, room: int, most_kept: int) -> tuple[Any, ...]:
    from penstock.kernels.spans import NUM_FACTS

    out, begins = np.zeros(room, np.uint8), np.zeros(block.files.size, np.int64)
    kept, facts = np.zeros((most_kept, 2), np.int64), np.zeros(NUM_FACTS, np.int64)
    problem = read(files, block, gap, out, begins, kept, facts)
    for _, descriptor in kept[: facts[6]].tolist():
        os.close(descriptor)
    told = (problem, facts[1], facts[2], kept[: facts[6], 0].tolist())
    return told if problem else (*told, begins.tolist(), out[: facts[7]].tobytes())


def _rows(rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Draw spans: in order or not, near each other or not, now and then one outside its file."""
    num = (0, 1, 2, int(rng.integers(0, 40)), int(rng.integers(200, 300)))[rng.integers(0, 5)]
    files = rng.integers(0, len(_SIZES), num)
    sizes = np.array(_SIZES)[files]
    offsets = (rng.random(num) * (sizes + 1)).astype(np.int64)
    lengths = (rng.random(num) ** 4 * (sizes - offsets + 1)).astype(np.int64)
    if rng.random() < 0.5:
        order = np.lexsort((offsets, files))
        files, offsets, lengths = files[order], offsets[order], lengths[order]
    if num and rng.random() < 0.15:
        row, huge = int(rng.integers(0, num)), int(rng.choice([-1, -(2**63), 2**63 - 1, 2**62, 6]))
        (files, offsets, lengths)[rng.integers(0, 3)][row] = huge
    return [values.astype(np.int64) for values in (files, offsets, lengths, np.full(num, -1))]


def look_up(library: Any, rng: np.random.Generator) -> None:
    """Compare where records lie, with tables of both widths, files without records, and numbers of records that are not there."""
    from penstock.kernels.spans import Places, by_twin

    starts = np.concatenate(([0], np.cumsum(rng.integers(0, 4, rng.integers(1, 40)))))
    columns = (rng.integers(0, 2**32, starts[-1]).astype(("u4", "i8")[rng.integers(0, 2)]) for _ in range(2))
    places = Places(starts, *columns)
    rows = rng.integers(0, max(1, int(starts[-1])), rng.integers(0, 60))
    if rows.size and rng.random() < 0.2:
        rows[rng.integers(0, rows.size)] = rng.choice([-1, -(2**63), 2**63 - 1, starts[-1]])
    results = [(find(places, rows, out := np.zeros((3, rows.size), np.int64)), out.tolist()) for find in (library.look_up, by_twin)]
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy look records up differently: {starts} {rows}: {results}")


CASES: list[Callable[[Any, np.random.Generator], None]] = [read_file, read_spans, look_up]
