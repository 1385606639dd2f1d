"""Options of packing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock._system.memory import available_cpus
from penstock.errors import PlanError
from penstock.packing.options import PackOptions, destination, options_of, workers_of


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"format": "zip"}, "format='zip' is not known"),
        ({"compression": "gzip"}, "compression='gzip' is not known for tfrecord"),
        ({"compression": "GZIP", "format": "tar"}, "compression='GZIP' is not known for tar"),
        ({"dtype": "uint16"}, "dtype='uint16' is not known for tfrecord"),
        ({"dtype": float, "format": "tokens"}, "dtype='float' is not known for tokens"),
        ({"num_shards": 2, "shard_bytes": 10}, "num_shards= and shard_bytes= say the same in two ways"),
        ({"num_shards": 0}, "num_shards=0"),
        ({"shard_bytes": -1}, "shard_bytes=-1"),
        ({"shuffle": "x"}, "'x'"),
        ({"name": "../x"}, "name='../x' cannot begin a file name"),
        ({"name": ""}, "name='' cannot begin a file name"),
        ({"shards": 2}, "there is no option 'shards'"),
    ],
)
def test_options_that_cannot_be_are_errors(given: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        options_of(given)
    assert words in str(caught.value)


def test_the_number_of_shards_follows_from_the_size() -> None:
    assert PackOptions(num_shards=7).count_of(1e12, 100) == 7
    assert PackOptions(num_shards=7).count_of(1e12, 3) == 3
    assert PackOptions(shard_bytes=100).count_of(1001, 10_000) == 11
    assert PackOptions().count_of(256e6, 10_000) == 1
    assert PackOptions().count_of(0, 1) == 1


def test_names_are_those_that_readers_of_each_format_expect() -> None:
    assert PackOptions(name="train").file_names(2) == ["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"]
    assert PackOptions(compression="GZIP").file_names(1) == ["data-00000-of-00001.tfrecord.gz"]
    assert PackOptions(format="tar").file_names(2) == ["data-000000.tar", "data-000001.tar"]
    assert PackOptions(format="parquet").file_names(1) == ["data-00000-of-00001.parquet"]
    assert PackOptions(name="train").manifest_name() == "train-manifest.json"


def test_a_file_and_a_link_to_nothing_are_no_destination(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "link"):
        with pytest.raises(PlanError, match="is there and is no folder"):
            destination(tmp_path / name)
    (tmp_path / "folder").mkdir()
    (tmp_path / "other").symlink_to("folder")
    assert destination(tmp_path / "other") == str(tmp_path / "other")


@pytest.mark.parametrize("dest", ["s3://user:secret@bucket/out", "https://host/out", "", "~/out"])
def test_what_is_no_folder_of_this_machine_is_no_destination(dest: str) -> None:
    with pytest.raises(PlanError) as caught:
        destination(dest)
    assert "secret" not in str(caught.value)


def test_a_destination_is_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert destination("out") == os.path.join(os.getcwd(), "out")
    assert destination(tmp_path) == str(tmp_path)
    with pytest.raises(PlanError, match="dest=3 is no path"):
        destination(3)  # type: ignore[arg-type]


def test_the_number_of_workers_is_one_for_each_cpu_or_what_was_given() -> None:
    assert workers_of("auto") == available_cpus()
    assert workers_of(3) == 3
    for wrong in (0, -1, 1.5, "many", None):
        with pytest.raises(PlanError, match="num_workers"):
            workers_of(wrong)
