"""JPEG files that Pillow does not write: any sampling of any number of channels, restart marks, any Adobe transform."""

from __future__ import annotations

import io
import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ZIGZAG = sorted(range(64), key=lambda k: (k // 8 + k % 8, k // 8 if (k // 8 + k % 8) % 2 else k % 8))


def usual_tables() -> tuple[bytes, dict[int, dict[int, str]]]:
    """Return the Huffman tables of the standard as segments, and the code of each symbol in each."""
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "JPEG")
    data, at, segments, codes = stream.getvalue(), 2, b"", dict[int, dict[int, str]]()
    while data[at + 1] != 0xDA:
        length = 2 + struct.unpack_from(">H", data, at + 2)[0]
        if data[at + 1] == 0xC4:
            segments += data[at : at + length]
            counts, symbols, code = data[at + 5 : at + 21], iter(data[at + 21 : at + length]), 0
            table = codes[data[at + 4]] = {}
            for bits, count in enumerate(counts, start=1):
                for _ in range(count):
                    table[next(symbols)] = f"{code:0{bits}b}"
                    code += 1
                code *= 2
        at += length
    return segments, codes


SEGMENTS, CODES = usual_tables()
COSINES = np.array([[np.cos((2 * x + 1) * u * np.pi / 16) * (0.5 if u else 8**-0.5) for x in range(8)] for u in range(8)])


def written(number: int) -> tuple[int, str]:
    """Return the size class of a coefficient and its bits."""
    size = abs(number).bit_length()
    return size, f"{number if number > 0 else number + 2**size - 1:0{size}b}" if size else ""


def block_bits(numbers: NDArray[np.int64], before: int, table: int) -> str:
    """Return the bits of one block, whose first number is told as the difference to that of the block before."""
    size, bits = written(int(numbers[0]) - before)
    out, zeros = CODES[table][size] + bits, 0
    for number in numbers[1:].tolist():
        if number == 0:
            zeros += 1
            continue
        out += CODES[0x10 + table][0xF0] * (zeros // 16)
        size, bits = written(number)
        out += CODES[0x10 + table][zeros % 16 * 16 + size] + bits
        zeros = 0
    return out + (CODES[0x10 + table][0] if zeros else "")


def packed(bits: str) -> bytes:
    """Return bits as bytes, filled up with ones, each 255 with a zero behind it."""
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")


def odd_jpeg(
    sampling: str, height: int = 45, width: int = 70, *, restart: int = 0, transform: int | None = None, notes: bytes = b"", seed: int = 0
) -> bytes:
    """Return a JPEG of waves and grain; `sampling` is "2x2,1x1,1x1" for so many samples across and down in a unit, for each channel."""
    factors = [(int(one[0]), int(one[2])) for one in sampling.split(",")]
    most_across, most_down = max(across for across, _ in factors), max(down for _, down in factors)
    units_down, units_across = -(-height // (8 * most_down)), -(-width // (8 * most_across))
    rng, blocks = np.random.default_rng(seed), []
    for number, (across, down) in enumerate(factors):
        rows, columns = np.mgrid[0 : units_down * down * 8, 0 : units_across * across * 8]
        plane = 90 * np.sin(rows / (9 + number)) * np.cos(columns / (13 - 2 * number)) + rng.normal(0, 6, rows.shape)
        cells = plane.reshape(units_down * down, 8, units_across * across, 8).transpose(0, 2, 1, 3)
        blocks.append(np.rint(COSINES @ cells @ COSINES.T / 8).astype(np.int64).reshape(*cells.shape[:2], 64)[..., ZIGZAG])
    scan, bits, before = b"", "", [0] * len(factors)
    for unit in range(units_down * units_across):
        if restart and unit and unit % restart == 0:
            scan += packed(bits) + bytes((0xFF, 0xD0 + (unit // restart - 1) % 8))
            bits, before = "", [0] * len(factors)
        row, column = divmod(unit, units_across)
        for number, (across, down) in enumerate(factors):
            for y, x in np.ndindex(down, across):
                numbers = blocks[number][row * down + y, column * across + x]
                bits += block_bits(numbers, before[number], int(number in (1, 2)))
                before[number] = int(numbers[0])
    count = len(factors)
    frame = b"".join(bytes((number + 1, across * 16 + down, 0)) for number, (across, down) in enumerate(factors))
    parts = [b"\xff\xd8", notes]
    if transform is not None:
        parts.append(b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes((transform,)))
    parts += [b"\xff\xdb\0\x43\0" + bytes([8] * 64), b"\xff\xc0" + struct.pack(">HBHHB", 8 + 3 * count, 8, height, width, count) + frame]
    parts += [SEGMENTS, b"\xff\xdd\0\4" + struct.pack(">H", restart) if restart else b""]
    names = b"".join(bytes((number + 1, 0x11 if number in (1, 2) else 0)) for number in range(count))
    parts += [b"\xff\xda" + struct.pack(">HB", 6 + 2 * count, count) + names + b"\0\x3f\0", scan + packed(bits), b"\xff\xd9"]
    return b"".join(parts)
