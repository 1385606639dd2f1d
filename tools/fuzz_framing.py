"""Random, cut and damaged TFRecord frames for the kernels in C and their twins; part of fuzz_kernels.py."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CASES", "check_frames", "crc32c", "damaged_file", "find_frame", "scan_frames"]


def damaged_file(rng: np.random.Generator) -> NDArray[np.uint8]:
    """Make a file of some records in an allocation of its own: whole, cut, with a wrong byte, zeros or garbage, or a huge length."""
    from penstock.kernels import framing as twin
    from penstock.kernels.framing import masked

    def crc(data: bytes) -> bytes:
        return struct.pack("<I", masked(twin.crc32c_twin(data, len(data), 0)))

    parts = []
    for _ in range(rng.integers(0, 6)):
        data = rng.bytes((0, 1, 3, int(rng.integers(0, 400)))[rng.integers(0, 4)])
        length = struct.pack("<Q", len(data) if rng.random() < 0.95 else int(rng.integers(0, 2**63)) >> int(rng.integers(0, 63)))
        parts.append(length + crc(length) + data + crc(data))
    file = b"".join(parts)
    match rng.integers(0, 5):
        case 0:
            file = file[: int(rng.integers(0, len(file) + 1))]
        case 1:
            file += bytes(int(rng.integers(1, 30)))
        case 2:
            file += rng.bytes(int(rng.integers(1, 30)))
        case 3 if file:
            place = int(rng.integers(0, len(file)))
            file = file[:place] + bytes([file[place] ^ 1 << int(rng.integers(0, 8))]) + file[place + 1 :]
    return np.frombuffer(file, np.uint8).copy()


def crc32c(library: Any, rng: np.random.Generator) -> None:
    """Compare check sums of data at any alignment, up to the edge."""
    from penstock.kernels import framing as twin

    size = int(rng.choice([rng.integers(0, 40), rng.integers(0, 800), rng.integers(3000, 3200), rng.integers(0, 9000)]))
    data = np.frombuffer(rng.bytes(size), np.uint8).copy()[int(rng.integers(0, 9)) :]
    value = int(rng.integers(0, 2**32))
    if library.crc32c(data, data.size, value) != twin.crc32c_twin(data, data.size, value):
        raise AssertionError(f"C and NumPy have different check sums: {size}, {value}")


def scan_frames(library: Any, rng: np.random.Generator) -> None:
    """Compare what is found in a piece of a file."""
    from penstock.kernels import framing as twin

    data = damaged_file(rng)
    left = (data.size, data.size + int(rng.integers(0, 99)), 2**63 - 1)[rng.integers(0, 3)]
    limit = 2**63 - 1 if rng.random() < 0.5 else int(rng.integers(0, 200))
    bounds = (left, limit, int(rng.integers(0, 3)), int(rng.integers(0, 2**40)))
    capacity, results = int(rng.integers(0, 8)), []
    for version in (library.scan_frames, twin.scan_frames_twin):
        arrays = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(3, np.int64)
        results.append((version(data, bounds, *arrays), *(array.tolist() for array in arrays)))
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy find different frames: {results}, {bounds}, {data.tobytes()!r}")


def find_frame(library: Any, rng: np.random.Generator) -> None:
    """Compare where a frame may begin behind any place."""
    from penstock.kernels import framing as twin

    data = damaged_file(rng)
    start = int(rng.integers(0, data.size + 1))
    left = (data.size, data.size + int(rng.integers(0, 99)), 2**63 - 1)[rng.integers(0, 3)]
    ours, other = library.find_frame(data, start, left), twin.find_frame_twin(data, start, left)
    if ours != other:
        raise AssertionError(f"C and NumPy find different places: {ours}, {other}, {start}, {left}, {data.tobytes()!r}")


def check_frames(library: Any, rng: np.random.Generator) -> None:
    """Compare verdicts on spans, among them some that are no frames or lie outside."""
    from penstock.kernels import framing as twin

    data = damaged_file(rng)
    starts, lengths = np.zeros(9, np.int64), np.zeros(9, np.int64)
    count = twin.scan_frames_twin(data, (2**63 - 1, 2**63 - 1, 0, 0), starts, lengths, np.zeros(3, np.int64))
    if rng.random() < 0.5:
        starts[count], lengths[count] = rng.integers(-3, data.size + 3), rng.integers(-3, data.size + 3)
        count += 1
    if rng.random() < 0.2:
        (starts if rng.random() < 0.5 else lengths)[rng.integers(0, 9)] = rng.choice([2**63 - 1, -(2**63), 2**63 - 9])
    starts, lengths, check_data = starts[:count].copy(), lengths[:count].copy(), bool(rng.random() < 0.7)
    results = []
    for version in (library.check_frames, twin.check_frames_twin):
        statuses = np.zeros(count, np.uint8)
        results.append((version(data, starts, lengths, check_data, statuses), statuses.tolist()))
    if results[0] != results[1]:
        raise AssertionError(f"C and NumPy judge frames differently: {results}, {starts}, {lengths}, {data.tobytes()!r}")


CASES: list[Callable[[Any, np.random.Generator], None]] = [crc32c, scan_frames, find_frame, check_frames]
