"""TensorFlow writes TFRecord files and Penstock reads them, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.tfrecords import tfrecord

import penstock as ps
from penstock.packing.inspect import inspect

pytestmark = pytest.mark.slow

COMPRESSIONS = [None, "GZIP", "ZLIB"]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def some_records() -> list[bytes]:
    rng = np.random.default_rng(4)
    sizes = [0, 1, 2, 7, 8, 9, 15, 16, 100, 1071, 4096, 65_536, 300_000, *rng.integers(0, 3000, 300).tolist()]
    return [rng.bytes(size) if number % 3 else bytes(size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_tensorflow_wrote_is_read(tf: Any, tmp_path: Path, compression: str | None) -> None:
    records = some_records()
    for shard in range(2):
        with tf.io.TFRecordWriter(str(tmp_path / f"x.tfrecord-0000{shard}-of-00002"), compression) as writer:
            for record in records[shard::2]:
                writer.write(record)
    dataset = ps.read_tfrecord(str(tmp_path / "x.tfrecord-*-of-00002"), compression="auto")
    assert [element["record"] for element in dataset] == records[::2] + records[1::2]
    for shard in range(2):
        (report,) = inspect(tmp_path / f"x.tfrecord-0000{shard}-of-00002", verify=True)
        kind = "TFRecord" if compression is None else f"TFRecord, {compression}"
        assert (report.problems, report.kind, report.count) == ([], kind, len(records[shard::2]))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_what_was_written(tf: Any, tmp_path: Path, compression: str | None) -> None:
    records, path = some_records(), tmp_path / "x"
    path.write_bytes(tfrecord(records, compression))
    dataset = tf.data.TFRecordDataset(str(path), compression or "")
    assert [record.numpy() for record in dataset] == records


def test_an_uncompressed_file_has_the_same_bytes(tf: Any, tmp_path: Path) -> None:
    records = some_records()
    with tf.io.TFRecordWriter(str(tmp_path / "x")) as writer:
        for record in records:
            writer.write(record)
    assert (tmp_path / "x").read_bytes() == tfrecord(records)


def test_both_refuse_the_same_damage(tf: Any, tmp_path: Path) -> None:
    good, path = tfrecord([b"first", b"second"]), tmp_path / "x"
    for place in range(0, len(good), 4):
        data = bytearray(good)
        data[place] ^= 1
        path.write_bytes(data)
        with pytest.raises(tf.errors.DataLossError):
            list(tf.data.TFRecordDataset(str(path)))
        with pytest.raises(ps.errors.RecordError):
            list(ps.read_tfrecord(path))
