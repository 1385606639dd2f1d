"""`ps.pack` as a user calls it. What goes wrong while it runs: tests/faults/test_packing.py."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import bad_at_7, dataset, hashes, odd

import penstock as ps
from penstock.errors import PackError, PlanError, SourceError, TooManySkipped
from penstock.packing import estimate


def packed(tmp_path: Path, ds: Any = None, **options: Any) -> Any:
    return ps.pack(dataset(20) if ds is None else ds, tmp_path / "out", **{"executor": "threads", "num_shards": 2, **options})


def test_packing_again_finds_everything_and_writes_nothing(tmp_path: Path) -> None:
    first = packed(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert packed(tmp_path).record == first.record
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_a_finished_folder_is_found_whoever_wrote_it(tmp_path: Path) -> None:
    ds = ps.from_source(range(20)).map(lambda number: {"number": number})
    packed(tmp_path, ds)
    assert packed(tmp_path, ds, executor="processes").was_there
    assert not packed(tmp_path / "other", ds, executor="processes").was_there
    with pytest.raises(SourceError, match="no elements"):
        packed(tmp_path / "none", ds.take(0), executor="processes")


def test_something_else_in_the_folder_is_refused(tmp_path: Path) -> None:
    packed(tmp_path)
    before = hashes(tmp_path)
    for ds, options, words in (
        (dataset(21), {}, "its num_positions is another"),
        (None, {"shuffle": 1}, "its options is another"),
        (dataset(20).map(dict), {}, "its dataset is another"),
    ):
        with pytest.raises(PackError) as caught:
            packed(tmp_path, ds, **options)
        assert words in str(caught.value)
    assert hashes(tmp_path) == before


def test_two_datasets_of_other_names_may_share_a_folder(tmp_path: Path) -> None:
    packed(tmp_path, name="train")
    packed(tmp_path, dataset(5), name="test")
    assert len(ps.read_packed(tmp_path / "out" / "train-manifest.json")) == 20
    assert len(ps.read_packed(tmp_path / "out" / "test-manifest.json")) == 5


def test_what_is_unfinished_under_one_name_is_left_alone_by_another(tmp_path: Path) -> None:
    packed(tmp_path, name="train")
    with pytest.raises(ValueError, match="number 7 is bad"):
        packed(tmp_path, dataset(1000).map(bad_at_7).skip(8).concatenate(dataset(100).map(bad_at_7)), name="test", num_workers=1)
    before = hashes(tmp_path)
    assert any(".packing/test-" in name for name in before)
    assert packed(tmp_path, name="train").was_there
    assert hashes(tmp_path) == before
    with pytest.raises(PackError, match="an unfinished packing of something else: its options is another: name was"):
        packed(tmp_path, name="other")


def test_a_filter_that_leaves_nothing_in_a_shard_makes_an_empty_one(tmp_path: Path) -> None:
    manifest = packed(tmp_path, ps.from_source([0, 0, 0, 1]).map(lambda number: {"number": number}).filter(odd), num_shards=4)
    assert [shard.count for shard in manifest.shards] == [0, 0, 0, 1]
    assert [int(one["number"]) for one in ps.read_packed(tmp_path / "out")] == [1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_error": ps.Replace()}, "Replace() would put an element in place of another"),
        ({"on_error": 3}, "on_error=3 is no policy"),
        ({"executor": "magic"}, "executor='magic' is not known"),
        ({"num_workers": 0}, "num_workers=0"),
    ],
)
def test_arguments_that_cannot_be_are_errors(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        packed(tmp_path, **options)
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_sent_to_processes_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match='executor="threads"'):
        packed(tmp_path, dataset(20).map(threading.Lock().__enter__), executor="processes")
    with pytest.raises(PlanError, match="to send to each worker process: it holds its data in memory"):
        packed(tmp_path / "large", ps.from_arrays(np.zeros((2, 1 << 25), np.uint8)), executor="processes")


def test_the_size_of_a_shard_is_aimed_at(tmp_path: Path) -> None:
    manifest = packed(tmp_path, dataset(2000), num_shards=None, shard_bytes=20_000)
    sizes = [shard.size for shard in manifest.shards]
    assert len(sizes) > 5
    assert all(16_000 < size < 24_000 for size in sizes)


def test_single_values_and_tuples_are_packed(tmp_path: Path) -> None:
    packed(tmp_path, ps.from_source(range(10)))
    assert [int(one) for one in ps.read_packed(tmp_path / "out")] == list(range(10))
    packed(tmp_path / "pair", ps.from_source([(1, "a"), (2, "b")]))
    assert list(ps.read_packed(tmp_path / "pair" / "out"))[1] == {"0": 2, "1": "b"}


def test_what_several_stages_leave_out_is_listed_in_the_same_order_by_any_workers(tmp_path: Path) -> None:
    def bad(value: Any) -> Any:
        if int(np.sum(value)) % 7 == 3:
            raise ValueError(f"bad {value}")
        return value

    for name, source in (("stream", ps.from_generator(lambda: iter(range(60)))), ("positions", ps.from_source(range(60)))):
        ds = source.map(bad).window(3, 2).map(bad).map(np.sum).batch(2).map(bad)  # Skip leaves windows of two lengths
        options: dict[str, Any] = {"num_shards": 1, "on_error": ps.Skip()}
        found = [packed(tmp_path / f"{name}{place}", ds, num_workers=count, **options).record for place, count in enumerate((1, 3, 5, 3))]
        assert len(found[0]["skipped"]) > 10
        assert found[0] == found[1] == found[2] == found[3]


def test_beside_shard_a_bad_element_is_left_out_too_and_not_replaced_by_another(tmp_path: Path) -> None:
    good = [number for number in range(1, 20, 2) if number != 7]
    for name, ds in (
        ("above", dataset(20).shard(2, 1).map(bad_at_7)),
        ("below", dataset(20).map(bad_at_7).shard(2, 1)),
        ("zipped", dataset(20).map(bad_at_7).shard(2, 1).zip(ps.from_source(range(10))).map(first)),
        ("stream", dataset(20).map(bad_at_7).shard(2, 1).filter(odd).take(9)),
    ):
        for num_shards in (1,) if name == "stream" else (1, 3, 20):
            manifest = packed(tmp_path / f"{name}{num_shards}", ds, num_shards=num_shards, on_error=ps.Skip())
            assert [int(one["number"]) for one in ps.read_packed(tmp_path / f"{name}{num_shards}" / "out")] == good
            assert len(manifest.skipped) == 1


def first(pair: Any) -> Any:
    return pair[0]


def test_the_quarantine_of_a_policy_is_written_and_changes_nothing_of_what_is_packed(tmp_path: Path) -> None:
    ds, file = dataset(20).map(bad_at_7), tmp_path / "bad.jsonl"
    without = packed(tmp_path / "a", ds, on_error=ps.Skip())
    assert packed(tmp_path / "b", ds, on_error=ps.Skip(quarantine=file)).record == without.record
    assert packed(tmp_path / "a", ds, on_error=ps.Skip(quarantine=tmp_path / "other.jsonl")).was_there
    assert [int(one["number"]) for one in ps.read_quarantine(file, dataset(20))] == [7]


def test_a_finished_folder_with_a_missing_or_changed_shard_is_refused(tmp_path: Path) -> None:
    packed(tmp_path)
    path = tmp_path / "out" / "data-00001-of-00002.tfrecord"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PackError, match=r"'data-00001.* has") as caught:
        packed(tmp_path)
    assert "remove what is there and pack again" in caught.value.fix
    path.unlink()
    with pytest.raises(PackError, match="is missing: it had 10 of 20 elements"):
        packed(tmp_path)


def test_a_finished_folder_is_no_answer_to_another_version_or_a_changed_input(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(200):
        (tmp_path / "in" / f"{number:03d}").write_bytes(b"x")
    files = ps.read_files(str(tmp_path / "in" / "*"))
    packed(tmp_path, files, version="a")
    assert packed(tmp_path, files, version="a").was_there
    for version, words in (("b", 'version was "a", now "b"'), ("", 'version was "a", now null')):
        with pytest.raises(PackError, match=words):
            packed(tmp_path, files, version=version)
    (tmp_path / "in" / "077").write_bytes(b"y")
    with pytest.raises(PackError, match="the input files have changed"):
        packed(tmp_path, files, version="a")


def bad_at_18(element: Any) -> Any:
    if element["number"] == 18:
        raise KeyError("number 18 is bad")
    return element


def test_another_policy_goes_on_only_where_nothing_was_left_out(tmp_path: Path) -> None:
    ds = dataset(200).map(bad_at_7).concatenate(dataset(20).map(bad_at_18))
    with pytest.raises(KeyError):
        packed(tmp_path, ds, num_shards=4, num_workers=1, on_error=ps.Skip(errors=ValueError))
    with pytest.raises(PackError, match="options is another: on_error was"):
        packed(tmp_path, ds, num_shards=4)


def test_a_dataset_is_packed_several_times_by_repeat(tmp_path: Path) -> None:
    packed(tmp_path, dataset(10).repeat(3), shuffle=5)
    elements = list(ps.read_packed(tmp_path / "out"))
    assert sorted(int(one["number"]) for one in elements) == sorted([*range(10)] * 3)
    assert len({int(one["drawn"]) for one in elements}) == 30
    assert [int(one["number"]) for one in elements[:10]] != list(range(10))


def test_a_rate_of_losses_is_judged_by_all(tmp_path: Path) -> None:
    for name, ds in (("positions", dataset(20).map(bad_at_7)), ("stream", dataset(20).map(bad_at_7).filter(bool).take(19))):
        assert len(packed(tmp_path / name, ds, num_shards=1, on_error=ps.Retry(1, then=ps.Skip(0.05)))) == 19
        with pytest.raises(TooManySkipped, match=r"1 of 20 elements failed, limit 0\.01; first: ValueError: number 7 is bad"):
            packed(tmp_path / f"{name}2", ds, num_shards=1, on_error=ps.Skip(0.01))


def test_an_estimate_says_what_would_come_and_writes_nothing(tmp_path: Path) -> None:
    found = estimate(dataset(20), num_shards=3, format="tar")
    manifest = ps.pack(dataset(20), tmp_path / "out", executor="threads", num_shards=3, format="tar")
    assert (found.count, found.num_shards, found.num_sampled) == (20, 3, 20)
    assert found.size is not None
    assert found.size <= manifest.num_bytes
    assert found.fields[0] == "number.cls: int64 as text"
