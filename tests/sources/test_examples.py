"""read_tfrecord(features=...): rows and columns of real files, bad records, policies, and the laws of a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from fuzz_stream import frames
from penstock._contracts.source import RowFailed
from penstock.errors import PlanError, RecordError
from penstock.formats.example import ExampleReader
from penstock.formats.tfrecord import RecordWriter
from penstock.kernels.library import load_library
from penstock.sources import tfrecord
from penstock.sources.tfrecord import ExampleColumns, ExampleSource, TFRecordSource, example_source, open_tfrecord
from penstock.testing import check_source

NUMBERS: dict[str, Any] = {"x": ps.FixedLenFeature((3,), "float32"), "y": ps.FixedLenFeature((), "int64")}
ANY: dict[str, Any] = {**NUMBERS, "name": ps.FixedLenFeature((), bytes), "ids": ps.VarLenFeature("int64")}
SIZE = 40
OPTIONS: list[dict[str, Any]] = [{"executor": "inline"}, {"num_workers": 1}, {"num_workers": 3}]


def element(index: int) -> dict[str, Any]:
    return {"x": np.arange(3) + index + 0.5, "y": index, "name": f"n{index}", "ids": np.arange(index % 4) * 1000}


def write(folder: Path, bad: dict[int, bytes] | None = None, compression: str | None = None) -> str:
    for shard in range(2):
        with (folder / f"{shard}.tfrecord").open("wb") as file, RecordWriter(file, compression) as writer:
            for index in range(shard * SIZE // 2, (shard + 1) * SIZE // 2):
                writer.write((bad or {}).get(index) or ps.encode_example(element(index)))
    return str(folder / "*.tfrecord")


def opened(pattern: str, features: dict[str, Any]) -> ExampleSource:
    records = open_tfrecord(pattern)
    assert isinstance(records, TFRecordSource)
    return example_source(records, ExampleReader(features))


def flip(folder: Path, index: int) -> None:
    """Change a byte of the data of a record of the first shard."""
    path = folder / "0.tfrecord"
    data = bytearray(path.read_bytes())
    place = 0
    for _ in range(index):
        place += int.from_bytes(data[place : place + 8], "little") + 16
    data[place + 20] ^= 1
    path.write_bytes(data)


def test_numbers_of_fixed_shape_are_columns_and_the_rest_are_rows(tmp_path: Path) -> None:
    pattern = write(tmp_path)
    assert isinstance(opened(pattern, NUMBERS), ExampleColumns)
    assert not isinstance(opened(pattern, ANY), ExampleColumns)


def test_both_obey_the_laws_of_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "_PIECE_BYTES", 16 * 100)  # blocks have several pieces
    pattern = write(tmp_path)
    for features in (NUMBERS, ANY):
        expected = []
        for index in range(SIZE):
            wanted = {
                "x": np.float32(element(index)["x"]),
                "y": np.int64(index),
                "name": f"n{index}".encode(),
                "ids": element(index)["ids"],
            }
            expected.append({name: wanted[name] for name in features})
        check_source(opened(pattern, features), expected=expected, again=lambda features=features: opened(pattern, features))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_batches_hold_the_features(tmp_path: Path, compression: str | None, options: dict[str, Any]) -> None:
    dataset = ps.read_tfrecord(write(tmp_path, compression=compression), features=NUMBERS, compression=compression).batch(7)
    with dataset.feed(**options) as feed:
        batches = list(feed)
    assert np.concatenate([batch["y"] for batch in batches]).tolist() == list(range(SIZE))
    assert np.concatenate([batch["x"] for batch in batches]).tolist() == [(np.arange(3) + index + 0.5).tolist() for index in range(SIZE)]


def test_features_of_any_length_go_into_ragged_batches(tmp_path: Path) -> None:
    dataset = ps.read_tfrecord(write(tmp_path), features={"ids": ps.VarLenFeature("int64"), "y": ps.FixedLenFeature((), "int64")})
    assert [one["ids"].tolist() for one in dataset] == [element(index)["ids"].tolist() for index in range(SIZE)]
    assert dataset[5]["ids"].tolist() == [0]
    assert len(dataset.padded_batch(4)[0]["ids"]) == 4


BROKEN = ps.encode_example({"x": [1.0], "y": 3})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("features", [NUMBERS, ANY], ids=["columns", "rows"])
def test_a_bad_record_is_an_error_with_file_record_and_feature_behind_everything_before_it(
    tmp_path: Path, features: dict[str, Any], options: dict[str, Any]
) -> None:
    pattern = write(tmp_path, {33: BROKEN})
    fields = {name: features[name] for name in ("x", "y")} if features is NUMBERS else {**NUMBERS, "name": features["name"]}
    got: list[Any] = []
    with (
        ps.read_tfrecord(pattern, features=fields).batch(8).feed(**options) as feed,
        pytest.raises(RecordError, match="'x' has 1 values") as caught,
    ):
        got.extend(feed)
    assert [y for batch in got for y in batch["y"].tolist()] == list(range(32))
    notes = "\n".join(caught.value.__notes__)
    assert "record 13 of" in notes
    assert "1.tfrecord" in notes
    assert "index 33" in notes


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("features", [NUMBERS, {**NUMBERS, "name": ANY["name"]}], ids=["columns", "rows"])
def test_skip_and_quarantine_take_exactly_the_bad_records(tmp_path: Path, features: dict[str, Any], options: dict[str, Any]) -> None:
    pattern = write(tmp_path, {0: BROKEN, 12: b"\xff", 13: BROKEN, 39: BROKEN})
    flip(tmp_path, 7)
    kept = tmp_path / "quarantine"
    with ps.read_tfrecord(pattern, features=features).batch(8).feed(on_error=ps.Skip(quarantine=kept), **options) as feed:
        got = [y for batch in feed for y in batch["y"].tolist()]
        assert feed.stats().num_skipped == 5
    bad = [0, 7, 12, 13, 39]
    assert got == [index for index in range(SIZE) if index not in bad]
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert sorted(key[1] for line in lines for key in line["keys"]) == bad
    assert all("record" in line["where"] and line["stage"] == "read" for line in lines)


def damaged_shards(folder: Path, rng: np.random.Generator) -> str:
    """Write shards of frames, of which some have a wrong bit, another length or another feature."""
    for shard in range(3):
        (folder / f"{shard}.tfrecord").write_bytes(b"".join(frames(rng, 60)))
    return str(folder / "*.tfrecord")


def outcome(source: ExampleColumns, places: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[Any, ...]:
    """Gather records; return the bytes of the columns up to the first bad one, and its error."""
    out = [np.zeros((len(places), *shape), dtype) for shape, dtype in source.leaves()]
    try:
        source.gather_columns(places, out)
    except RowFailed as failed:
        return failed.row, str(failed.error), getattr(failed.error, "__notes__", []), *(column[: failed.row].tobytes() for column in out)
    return len(places), *(column.tobytes() for column in out)


@pytest.mark.skipif(load_library() is None, reason="no C library")
@pytest.mark.parametrize("seed", range(12))
def test_one_call_for_all_gives_what_one_for_each_piece_and_step_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(tfrecord, "_PIECE_BYTES", 4000)
    rng = np.random.default_rng(seed)
    records = open_tfrecord(damaged_shards(tmp_path, rng), resync=True)  # for a length may be damaged
    assert isinstance(records, TFRecordSource)
    source = example_source(records, ExampleReader(NUMBERS))
    assert isinstance(source, ExampleColumns)
    blocks = [rng.integers(0, len(source), int(rng.integers(0, 200))) for _ in range(10)]
    together = [outcome(source, places) for places in blocks]
    monkeypatch.setattr(ExampleReader, "taker", lambda *_, **__: None)
    assert together == [outcome(source, places) for places in blocks]


@pytest.mark.skipif(load_library() is None, reason="no C library")
def test_a_block_of_good_records_takes_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened(write(tmp_path), NUMBERS)
    assert isinstance(source, ExampleColumns)
    monkeypatch.setattr(tfrecord.ExampleColumns, "_parse_piece", None)
    places = np.random.default_rng(1).permutation(SIZE)
    assert source.gather_columns(places, None)[1].tolist() == places.tolist()


def test_features_go_into_the_fingerprint_and_the_label(tmp_path: Path) -> None:
    pattern = write(tmp_path)
    source, other = opened(pattern, NUMBERS), opened(pattern, {**NUMBERS, "y": ps.FixedLenFeature((), "int64", 0)})
    assert source.fingerprint() != other.fingerprint()
    assert source.label().endswith("features x, y)")
    with pytest.raises(PlanError, match="features is empty"):
        ps.read_tfrecord(pattern, features={})
