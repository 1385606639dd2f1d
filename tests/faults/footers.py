"""Parquet files with one changed byte in the footer, each read in a process that may die of it.

Run as a script: the file, its use, and how many changes of each byte.

A child is forked for 500 changes and goes on behind one that killed it; which one it is at stands in memory that both share.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
from typing import Any

CHANGES = [0x01, 0x80, 0xFF, 0x10, 0x02, 0x15, 0x19, 0x1C]
"""What a byte is changed by; from the 6th on, what it becomes: list, struct and number of Thrift's compact form."""
NUM_FLIPS = 5
_PER_CHILD = 500


def tables() -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa

    return {
        "numbers": pa.table({"a": pa.array([1, 2, 3, 4], pa.int64()), "b": pa.array([1.5, 2, 3, 4], pa.float32())}),
        "strings": pa.table({"s": ["x", "yy", "zzz"], "y": pa.array([b"1", b"2", b"3"], pa.binary(1)), "f": [True, False, True]}),
        "lists": pa.table({"l": [[1, 2], [3], []], "t": pa.array([1, 2, 3], pa.timestamp("us")), "h": np.arange(3, dtype=np.float16)}),
    }


def changed(data: bytes, num_changes: int) -> list[tuple[int, int]]:
    """Return (place, new value) of each change of one byte of a footer."""
    begin = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    out = []
    for place in range(begin, len(data)):
        new = [data[place] ^ change if number < NUM_FLIPS else change for number, change in enumerate(CHANGES[:num_changes])]
        out += [(place, value) for value in dict.fromkeys(new) if value != data[place]]
    return out


def read_all(use: str, data: bytes, cases: list[tuple[int, int]], at: mmap.mmap, first: int) -> None:
    import penstock as ps
    from penstock.packing.inspect import inspect

    for number, (place, value) in enumerate(cases, first):
        at[:8] = struct.pack("<q", number)
        with open("a.parquet", "wb") as file:
            file.write(data[:place] + bytes([value]) + data[place + 1 :])
        try:
            if use == "inspect":
                inspect("a.parquet", verify=True)
            else:
                list(ps.read_parquet("a.parquet").feed(num_workers=0))
        except ps.errors.PenstockError:
            at[8:16] = struct.pack("<q", struct.unpack("<q", at[8:16])[0] + 1)
        except BaseException as error:
            print(f"byte {place} = {value}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    import pyarrow.parquet as parquet

    kind, use, num_changes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.chdir(tempfile.mkdtemp())
    parquet.write_table(tables()[kind], "whole.parquet", row_group_size=2)
    with open("whole.parquet", "rb") as file:
        whole = file.read()
    cases, number, at = changed(whole, num_changes), 0, mmap.mmap(-1, 16)
    while number < len(cases):
        pid = os.fork()
        if pid == 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(300)
            read_all(use, whole, cases[number : number + _PER_CHILD], at, number)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        reached = struct.unpack("<q", at[:8])[0]
        if status:
            print(f"byte {cases[reached][0]} = {cases[reached][1]}: status {status}", flush=True)
        number = reached + 1
    print(f"{len(cases)} changes, {struct.unpack('<q', at[8:16])[0] > 0}")
