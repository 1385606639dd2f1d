"""TensorFlow, webdataset and pyarrow read the shards that `pack` writes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import dataset

import penstock as ps

pytestmark = pytest.mark.slow

COUNT = 23

# Its WebDataset closes a shard when the garbage collector comes by.
webdataset_leaves_files_open = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def wanted() -> list[dict[str, Any]]:
    elements = list(dataset(COUNT).shuffle(seed=3))
    assert [one["number"] for one in elements] != list(range(COUNT))
    return elements


def packed(folder: Path, fmt: str, compression: str | None = None) -> list[str]:
    manifest = ps.pack(dataset(COUNT), folder, executor="threads", num_shards=4, format=fmt, compression=compression, shuffle=3)  # type: ignore[arg-type]
    assert len(manifest.files()) == 4
    return manifest.files()


def plain(value: Any) -> Any:
    """Turn arrays into lists: in files, vectors have no dtype of NumPy."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_tensorflow_reads_packed_tfrecord_files(tmp_path: Path, compression: str | None) -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make interop")
    features = {
        "number": tf.io.FixedLenFeature([], tf.int64),
        "name": tf.io.FixedLenFeature([], tf.string),
        "data": tf.io.FixedLenFeature([], tf.string),
        "pixels": tf.io.FixedLenFeature([], tf.string),
        "vector": tf.io.VarLenFeature(tf.float32),
        "exact": tf.io.FixedLenFeature([], tf.string),
        "drawn": tf.io.FixedLenFeature([], tf.int64),
    }
    read = []
    for record in tf.data.TFRecordDataset(packed(tmp_path, "tfrecord", compression), compression or ""):
        example = tf.io.parse_single_example(record, features)
        read.append(
            {
                "number": int(example["number"]),
                "name": example["name"].numpy().decode(),
                "data": example["data"].numpy(),
                "pixels": tf.reshape(tf.io.decode_raw(example["pixels"], tf.uint8), (2, 3)).numpy().tolist(),
                "vector": tf.sparse.to_dense(example["vector"]).numpy().tolist(),
                "exact": float(tf.io.decode_raw(example["exact"], tf.float64)[0]),
                "drawn": int(example["drawn"]),
            }
        )
    assert read == [{name: plain(value) for name, value in one.items()} for one in wanted()]


@webdataset_leaves_files_open
def test_webdataset_reads_packed_tar_files(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed: make interop")
    packed(tmp_path, "tar")
    # The shards by the braces that WebDataset's users write.
    reader = webdataset.WebDataset(str(tmp_path / "data-{000000..000003}.tar"), shardshuffle=False, empty_check=False)
    read = list(reader)
    keys = [one["__key__"] for one in read]
    assert keys == sorted(set(keys))
    for one, other in zip(read, wanted(), strict=True):
        assert int(one["number.cls"]) == other["number"]
        assert one["name.txt"].decode() == other["name"]
        assert one["data.bin"] == other["data"]
        for name in ("pixels", "vector"):
            array = np.load(io.BytesIO(one[f"{name}.npy"]))
            assert array.dtype == other[name].dtype
            assert array.tolist() == other[name].tolist()
        assert float(one["exact.json"]) == other["exact"]
        assert int(one["drawn.cls"]) == other["drawn"]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_pyarrow_reads_packed_parquet_files(tmp_path: Path, compression: str | None) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: the extra parquet")
    files = packed(tmp_path, "parquet", compression)
    read = [row for file in files for row in parquet.read_table(file, page_checksum_verification=True).to_pylist()]
    expected = [{name: plain(value) for name, value in one.items()} | {"pixels": one["pixels"].tobytes()} for one in wanted()]
    assert read == expected
