"""What the first bytes of a file tell, and what they do not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from core import core
from pyarrow.feather import write_feather

from penstock.formats.linescan import HEAD_BYTES, foreign


def written(write: Callable[[Any], Any]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def zipped(file: Any) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("name", b"x" * 100)


def of_a_name(file: Any) -> None:
    with gzip.GzipFile("a.bin", "wb", fileobj=file) as stream:
        stream.write(b"x")


TOKENS, TABLE = np.arange(9), pa.table({"x": ["a"]})
FILES = {
    "gzip": [*(gzip.compress(b"x", level) for level in (1, 6, 9)), written(of_a_name)],
    "zstd": [pa.compress(b"x" * count, "zstd", asbytes=True) for count in (1, 1000, 1_000_000)],
    "bzip2": [bz2.compress(b"x"), bz2.compress(b"", 1)],
    "xz": [lzma.compress(b"x"), lzma.compress(b"x", check=lzma.CHECK_NONE)],
    "a zip archive": [written(zipped), *(written(partial(save, ids=TOKENS)) for save in (np.savez, np.savez_compressed))],
    "Parquet": [written(partial(pq.write_table, TABLE, use_dictionary=False, **how)) for how in ({}, {"data_page_version": "2.0"})]
    + [written(partial(pq.write_table, TABLE))],
    "an Arrow file": [written(partial(write_feather, TABLE)), written(partial(write_feather, TABLE, compression="zstd"))],
    "an .npy file": [written(partial(np.save, arr=TOKENS))],
}


@pytest.mark.parametrize("kind", FILES)
def test_what_others_write_is_known_for_sure(kind: str) -> None:
    for data in FILES[kind]:
        for surely in (False, True):
            known = foreign(data[:HEAD_BYTES], surely=surely)
            assert known is not None
            assert known.kind == kind


@pytest.mark.parametrize("kind", core(FILES))
def test_numbers_are_another_format_by_a_tiny_chance_only(kind: str) -> None:
    sure = foreign(FILES[kind][0][:HEAD_BYTES], surely=True)
    assert sure is not None
    behind = np.random.default_rng(7).bytes(HEAD_BYTES * 100_000)
    heads = [(sure.mark + behind[place : place + HEAD_BYTES])[:HEAD_BYTES] for place in range(0, len(behind), HEAD_BYTES)]
    assert all(foreign(head) is sure for head in heads[:100])
    share = sum(foreign(head, surely=True) is sure for head in heads) / len(heads)
    assert share * 2.0 ** (-8 * len(sure.mark)) <= 2.0**-32


def test_a_byte_order_mark_is_for_text_alone_and_few_bytes_tell_nothing() -> None:
    utf_16 = "text".encode("utf-16")
    assert [foreign(utf_16, surely=surely) is None for surely in (False, True)] == [False, True]
    for head in (b"", b"P", b"text", bytes(HEAD_BYTES)):
        assert foreign(head) is foreign(head, surely=True) is None
    assert foreign(gzip.compress(b"x")[:9], surely=True) is None
