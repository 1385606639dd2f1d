"""Datasets over TFRecord, tar and Parquet files, opened by their public functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError, SourceError


def examples(number: int) -> list[dict[str, object]]:
    return [{"x": np.full(3, index, np.float32), "y": np.int64(index * index)} for index in range(number)]


@pytest.mark.parametrize("kind", ["tfrecord", "parquet"])
def test_what_was_packed_is_read_by_position_shuffled_and_in_batches(tmp_path: Path, kind: str) -> None:
    ps.pack(ps.from_source(examples(20)), tmp_path / "out", format=kind, num_shards=3, executor="threads")
    if kind == "tfrecord":
        features = {"x": ps.FixedLenFeature((3,), "float32"), "y": ps.FixedLenFeature((), "int64")}
        dataset = ps.read_tfrecord(str(tmp_path / "out" / "*.tfrecord*"), features=features)
    else:
        dataset = ps.read_parquet(str(tmp_path / "out" / "*.parquet"))
    assert len(dataset) == 20
    assert int(dataset[7]["y"]) == 49
    with dataset.shuffle(seed=3).batch(6).feed(executor="threads", num_workers=2) as feed:
        assert sorted(value for batch in feed for value in batch["y"].tolist()) == [index * index for index in range(20)]
    with dataset.shuffle(seed=3, window_groups=2).feed(executor="threads", num_workers=2) as feed:
        assert sorted(int(element["y"]) for element in feed) == [index * index for index in range(20)]


def test_samples_of_tar_files_are_read_by_position(tmp_path: Path) -> None:
    from penstock.formats.tar import TarWriter

    for number in range(2):
        with open(tmp_path / f"part-{number}.tar", "wb") as file:
            writer = TarWriter(file)
            for index in range(4):
                writer.write_sample(f"{number}-{index}", {"cls": str(index).encode(), "bin": bytes([number, index])})
            writer.close()
    dataset = ps.read_tar(str(tmp_path / "part-*.tar"), decode="basic")
    assert [dataset[index]["cls"] for index in (0, 3, 4, 7)] == [0, 3, 0, 3]
    assert dataset[6]["bin"] == bytes([1, 2])


@pytest.mark.parametrize("read", [ps.read_tfrecord, ps.read_tar, ps.read_parquet])
def test_a_pattern_that_finds_nothing_is_an_error_that_names_it(tmp_path: Path, read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SourceError, match=r"absent-\*"):
        read(str(tmp_path / "absent-*"))


def test_columns_given_as_a_str_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        ps.read_parquet(str(tmp_path / "x"), columns="x")
    assert caught.value.fix == "give a list: columns=['x']"


@pytest.mark.parametrize(
    ("read", "argument"),
    [(ps.read_tar, "verify"), (ps.read_tfrecord, "check_crc"), (ps.read_tfrecord, "allow_empty"), (ps.read_tfrecord, "resync")],
)
def test_a_flag_in_words_is_refused(read, argument: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlanError, match=f"{argument}='no' is neither True nor False"):
        read("absent", **{argument: "no"})
