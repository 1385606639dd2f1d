"""Random, cut and damaged tar files for the kernels in C and their twins; part of fuzz_kernels.py."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CASES", "damaged_archive", "scan_pieces", "scan_samples"]

_UNIT = 512
_BYTES = (0, 32, 46, 47, 48, 55, 56, 76, 75, 83, 103, 120, 0x80, 0xFF)


def damaged_archive(rng: np.random.Generator) -> NDArray[np.uint8]:
    """Make a small archive in an allocation of its own, mostly with wrong bytes behind good check sums, or cut."""
    file = bytearray(_archive(rng))
    for _ in range(int(rng.choice([0, 0, 1, 2, 4]))):
        block = int(rng.integers(0, len(file) // _UNIT)) * _UNIT
        place = int(rng.choice([0, 100, 124, 135, 156, 257, 345, *rng.integers(0, _UNIT, 7)]))
        file[block + place] = int(rng.choice(_BYTES)) if rng.random() < 0.7 else int(rng.integers(0, 256))
        if rng.random() < 0.8:
            _mend(file, block)
    if rng.random() < 0.2:
        del file[int(rng.integers(0, len(file))) :]
    return np.frombuffer(bytes(file), np.uint8).copy()


def _archive(rng: np.random.Generator) -> bytes:
    out = io.BytesIO()
    style = int(rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    with tarfile.open(fileobj=out, mode="w", format=style) as archive:
        for number in range(int(rng.integers(0, 6))):
            folder = "" if rng.random() < 0.4 else "d" * int(rng.choice([1, 90, 98, 99, 100, 153])) + "/"
            if style != tarfile.USTAR_FORMAT and rng.random() < 0.2:
                folder += "é" * 120 + "/"
            for field in rng.choice(["jpg", "JPG", "cls", "a.b", "", "json"], int(rng.integers(0, 4))):
                data = rng.bytes(int(rng.choice([0, 1, 511, 512, 513, int(rng.integers(0, 3000))])))
                info = tarfile.TarInfo(f"{folder}{number // 2}.{field}" if rng.random() < 0.95 else f"{folder}.x")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            if rng.random() < 0.2:
                info = tarfile.TarInfo(str(rng.choice(["dir", "__meta__", "a.link"])))
                info.type = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)[rng.integers(0, 5)]
                archive.addfile(info)
    return out.getvalue()


def _mend(file: bytearray, block: int) -> None:
    """Give a block the check sum of a header."""
    head = file[block : block + 148] + b" " * 8 + file[block + 156 : block + _UNIT]
    file[block + 148 : block + 156] = b"%06o\0 " % (sum(head) & 0o777777)


def scan_pieces(library: Any, rng: np.random.Generator) -> None:
    """Compare a scan that gets the file in pieces."""
    from penstock.kernels import tar_twin
    from penstock.kernels.tar_native import NativeTar

    file = damaged_archive(rng)
    step, with_crc = int(rng.choice([512, 513, 700, 2048, 1 << 20])), bool(rng.random() < 0.7)
    one = _in_pieces(NativeTar(library.library), file, step, with_crc)
    other = _in_pieces(tar_twin, file, step, with_crc)
    _same(one, other, (file.tobytes(), step))


def _in_pieces(version: Any, file: NDArray[np.uint8], step: int, with_crc: bool) -> tuple[Any, ...]:
    from penstock.kernels.tar import Table
    from penstock.kernels.tar_codes import Place

    table = Table(with_crc=with_crc)
    position, tail, outcome = 0, 0, 0
    for start in range(0, file.size, step):
        base, end = start - tail, min(start + step, file.size)
        data = file[base:end].copy()
        table.state[Place.POSITION] = position - base
        table.reserve(data.size // _UNIT + 1, data.size)
        outcome = version.scan(data, base, file.size, table.rows, table.names, table.state)
        position = base + int(table.state[Place.POSITION])
        if outcome:
            break
        tail = max(0, end - position)
    return outcome, position, *_found(table)


def scan_samples(library: Any, rng: np.random.Generator) -> None:
    """Compare samples taken out of a buffer at good and bad places, into tables with and without room."""
    from penstock.kernels import tar_twin
    from penstock.kernels.tar import Table
    from penstock.kernels.tar_codes import Place
    from penstock.kernels.tar_native import NativeTar

    file = damaged_archive(rng)
    found = Table(with_crc=False)
    found.reserve(file.size // _UNIT + 1, file.size)
    tar_twin.scan(file, 0, file.size, found.rows, found.names, found.state)
    starts = found.rows[: found.state[Place.NUM_ROWS], 0].copy()
    lengths = np.diff(starts, append=file.size)
    if starts.size and rng.random() < 0.5:
        starts[-1] = rng.choice([-1, 0, 512, file.size, file.size + 1, 2**63 - 1, -(2**63)])
        lengths[0] = rng.choice([-1, 0, 511, 512, 1024, file.size, 2**63 - 1])
    room = int(rng.choice([0, 1, 3, 100]))
    results = []
    for version in (NativeTar(library.library), tar_twin):
        table, ends = Table(with_crc=True), np.zeros(starts.size, np.int64)
        table.reserve(room, room * 40)
        results.append((version.samples(file, starts, lengths, table.rows, table.names, ends, table.state), ends.tolist(), *_found(table)))
    _same(results[0], results[1], (file.tobytes(), starts, lengths, room))


def _found(table: Any) -> tuple[Any, ...]:
    rows, names = table.state[1:3].tolist()
    return table.rows[:rows].tolist(), table.names[:names].tobytes(), table.state.tolist()


def _same(one: Any, other: Any, about: object) -> None:
    if one != other:
        raise AssertionError(f"C and the twin differ: {one}, {other}: {about}")


CASES: list[Callable[[Any, np.random.Generator], None]] = [scan_pieces, scan_samples]
