"""The bytes of a shard, read by the plain readers of each format."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import element

import penstock as ps
from penstock.formats.example import decode_example
from penstock.packing.disk import OutFile
from penstock.packing.encoders import open_encoder
from penstock.packing.schema import columns_of, schema_of

ELEMENTS = [element(number, np.random.default_rng(number)) for number in range(9)]


def written(folder: Path, fmt: str, compression: str | None = None, elements: list[dict[str, Any]] = ELEMENTS) -> Path:
    schema = schema_of(elements)
    rows = [schema.values(one) for one in elements]
    columns = columns_of(schema, fmt, rows[0]).fields

    path = folder / f"file-{len(os.listdir(folder))}"
    out = OutFile(str(path))
    encoder = open_encoder(fmt, columns, compression, [out], 3)
    for row in rows:
        encoder.add(row)
    encoder.finish()
    out.seal()
    return path


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_tfrecord_file_has_an_example_for_each_element(tmp_path: Path, compression: str | None) -> None:
    records = [one["record"] for one in ps.read_tfrecord(str(written(tmp_path, "tfrecord", compression)), compression=compression)]
    found = [decode_example(record) for record in records]
    assert [int(one["number"][0]) for one in found] == list(range(9))
    assert found[4]["name"] == ["é 4".encode()]
    assert found[4]["vector"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert np.frombuffer(found[4]["exact"][0], "<f8")[0] == 4 / 3
    assert found[4]["pixels"] == [bytes([4] * 6)]


def test_a_tar_has_a_group_of_members_for_each_element_and_no_time(tmp_path: Path) -> None:
    with tarfile.open(written(tmp_path, "tar")) as archive:
        members = archive.getmembers()
        names = [member.name for member in members]
        assert names[:7] == [
            f"00003-0000000.{name}"
            for name in ("number.cls", "name.txt", "data.bin", "pixels.npy", "vector.npy", "exact.json", "drawn.cls")
        ]
        assert len(names) == 9 * 7
        assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}
        file = archive.extractfile("00003-0000004.exact.json")
        assert file is not None
        assert json.loads(file.read()) == 4 / 3


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_parquet_file_has_a_row_for_each_element(tmp_path: Path, compression: str | None) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = written(tmp_path, "parquet", compression)
    table = parquet.read_table(path, page_checksum_verification=True)
    assert table.column("number").to_pylist() == list(range(9))
    assert table.column("vector").to_pylist()[4] == [0.0, 1.0, 2.0, 3.0]
    assert table.column("exact").to_pylist()[4] == 4 / 3
    assert not any(field.nullable for field in table.schema)
    with parquet.ParquetFile(path) as file:
        assert file.metadata.row_group(0).column(0).compression == ("ZSTD" if compression else "UNCOMPRESSED")


def test_row_groups_of_a_parquet_file_are_bounded_in_rows_and_bytes(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    for elements, expected in (([{"n": 1}] * 5000, [4096, 904]), ([{"b": bytes(6 << 20)}] * 4, [3, 1])):
        with parquet.ParquetFile(written(tmp_path, "parquet", None, elements)) as file:
            assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == expected
