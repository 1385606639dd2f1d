"""Blocks of framed Examples, read, checked and parsed by one call, against the same by three; part of fuzz_kernels.py."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzz_examples import delimited, varint

__all__ = ["CASES", "frames", "stream_examples"]


def frames(rng: np.random.Generator, num: int) -> list[bytes]:
    """Make frames of Examples {"x": 3 floats, "y": int}, some with something wrong."""
    from penstock.formats.tfrecord import frame

    made = []
    for _ in range(num):
        values = rng.standard_normal(3 if rng.random() < 0.98 else 2).astype("<f4").tobytes()
        entries = [
            delimited(1, delimited(1, b"x") + delimited(2, delimited(2, delimited(1, values)))),
            delimited(1, delimited(1, b"y") + delimited(2, delimited(3, delimited(1, varint(int(rng.integers(0, 1 << 40))))))),
            delimited(1, delimited(1, b"other") + delimited(2, delimited(1, delimited(1, rng.bytes(int(rng.integers(0, 300))))))),
        ]
        one = bytearray(frame(delimited(1, b"".join(entries))))
        if rng.random() < 0.02:
            one[rng.integers(0, len(one))] ^= 1 << int(rng.integers(0, 8))
        made.append(bytes(one))
    return made


def stream_examples(library: Any, rng: np.random.Generator) -> None:
    """Compare how many are taken, and their columns; every array is an allocation of its own, and files are seen by maps or by reads."""
    from penstock.kernels import spans

    with tempfile.TemporaryDirectory() as folder:
        contents = [frames(rng, int(rng.integers(1, 200))) for _ in range(int(rng.integers(1, 4)))]
        paths = [os.path.join(folder, str(number)) for number in range(len(contents))]
        for path, records in zip(paths, contents, strict=True):
            with open(path, "wb") as file:
                file.write(b"".join(records))
        encoded = [os.fsencode(path) + b"\0" for path in paths]
        starts = np.cumsum([0, *map(len, encoded[:-1])]).astype(np.int64)
        files = spans.Files(b"".join(encoded), starts, np.array([spans.known_of(os.stat(path)) for path in paths], np.int64))
        descriptors = [os.open(path, os.O_RDONLY) for path in paths]
        try:
            for _ in range(8):
                _compare(library, rng, files, contents, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _compare(library: Any, rng: np.random.Generator, files: Any, contents: list[list[bytes]], descriptors: list[int]) -> None:
    from penstock.kernels import spans

    num = int(rng.integers(0, 300))
    of_file = rng.integers(0, len(contents), num)
    numbers = np.array([rng.integers(0, len(contents[file])) for file in of_file], np.int64)
    if rng.random() < 0.5:
        order = np.lexsort((numbers, of_file))
        of_file, numbers = of_file[order], numbers[order]
    begins = [np.cumsum([0, *map(len, records)]) for records in contents]
    offsets = np.array([begins[file][number] for file, number in zip(of_file, numbers, strict=True)], np.int64)
    lengths = np.array([len(contents[file][number]) for file, number in zip(of_file, numbers, strict=True)], np.int64)
    if num and rng.random() < 0.2:
        (offsets, lengths)[rng.integers(0, 2)][rng.integers(0, num)] = rng.choice([-1, -(2**63), 2**63 - 1, 2**62, 5])
    expected, wanted = _expected(files, of_file, offsets, lengths, contents)
    most_rows, most_bytes, gap = int(rng.integers(1, 80)), int(rng.integers(1, 5000)), int(rng.choice([0, 64, 4096]))
    room = max(most_bytes, 600) + most_rows * gap
    sizes = [int(size) for size in files.known[:, 0]]
    maps = [library.map_file(descriptor, size) for descriptor, size in zip(descriptors, sizes, strict=True)]
    sink = os.memfd_create("fuzz")
    try:
        os.ftruncate(sink, room)
        use_maps = rng.random() < 0.7
        out = np.frombuffer(mmap.mmap(sink, room), np.uint8) if use_maps else np.empty(room, np.uint8)
        opened = np.where(rng.random(num) < 0.9, np.array(descriptors)[of_file], -1).astype(np.int64)
        addresses = np.array(maps)[of_file].astype(np.int64) if use_maps else None
        block = spans.Spans(
            of_file.astype(np.int64), offsets, lengths, opened, addresses, sink if use_maps else -1, int(rng.integers(1, 40))
        )
        columns: list[NDArray[Any]] = [np.zeros((num, 3), np.float32), np.zeros(num, np.int64)]
        taker = _taker(library, columns)
        kept, facts = np.empty((int(rng.integers(0, 3)), 2), np.int64), np.zeros(spans.NUM_FACTS, np.int64)
        places = np.empty(most_rows, np.int64)
        done = library.stream_spans(files, block, gap, out, places, kept, facts, most_rows, most_bytes, taker.address, taker.context)
        for _, descriptor in kept[: facts[6]].tolist():
            os.close(descriptor)
    finally:
        os.close(sink)
        for address, size in zip(maps, sizes, strict=True):
            library.unmap_file(address, size)
    # A span outside its file ends all of its piece.
    inside = (offsets >= 0) & (lengths >= 0) & (offsets <= np.array(sizes)[of_file] - lengths)
    if (
        done > expected
        or (done < expected and inside.all())
        or any(column[:done].tobytes() != other[:done].tobytes() for column, other in zip(columns, wanted, strict=True))
    ):
        raise AssertionError(f"{done} were taken, {expected} are good: pieces of {most_rows} rows, {most_bytes} bytes, gap {gap}")


def _expected(files: Any, of_file: Any, offsets: Any, lengths: Any, contents: list[list[bytes]]) -> tuple[int, list[NDArray[Any]]]:
    """Return how many records are good from the first on, and their columns."""
    from penstock.kernels.examples import parse_examples
    from penstock.kernels.framing import check_frames

    columns: list[NDArray[Any]] = [np.zeros((len(offsets), 3), np.float32), np.zeros(len(offsets), np.int64)]
    whole = [b"".join(records) for records in contents]
    for row, (file, offset, length) in enumerate(zip(of_file, offsets.tolist(), lengths.tolist(), strict=True)):
        if offset < 0 or length < 0 or offset + length > len(whole[file]):
            return row, columns
        data = np.frombuffer(whole[file][offset : offset + length] or b"\0", np.uint8)
        start, size = np.zeros(1, np.int64), np.array([length])
        if check_frames(data, start, size) is not None:
            return row, columns
        own = [columns[0][row : row + 1], columns[1][row : row + 1]]
        if parse_examples(data, start + 12, size - 16, _plan(), own) is not None:
            return row, columns
    return len(offsets), columns


def _plan() -> Any:
    from penstock.kernels.examples import FIXED, FeaturePlan, make_plan
    from penstock.kernels.wire import FLOAT, INT64

    return make_plan([FeaturePlan(b"x", FLOAT, FIXED, 3, None), FeaturePlan(b"y", INT64, FIXED, 1, None)])


def _taker(library: Any, columns: list[NDArray[Any]]) -> Any:
    from penstock.kernels.examples import taker_of

    return taker_of(library, _plan(), columns, check_data=True)


CASES = [stream_examples]
