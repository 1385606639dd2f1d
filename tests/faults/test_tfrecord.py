"""Faults of TFRecord files that need a process or a feed of their own."""

from __future__ import annotations

import os
import textwrap
import zlib
from pathlib import Path
from typing import Any

import pytest
from formats.tfrecords import FIVE, tfrecord, write_tfrecord
from programs import output_of

import penstock as ps
from penstock.errors import SourceError
from penstock.formats.tfrecord import crc32c, masked

GIBIBYTE = 1 << 30


def bomb(path: Path, compression: str) -> None:
    """Write a record of 1 GiB of zeros, with its right check sums, behind a good one: about 1 MB."""
    length = GIBIBYTE.to_bytes(8, "little")
    stream, zeros = zlib.compressobj(9, zlib.DEFLATED, {"GZIP": 31, "ZLIB": 15}[compression]), bytes(1 << 24)
    with path.open("wb") as file:
        file.write(stream.compress(tfrecord([b"good"]) + length + masked(crc32c(length)).to_bytes(4, "little")))
        for _ in range(GIBIBYTE // len(zeros)):
            file.write(stream.compress(zeros))
        file.write(stream.flush())


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_a_gibibyte_of_zeros_in_a_compressed_file_is_refused_in_little_memory(tmp_path: Path, compression: str) -> None:
    bomb(tmp_path / "x", compression)
    assert (tmp_path / "x").stat().st_size < GIBIBYTE // 900
    program = """
        import resource, sys
        import penstock as ps

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        list(ps.read_tfrecord(sys.argv[2], compression=sys.argv[3]))  # whatever a first run imports and allocates
        before = peak()
        try:
            list(ps.read_tfrecord(sys.argv[1], compression=sys.argv[3], max_record_bytes=1 << 40))
        except ps.errors.RecordError as error:
            print(error.what)
        print(peak() - before)
    """
    small = write_tfrecord(tmp_path / "small", FIVE, compression)
    what, growth = output_of("-c", textwrap.dedent(program), tmp_path / "x", small, compression).splitlines()
    assert f"record 1 of '{tmp_path / 'x'}' says 1.07 GB, and its first " in what
    assert "were compressed more than" in what
    assert int(growth) * 1024 < 64 << 20


def test_a_file_that_is_cut_while_a_feed_reads_it_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "x", [os.urandom(1000)] * 3000)
    dataset = ps.read_tfrecord(path)
    with dataset.feed(executor="inline", memory_bytes=1 << 20) as feed:  # nothing is read before it is asked for
        next(feed)
        os.truncate(path, 5000)
        with pytest.raises(SourceError) as error:
            for _ in feed:
                pass
    assert str(path) in str(error.value)


def test_a_bad_record_in_every_file_is_left_out_and_counted(tmp_path: Path) -> None:
    good = tfrecord(FIVE)
    for number in range(8):
        data = bytearray(good)
        data[12 + number % 5] ^= 1
        (tmp_path / f"x{number}").write_bytes(data)
    skipped: list[Any] = []
    with ps.read_tfrecord(str(tmp_path / "x*")).shuffle(seed=1).feed(on_error=ps.Skip(), executor="threads", num_workers=3) as feed:
        skipped = sorted(element["record"] for element in feed)
        assert feed.stats().num_skipped == 8
    assert skipped == sorted(FIVE[1:] * 8)
