"""Fuzzes the scan of tar files, the samples it finds, and the decoding of their fields."""

from __future__ import annotations

import numpy as np
import running

from penstock.errors import RecordError
from penstock.formats.tar import TarSample, decode_field, find_samples, split_samples
from penstock.kernels import tar
from penstock.kernels.tar import MemberColumn, MemberTable, scan_members


def one_input(data: bytes) -> None:
    """Mend the check sums of headers as the first byte says, scan in pieces, read every sample that was found and decode its fields."""
    file = _mended(data[1:]) if data[:1] == b"m" else data[1:]
    array = np.frombuffer(file, np.uint8)
    _compare(array)
    step = 512 * (1 + len(file) % 3) + len(file) % 2
    try:
        found = find_samples(iter([array[start : start + step] for start in range(0, len(file), step)]), len(file), "x.tar")
    except RecordError:
        return
    samples: list[TarSample] = []
    error = split_samples(array, found["offsets"], found["lengths"], found["crc32c"], samples, lambda number: ("x.tar", number))
    if error is not None:
        raise AssertionError("a sample that the scan found is not read back") from error
    for sample in samples:
        for field, value in sample.fields.items():
            try:
                decode_field(field, value)
            except RecordError:
                continue


def _mended(file: bytes) -> bytes:
    """Give every block that is not all zeros the check sum of a header: otherwise hardly an input gets beyond it."""
    blocks = bytearray(file)
    for start in range(0, len(blocks) - 511, 512):
        block = blocks[start : start + 512]
        if any(block[:100]) and not any(block[500:]):
            blocks[start + 148 : start + 156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))
    return bytes(blocks)


def _compare(array: np.ndarray) -> None:
    """Hold the version that is chosen against `tarfile`: what both read is the same."""
    one, other = MemberTable(with_crc=False), MemberTable(with_crc=False)
    outcome = scan_members(array, 0, array.size, one)
    other.reserve(array.size // 512 + 1, array.size + 4096)
    twin = tar.scan(array, 0, array.size, other.rows, other.names, other.state)
    rows, columns = int(one.state[1]), slice(0, MemberColumn.KEY_HASH)  # hashes differ
    if outcome >= 0 and twin >= 0 and (other.state[1] != rows or (one.rows[:rows, columns] != other.rows[:rows, columns]).any()):
        raise AssertionError("the two versions of the scan differ")


if __name__ == "__main__":
    running.run(one_input)
