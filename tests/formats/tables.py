"""Parquet files for tests."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock._storage import open_storage

__all__ = ["everything", "numbers", "opened", "spoil", "write"]


def spoil(path: Path, data: bytes) -> None:
    """Write other bytes of the same number into a file as a failing disk would: it still has the time it had."""
    status = path.stat()
    assert len(data) == status.st_size
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def numbers(count: int, start: int = 0) -> Any:
    """Return columns of fixed shapes."""
    values = np.arange(start, start + count)
    flat = pa.array(np.arange(start * 6, (start + count) * 6, dtype=np.int16))
    return pa.table(
        {
            "number": values,
            "half": (values / 2).astype(np.float32),
            "odd": values % 2 == 1,
            "pair": pa.FixedSizeListArray.from_arrays(pa.array(values.repeat(2).astype(np.uint8)), 2),
            "grid": pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(flat, 3), 2),
        }
    )


def everything(count: int) -> Any:
    """Return a column of each kind that has a conversion."""
    first = datetime.datetime(2020, 1, 1)
    days = [first + datetime.timedelta(days=day, milliseconds=day) for day in range(count)]
    words = [f"word {number % 3}" for number in range(count)]
    more = {
        "small": pa.array(np.arange(count) % 100, pa.int8()),
        "f16": pa.array(np.arange(count).astype(np.float16)),
        "word": words,
        "each": [f"üm {number}" for number in range(count)],
        "long": pa.array(words, pa.large_string()),
        "raw": [bytes([number % 256]) * (number % 4) for number in range(count)],
        "four": pa.array([b"%04d" % number for number in range(count)], pa.binary(4)),
        "coded": pa.array(words).dictionary_encode(),
        "coded_number": pa.array([number % 5 for number in range(count)]).dictionary_encode(),
        "list": pa.array([list(range(number % 4)) for number in range(count)], pa.list_(pa.int64())),
        "flags": pa.array([[True] * (number % 3) for number in range(count)], pa.large_list(pa.bool_())),
        "day": pa.array([day.date() for day in days]),
        "time": pa.array(days, pa.timestamp("ms")),
        "time_utc": pa.array(days, pa.timestamp("us", tz="Europe/Berlin")),
        "lasting": pa.array([number * 10 for number in range(count)], pa.duration("s")),
    }
    table = numbers(count)
    for name, column in more.items():
        table = table.append_column(name, column if isinstance(column, pa.Array) else pa.array(column))
    return table


def write(path: Path, table: Any, *, group: int = 10, **options: Any) -> Path:
    pq.write_table(table, path, **{"row_group_size": group, "write_page_checksum": True, **options})
    return path


def opened(*paths: Path) -> Any:
    return open_storage([str(path) for path in paths], "read_parquet")
