"""CSV files: records that are found in any pieces are split into fields and converted, or RecordError."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import running

from penstock.errors import RecordError
from penstock.formats.index import Index, joined
from penstock.sources.csvrecords import CsvColumn, CsvRecords
from penstock.sources.records import RecordTable


def one_input(data: bytes) -> None:
    """Scan and decode; the first byte says how."""
    if not data:
        return
    size, text = 1 + (data[0] >> 1) % 32, data[1:]
    array = np.frombuffer(text, np.uint8)
    cuts = [0, *range(max(size, 8), len(text), size), len(text)]
    parts = (array[begin:end] for begin, end in pairwise(cuts))
    plain = CsvRecords(header=bool(data[0] & 1), max_line_bytes=1000)
    try:
        found = plain.scan(parts, len(text), "fuzz.csv")
    except RecordError:
        return
    meta = found.pop("meta", {"header": ["a", "b"]})
    index = Index(kind="csv", options=plain.options, size=len(text), crc32c=0, meta=meta, columns=found)
    table = RecordTable(indices=joined([index], ["fuzz.csv"]), names=["fuzz.csv"])
    dtypes = (None, np.dtype(np.float32), np.dtype(np.int16), np.dtype(bool))
    columns = tuple(CsvColumn(name=name, place=place, dtype=dtypes[place % 4]) for place, name in enumerate(meta["header"]))
    format = replace(plain, columns=columns, num_fields=len(columns))
    for record in range(len(found["offsets"])):
        begin = int(found["offsets"][record])
        try:
            format.decode(memoryview(text)[begin : begin + int(found["lengths"][record])], table, record)
        except RecordError as error:
            if "line " not in error.where:
                raise AssertionError("the error names no line") from error


if __name__ == "__main__":
    running.run(one_input)
