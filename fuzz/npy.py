"""The header of an .npy file is read as NumPy reads it, or RecordError."""

from __future__ import annotations

import io

import numpy as np
import running

from penstock.errors import RecordError
from penstock.formats.npy import HEAD_BYTES, parse_npy


def one_input(data: bytes) -> None:
    """Parse; what is taken, NumPy takes too."""
    try:
        header = parse_npy(data[:HEAD_BYTES], len(data), "fuzz.npy")
    except RecordError:
        return
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    if (array.dtype, array.shape) != (header.dtype, header.shape) or header.offset + array.nbytes != len(data):
        raise AssertionError(f"NumPy reads {array.dtype} {array.shape}, not {header}")


if __name__ == "__main__":
    running.run(one_input)
