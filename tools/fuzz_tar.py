"""Random, cut and damaged tar files for the kernels in C and for `tarfile`; part of fuzz_kernels.py.

Both find the same in archives as programs write them, cut ones too. Of damaged ones each may refuse what the other reads; what both read is
the same.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CASES", "damaged_archive", "found", "scan_pieces", "scan_samples"]

_UNIT = 512
_BYTES = (0, 32, 46, 47, 48, 55, 56, 76, 75, 83, 103, 120, 0x80, 0xFF)


def damaged_archive(rng: np.random.Generator) -> tuple[NDArray[np.uint8], bool]:
    """Make a small archive in an allocation of its own, perhaps cut; return it and whether it has wrong bytes (mostly behind good sums)."""
    file = bytearray(_archive(rng))
    num_wrong = int(rng.choice([0, 0, 1, 2, 4]))
    for _ in range(num_wrong):
        block = int(rng.integers(0, len(file) // _UNIT)) * _UNIT
        place = int(rng.choice([0, 100, 124, 135, 156, 257, 345, *rng.integers(0, _UNIT, 7)]))
        file[block + place] = int(rng.choice(_BYTES)) if rng.random() < 0.7 else int(rng.integers(0, 256))
        if rng.random() < 0.8:
            _mend(file, block)
    if rng.random() < 0.2:
        del file[int(rng.integers(0, len(file))) :]
    return np.frombuffer(bytes(file), np.uint8).copy(), num_wrong > 0


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
    from penstock.kernels import tar

    file, damaged = damaged_archive(rng)
    step, with_crc = int(rng.choice([512, 513, 700, 2048, 1 << 20])), bool(rng.random() < 0.7)
    one = _in_pieces(library.tar_scan, file, step, with_crc)
    other = _in_pieces(tar.scan, file, step, with_crc)
    _compare(one, other, damaged, (file.tobytes(), step))


def _in_pieces(scan: Callable[..., int], file: NDArray[np.uint8], step: int, with_crc: bool) -> tuple[int, Any]:
    from penstock.kernels.tar import MemberTable, StatePlace

    table = MemberTable(with_crc=with_crc)
    position, tail, outcome = 0, 0, 0
    for start in range(0, file.size, step):
        base, end = start - tail, min(start + step, file.size)
        data = file[base:end].copy()
        table.state[StatePlace.POSITION] = position - base
        table.reserve(data.size // _UNIT + 1, data.size)
        outcome = scan(data, base, file.size, table.rows, table.names, table.state)
        position = base + int(table.state[StatePlace.POSITION])
        if outcome:
            break
        tail = max(0, end - position)
    return outcome, (position, *found(table))


def scan_samples(library: Any, rng: np.random.Generator) -> None:
    """Compare samples taken out of a buffer at good and bad places, into tables with and without room."""
    from penstock.kernels import tar
    from penstock.kernels.tar import MemberTable, StatePlace

    file, damaged = damaged_archive(rng)
    whole = MemberTable(with_crc=False)
    whole.reserve(file.size // _UNIT + 1, file.size)
    library.tar_scan(file, 0, file.size, whole.rows, whole.names, whole.state)
    starts = whole.rows[: whole.state[StatePlace.NUM_ROWS], 0].copy()
    lengths = np.diff(starts, append=file.size)
    if starts.size and rng.random() < 0.5:
        starts[-1] = rng.choice([-1, 0, 512, file.size, file.size + 1, 2**63 - 1, -(2**63)])
        lengths[0] = rng.choice([-1, 0, 511, 512, 1024, file.size, 2**63 - 1])
    room = int(rng.choice([0, 1, 3, 100]))
    results = []
    for samples in (library.tar_samples, tar.samples):
        table, ends = MemberTable(with_crc=True), np.zeros(starts.size, np.int64)
        table.reserve(room, room * 40)
        outcome = samples(file, starts, lengths, table.rows, table.names, ends, table.state)
        results.append((outcome, (ends.tolist(), *found(table))))
    _compare(results[0], results[1], damaged, (file.tobytes(), starts, lengths, room))


def found(table: Any) -> tuple[Any, ...]:
    """Return what a table holds beside the hashes, which differ, and the place of an error."""
    from penstock.kernels.tar import MemberColumn, StatePlace

    columns = [
        MemberColumn.START,
        MemberColumn.DATA,
        MemberColumn.SIZE,
        MemberColumn.NAME_END,
        MemberColumn.KEY_LENGTH,
        MemberColumn.FIRST,
        MemberColumn.CRC,
    ]
    rows, names = table.state[1:3].tolist()
    counts = np.delete(table.state, [StatePlace.POSITION, StatePlace.ERROR_AT, StatePlace.ERROR_NAME])
    return table.rows[:rows, columns].tolist(), table.names[:names].tobytes(), counts.tolist()


def _compare(one: tuple[int, Any], other: tuple[int, Any], damaged: bool, about: object) -> None:
    refused = one[0] < 0 or other[0] < 0
    if one != other and not (damaged and refused):
        raise AssertionError(f"C and tarfile differ: {one}, {other}: {about}")


CASES: list[Callable[[Any, np.random.Generator], None]] = [scan_pieces, scan_samples]
