"""The cases of `fuzz_kernels.py` for windows of tokens, lines, CSV records and rows of tables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CASES"]


def find_lines(library: Any, rng: np.random.Generator) -> None:
    """Compare the ends of lines of a random text with room for some of them."""
    from penstock.kernels import lines

    data, capacity = text(rng, "\n\n\naaaaaaaaaaaa"), int(rng.choice([0, 1, 63, 64, 65, 500]))
    results = []
    for function in (library.find_lines, lines.find_lines_twin):
        ends, done = np.zeros(capacity, np.int64), np.zeros(1, np.int64)
        found = function(data, 7, ends, done)
        results.append((found, done.tolist(), ends[:found].tolist()))
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy differ: {data.tobytes()!r}, {capacity}: {results}")


def find_records(library: Any, rng: np.random.Generator) -> None:
    """Compare the ends of records of a random CSV text that begins anywhere."""
    from penstock.kernels import lines

    data, capacity, state = text(rng, '\n,"aaaa'), int(rng.choice([0, 1, 63, 64, 65, 500])), int(rng.integers(0, 4))
    results = []
    for function in (library.find_records, lines.find_records_twin):
        ends, after, done = np.zeros(capacity, np.int64), np.array([state]), np.zeros(1, np.int64)
        found = function(data, 7, (ord(","), ord('"')), ends, after, done)
        results.append((found, done.tolist(), after.tolist(), ends[:found].tolist()))
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy differ: {data.tobytes()!r}, {capacity}, {state}: {results}")


def text(rng: np.random.Generator, letters: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Draw a text in an allocation of its own, some of it in runs of one letter."""
    size = int(rng.choice([0, 1, 63, 64, 65, 127, 128, 129, int(rng.integers(0, 700))]))
    choices = np.frombuffer(letters.encode(), np.uint8)
    data = rng.choice(choices, size)
    if size and rng.random() < 0.5:
        start = int(rng.integers(0, size))
        data[start : start + int(rng.integers(0, 200))] = rng.choice(choices)
    return data


def read_windows(library: Any, rng: np.random.Generator) -> None:
    """Compare windows of tokens of a file, some of which lie behind its end or hold tokens that are too large."""
    from penstock.kernels import tokens

    dtype = np.dtype(str(rng.choice(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])))
    length, num = int(rng.choice([0, 1, 5, 33, 4096, 32_768, 40_000])), int(rng.integers(0, 5))
    bound = int(rng.choice([0, 0, 1, 200, 256, 2**15, 2**40]))
    with tempfile.TemporaryFile() as file:
        file.write(rng.integers(0, rng.choice([1, 100, 256]), int(rng.integers(0, 90_000)), dtype=np.uint8).tobytes())
        file.flush()
        size = os.fstat(file.fileno()).st_size
        offsets = rng.integers(0, max(1, size - length * dtype.itemsize if rng.random() < 0.7 else size), num)
        descriptors = np.full(num, file.fileno(), np.int32)
        results = []
        for function in (library.read_windows, tokens.read_windows_twin):
            out, report = np.zeros((num, length), np.int64), np.zeros(2, np.int64)
            row = function(descriptors, offsets, dtype, bound, out, report)
            results.append((row, report.tolist(), out[: num if row < 0 else row].tobytes()))
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy differ: {dtype}, {length}, {offsets}, {bound}: {[result[:2] for result in results]}")


def gather_columns(library: Any, rng: np.random.Generator) -> None:
    """Compare rows of random tables, in runs and not, some of which are not there."""
    from penstock.kernels import columns

    kinds = [(np.dtype(str(rng.choice(["u1", "i2", "f4", "i8", "c16"]))), int(rng.integers(0, 4))) for _ in range(rng.integers(1, 5))]
    sizes = rng.integers(0, 400, rng.integers(1, 5)).tolist()
    tables = [
        columns.ColumnTable([np.frombuffer(rng.bytes(size * width * kind.itemsize), kind).reshape(size, width) for kind, width in kinds])
        for size in sizes
    ]
    num = int(rng.choice([0, 1, 255, 256, 257, 700]))
    which = rng.integers(0, len(sizes), num) if rng.random() < 0.5 else np.full(num, rng.integers(0, len(sizes)))
    rows = (rng.integers(0, 400) + np.arange(num)) % max(1, min(sizes)) if rng.random() < 0.5 else rng.integers(0, max(1, min(sizes)), num)
    if num and rng.random() < 0.3:
        (which if rng.random() < 0.5 else rows)[rng.integers(0, num)] = rng.choice([-1, 400, 2**63 - 1, -(2**63)])
    room = num + int(rng.integers(0, 3))
    places = rng.permutation(room)[:num] if rng.random() < 0.5 else None
    if places is not None and num and rng.random() < 0.2:
        places[-1] = rng.choice([-1, room, 2**63 - 1])
    results = []
    for function in (library.gather_columns, columns.by_twin):
        out = [np.zeros((room, width), kind) for kind, width in kinds]
        results.append((function(tables, which, rows, places, out), [array.tobytes() for array in out]))
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy differ: {kinds}, {sizes}, {num}: {[result[0] for result in results]}")


CASES: list[Callable[[Any, np.random.Generator], None]] = [find_lines, find_records, read_windows, gather_columns]
