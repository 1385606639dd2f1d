"""Files of records by their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.cli.bench_source import TFRECORD, open_records, records_kind
from penstock.errors import SourceError


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("a.tfrecord", TFRECORD),
        ("d/t.TFRecord-00000-of-00002", TFRECORD),
        ("d/*.tfrecord.gz", TFRECORD),
        ("s3://b/x-{000..003}.tar", "tar files"),
        ("x/*.parquet", "Parquet files"),
        ("a.jsonl", "files of JSON lines"),
        ("a.tfrecord/photos.txt", None),
        ("train.txt", None),
        ("images/*.jpg", None),
        ("my.module:ds", None),
    ],
)
def test_kinds_are_told_by_names(source: str, kind: str | None) -> None:
    assert records_kind(source) == kind


@pytest.mark.parametrize("fmt", ["tar", "parquet", "tfrecord"])
def test_what_was_packed_opens(tmp_path: Path, fmt: str) -> None:
    if fmt == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    ps.pack(ps.from_source([{"a": number} for number in range(3)]), tmp_path, executor="threads", format=fmt)
    found = open_records(str(tmp_path / f"*.{fmt}"))
    assert found is not None
    dataset, kind = found
    wanted = {"tar": "a.cls", "parquet": "a", "tfrecord": "record"}[fmt]
    assert len(dataset) == 3
    assert wanted in dataset[2]
    if fmt != "tfrecord":
        assert np.asarray(dataset[2][wanted]) == 2
    assert kind == records_kind(f"x.{fmt}")


def test_other_names_are_not_opened_and_other_urls_are_an_error() -> None:
    assert open_records("train.txt") is None
    with pytest.raises(SourceError) as caught:
        open_records("https://host/photos/")
    assert "ds = ps.read_files('https://host/photos/')" in caught.value.fix
