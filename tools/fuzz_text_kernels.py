"""The cases of `fuzz_kernels.py` for windows of tokens, lines and CSV records."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable

import numpy as np

__all__ = ["CASES"]


def find_lines(library: ctypes.CDLL, rng: np.random.Generator) -> None:
    """Compare the ends of lines of a random text with room for some of them."""
    from penstock.kernels import lines, lines_twin

    data, capacity = text(rng, "\n\n\naaaaaaaaaaaa"), int(rng.choice([0, 1, 63, 64, 65, 500]))
    results = []
    for version in (lines.NativeLines(library), lines_twin):
        ends = np.zeros(capacity, np.int64)
        found, consumed = version.find_lines(data, 7, ends)
        results.append((found, consumed, ends[:found].tolist()))
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy differ: {data.tobytes()!r}, {capacity}: {results}")


def find_records(library: ctypes.CDLL, rng: np.random.Generator) -> None:
    """Compare the ends of records of a random CSV text that begins anywhere."""
    from penstock.kernels import lines, lines_twin

    data, capacity, state = text(rng, '\n,"aaaa'), int(rng.choice([0, 1, 63, 64, 65, 500])), int(rng.integers(0, 4))
    results = []
    for version in (lines.NativeLines(library), lines_twin):
        ends = np.zeros(capacity, np.int64)
        found, consumed, after = version.find_records(data, 7, ord(","), ord('"'), state, ends)
        results.append((found, consumed, after, ends[:found].tolist()))
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


def read_windows(library: ctypes.CDLL, rng: np.random.Generator) -> None:
    """Compare windows of tokens of a file, some of which lie behind its end or hold tokens that are too large."""
    from penstock.kernels import tokens, tokens_twin

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
        for function in (tokens.native(library), tokens_twin.read_windows):
            out, report = np.zeros((num, length), np.int64), np.zeros(2, np.int64)
            row = function(descriptors, offsets, dtype, bound, out, report)
            results.append((row, report.tolist(), out[: num if row < 0 else row].tobytes()))
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy differ: {dtype}, {length}, {offsets}, {bound}: {[result[:2] for result in results]}")


CASES: list[Callable[[ctypes.CDLL, np.random.Generator], None]] = [find_lines, find_records, read_windows]
