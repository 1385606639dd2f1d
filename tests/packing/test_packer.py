"""`ps.pack` as a user calls it. What goes wrong while it runs: tests/faults/test_packing.py."""

from __future__ import annotations

import io
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import bad_at_7, dataset, hashes, odd

import penstock as ps
from penstock.errors import PackError, PlanError, SourceError
from penstock.packing import estimate, packer


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


def test_a_finished_folder_that_lost_a_shard_gets_it_again_and_keeps_the_others(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_shards": 4, "on_error": ps.Skip()}
    bad = dataset(20).map(bad_at_7)
    packed(tmp_path, bad, **options)
    before = hashes(tmp_path)
    for number in (1, 3):
        (tmp_path / "out" / f"data-0000{number}-of-00004.tfrecord").unlink()
    kept = {number: (tmp_path / "out" / f"data-0000{number}-of-00004.tfrecord").stat().st_mtime_ns for number in (0, 2)}
    assert len(packed(tmp_path, bad, **options)) == 19
    assert hashes(tmp_path) == before
    assert {number: (tmp_path / "out" / f"data-0000{number}-of-00004.tfrecord").stat().st_mtime_ns for number in (0, 2)} == kept


def test_a_finished_folder_with_a_changed_shard_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    packed(tmp_path)
    before = hashes(tmp_path)
    path = tmp_path / "out" / "data-00001-of-00002.tfrecord"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PackError) as caught:
        packed(tmp_path)
    assert "'data-00001-of-00002.tfrecord' has" in str(caught.value)
    assert "remove it and call this again" in caught.value.fix
    path.unlink()
    packed(tmp_path)
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
    (tmp_path / "out" / "train-00000-of-00002.tfrecord").unlink()
    with pytest.raises(PackError) as caught:
        packed(tmp_path, name="train")
    assert "an unfinished packing of something else" in str(caught.value)


def test_a_filter_that_leaves_nothing_in_a_shard_makes_an_empty_one(tmp_path: Path) -> None:
    manifest = packed(tmp_path, ps.from_source([0, 0, 0, 1]).map(lambda number: {"number": number}).filter(odd), num_shards=4)
    assert [shard.count for shard in manifest.shards] == [0, 0, 0, 1]
    assert [int(one["number"]) for one in ps.read_packed(tmp_path / "out")] == [1]


def test_a_filter_that_leaves_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        packed(tmp_path, dataset(1).filter(odd))
    assert "all were filtered out" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_error": ps.Replace()}, "Replace() would put an element in place of another"),
        ({"on_error": 3}, "on_error=3 is no policy"),
        ({"executor": "magic"}, "executor='magic' is not known"),
        ({"num_workers": 0}, "num_workers=0"),
        ({"colour": 1}, "there is no option 'colour'"),
    ],
)
def test_arguments_that_cannot_be_are_errors(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        packed(tmp_path, **options)
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_sent_to_processes_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        packed(tmp_path, dataset(20).map(threading.Lock().__enter__), executor="processes")
    assert 'executor="threads"' in str(caught.value)
    with pytest.raises(PlanError) as caught:
        packed(tmp_path / "large", ps.from_arrays(np.zeros((2, 1 << 25), np.uint8)), executor="processes")
    assert "to send to each worker process: it holds its data in memory" in str(caught.value)


def where_made(number: int, folder: str) -> dict[str, object]:
    Path(folder, str(os.getpid())).touch()
    return {"number": number}


def as_memory(number: int) -> dict[str, object]:
    return {"data": memoryview(b"%d" % number)}


@pytest.mark.usefixtures("fork_server")
@pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX")
def test_workers_make_the_sample_and_this_process_only_what_they_cannot_send(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    packed(tmp_path, ps.from_source(range(90)).map(partial(where_made, folder=str(pids))), executor="processes", num_workers=2)
    assert len(made := {int(path.name) for path in pids.iterdir()}) == 2
    assert os.getpid() not in made
    ds = ps.from_source(range(90)).map(as_memory)
    manifests = [packed(tmp_path / executor, ds, executor=executor) for executor in ("processes", "threads")]
    assert manifests[0].record == manifests[1].record


@pytest.mark.usefixtures("fork_server")
@pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX")
def test_files_are_looked_at_before_a_worker_reads_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noting(name: str, function: Any) -> Any:
        return lambda *arguments: (done.append(name), function(*arguments))[1]

    monkeypatch.setattr(packer, "look", noting("look", packer.look))
    monkeypatch.setattr(packer.Early, "ahead", noting("sample", packer.Early.ahead))
    packed(tmp_path, executor="processes")
    assert done == ["look", "sample"]


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


def test_a_bar_is_drawn_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    told: list[tuple[str, float]] = []
    counts: list[float] = []

    class Noting:
        def __init__(self, what: str, total: float, **options: Any) -> None:
            told.append((what, total))

        def __enter__(self) -> Noting:
            return self

        def __exit__(self, *error: object) -> None:
            return None

        def advance(self, count: float = 1) -> None:
            counts.append(count)

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys.modules["penstock.packing.options"], "Progress", Noting)  # its own drawing begins after two seconds
    packed(tmp_path, progress=True)
    assert told == [("packing", 20)]
    assert sorted(counts) == [10, 10], "a shard at a time"


def test_what_several_stages_leave_out_is_listed_in_the_same_order_by_any_workers(tmp_path: Path) -> None:
    def bad(value: Any) -> Any:
        if int(np.sum(value)) % 7 == 3:
            raise ValueError(f"bad {value}")
        return value

    for name, source in (("stream", ps.from_generator(lambda: iter(range(60)))), ("positions", ps.from_source(range(60)))):
        ds = source.map(bad).window(3, 2).map(bad).batch(2).map(bad)
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


def test_an_estimate_says_what_would_come_and_writes_nothing(tmp_path: Path) -> None:
    found = estimate(dataset(20), num_workers=2, num_shards=3, format="tar")
    manifest = ps.pack(dataset(20), tmp_path / "out", executor="threads", num_shards=3, format="tar")
    assert (found.count, found.num_shards, found.num_sampled) == (20, 3, 20)
    assert found.size is not None
    assert found.size <= manifest.num_bytes
    assert found.seconds is not None
    assert found.seconds > 0
    assert found.fields[0] == "number.cls: int64 as text"
