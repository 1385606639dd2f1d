"""Datasets whose elements only reading tells, as one reader packs them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core import core
from packing.small import Disk, FailingDisk, Stream, bad_at_7, dataset, element, hashes, odd, twice

import penstock as ps
from penstock.errors import PackError, PlanError, RecordError, SourceError, SpecError, TooManySkipped
from penstock.formats.tfrecord import RecordWriter
from penstock.packing import estimate
from penstock.packing.disk import lock_folder
from penstock.testing.runs import plain

COUNT = 30


class Once:
    """A stream that can be read once."""

    def __init__(self, elements: Any = range(COUNT)) -> None:
        self._elements = iter(elements)

    def __iter__(self) -> Iterator[Any]:
        yield from self._elements


class Numbers:
    """A stream that counts how often it is read."""

    def __init__(self, count: int = 60) -> None:
        self.count, self.num_passes = count, 0

    def __iter__(self) -> Iterator[dict[str, int]]:
        self.num_passes += 1
        yield from ({"number": number} for number in range(self.count))


def packed(tmp_path: Path, ds: Any, **options: Any) -> Any:
    return ps.pack(ds, tmp_path / "out", **options)


def noisy(number: Any, rng: np.random.Generator) -> dict[str, Any]:
    return {"number": number, "noise": float(rng.random())}


def drawn(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**element, "drawn": rng.random()}


def is_odd(number: int) -> bool:
    return number % 2 == 1


def lengths() -> ps.Dataset:
    return ps.from_source([np.full(1 + number % 5, number) for number in range(COUNT)]).map(len)


STREAMS: dict[str, Callable[[], ps.Dataset]] = {
    "stream": lambda: ps.from_stream(Once()),
    "generator": lambda: ps.from_generator(lambda: iter(range(COUNT))).map(float).prefetch(2),
    "promised": lambda: ps.from_generator(lambda: iter(range(9)), fast_forward=True, length=9).take(5).filter(bool),
    "random numbers": lambda: ps.from_stream(Once()).map(noisy, seed=2).filter(bool).map(dict),
    "first of a filter": lambda: dataset().filter(odd).take(5).map(len),
    "batches of a filter": lambda: lengths().filter(bool).batch(4),
    "buffer": lambda: ps.from_stream(Once()).shuffle(8, seed=1).flat_map(lambda number: [number] * (number % 3)),
    "two passes": lambda: dataset().flat_map(twice).repeat(2),
    "random numbers behind take": lambda: ps.from_source(range(40)).filter(is_odd).take(9).map(noisy, seed=2),
}


@pytest.mark.parametrize(("name", "fmt"), core([(name, fmt) for fmt in ("tfrecord", "tar") for name in STREAMS], len(STREAMS) + 1))
def test_what_is_packed_is_what_a_feed_gives(tmp_path: Path, name: str, fmt: str) -> None:
    whole = [plain(one) for one in STREAMS[name]().feed(executor="inline")]
    for workers, shard_bytes in ((1, None), (3, 300)):
        manifest = ps.pack(STREAMS[name](), tmp_path / str(workers), num_workers=workers, shard_bytes=shard_bytes, format=fmt)
        assert repr([plain(one) for one in ps.read_packed(tmp_path / str(workers))]) == repr(whole)
        assert (len(manifest.shards) == 1) == (shard_bytes is None or manifest.num_bytes < 400 or (fmt == "tar" and len(whole) < 2))
        assert sum(shard.count for shard in manifest.shards) == manifest.record["num_positions"] == len(whole)
        assert not list(tmp_path.rglob(".packing"))


def test_any_number_of_workers_writes_the_same_and_a_rerun_writes_nothing(tmp_path: Path) -> None:
    stream = Numbers()
    ds = ps.from_stream(stream).map(drawn).filter(odd)
    manifests = [ps.pack(ds, tmp_path / f"out{workers}", num_workers=workers, shard_bytes=200) for workers in (1, 2)]
    assert stream.num_passes == 2
    assert hashes(tmp_path / "out1") == hashes(tmp_path / "out2")
    assert len(manifests[0].shards) > 3
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out1").iterdir()}
    assert ps.pack(ds, tmp_path / "out1", shard_bytes=200).was_there
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out1").iterdir()} == before
    for other, options, words in (
        (ps.from_stream(Numbers()).map(drawn, seed=1).filter(odd), {}, "its dataset is another"),
        (ds, {"shard_bytes": 300}, "its options is another"),
    ):
        with pytest.raises(PackError) as caught:
            ps.pack(other, tmp_path / "out1", **{"shard_bytes": 200, **options})
        assert "the folder holds a packed dataset 'data' already" in caught.value.what
        assert words in caught.value.what
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out1").iterdir()} == before


def test_compressed_records_are_packed(tmp_path: Path) -> None:
    records = [f"record {number}".encode() * (number % 9) for number in range(1000)]
    for shard in range(3):
        with (tmp_path / f"{shard}.tfrecord.gz").open("wb") as file, RecordWriter(file, "GZIP") as writer:
            for record in records[shard * 300 : 1000 if shard == 2 else shard * 300 + 300]:
                writer.write(record)
    ds = ps.read_tfrecord(str(tmp_path / "*.gz"), compression="GZIP")
    assert packed(tmp_path, ds, shard_bytes=20_000).record["num_shards"] > 2
    assert [element["record"] for element in ps.read_packed(tmp_path / "out")] == records
    assert packed(tmp_path, ds, shard_bytes=20_000).was_there


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda: ps.from_stream(Once()).repeat(), {}, "an endless dataset cannot be packed"),
        (lambda: dataset().filter(odd).repeat().batch(2), {}, "an endless dataset cannot be packed"),
        (lambda: ps.from_stream(Once()), {"shuffle": 3}, "shuffle= reads it in any order"),
        (lambda: ps.from_stream(Once()), {"num_shards": 2}, "how many elements belong to each of several shards shows at its end"),
    ],
)
def test_what_cannot_be_packed_is_an_error_before_it_is_read(tmp_path: Path, make: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        packed(tmp_path, make(), **options)
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_destination_inside_a_folder_that_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").touch()
    with pytest.raises(PlanError, match="lies inside"):
        packed(tmp_path, ps.read_images(str(tmp_path)).filter(bool).take(1))


def test_what_speaks_against_packing_a_stream_is_told_before_it_is_read(tmp_path: Path) -> None:
    stream = Numbers()
    ds = ps.from_stream(stream).filter(odd)
    packed(tmp_path, ds)
    assert stream.num_passes == 1
    lock = lock_folder(str(tmp_path / "out"), shared=True)
    with pytest.raises(PackError, match="another packer is at work"):
        packed(tmp_path, ds)
    os.close(lock)
    (tmp_path / "out" / "data-manifest.json").write_text("{")
    with pytest.raises(RecordError, match="the manifest cannot be read"):
        packed(tmp_path, ds)
    (tmp_path / "out" / "data-manifest.json").unlink()
    with pytest.raises(PackError, match="is there already, and nothing says what it is"):
        packed(tmp_path, ds)
    assert stream.num_passes == 1


def test_an_error_of_a_function_is_its_own_and_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="number 7 is bad"):
        packed(tmp_path, dataset().map(bad_at_7).filter(odd).take(9), shard_bytes=100)
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(SourceError, match="no element is left to write"):
        packed(tmp_path, dataset().filter(lambda element: False).take(9))
    assert len(packed(tmp_path, dataset().filter(odd).take(9))) == 9


def mixed(number: int) -> Any:
    return {"number": number, "text": None if number % 50 == 20 else "a"} if number != 99 else {"other": number}


def test_elements_that_differ_are_named_or_left_out(tmp_path: Path) -> None:
    numbers = ps.from_generator(lambda: iter(range(200))).map(mixed)
    with pytest.raises(SpecError) as caught:
        packed(tmp_path, numbers)
    assert "field 'text' is a NoneType" in caught.value.what
    assert any("element 20 of" in note for note in caught.value.__notes__)
    with pytest.raises(SpecError) as caught:
        packed(tmp_path, numbers.filter(lambda element: element.get("text", "") is not None))
    assert "the element has the fields other; the sample has the fields number, text" in caught.value.what
    assert any("element 97 of" in note for note in caught.value.__notes__)
    manifest = packed(tmp_path, numbers, on_error=ps.Skip())
    assert [(lost["shard"], lost["key"], lost["stage"], lost["error"]) for lost in manifest.skipped] == [
        (None, [[0, number, 0]], "pack", "SpecError") for number in (20, 70, 99, 120, 170)
    ]
    assert len(manifest) == 195
    with pytest.raises(TooManySkipped, match="5 of 200 elements failed, limit 4"):
        packed(tmp_path / "few", numbers, on_error=ps.Skip(4))


def test_what_is_left_out_while_it_is_read_belongs_to_no_shard_and_counts(tmp_path: Path) -> None:
    ds = dataset(20).map(bad_at_7).filter(odd).take(9)
    manifest = packed(tmp_path, ds, on_error=ps.Skip(1))
    (lost,) = manifest.skipped
    assert (len(manifest), lost["shard"], lost["key"], lost["error"]) == (9, None, [[0, 7, 0]], "ValueError")
    assert packed(tmp_path, ds, on_error=ps.Skip(1)).was_there
    with pytest.raises(TooManySkipped, match="1 of 10 elements failed, limit"):
        packed(tmp_path / "other", ds, on_error=ps.Skip(0.01))


def test_an_endless_stream_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"1" * 1000

    look, calls = os.statvfs, [0]

    def nearly_full(path: Any) -> Any:
        values = list(look(path)[:10])
        calls[0] += 1
        values[2], values[4] = 1000, 51 if calls[0] < 3 else 49  # f_blocks, f_bavail
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pytest.raises(PackError) as caught:
        packed(tmp_path, ps.from_generator(endless), shard_bytes=50_000)
    assert "102 kB of a stream were written, and the disk is nearly full" in caught.value.what
    assert "take(n)" in caught.value.fix
    assert not list((tmp_path / "out").iterdir())


def test_progress_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("penstock.observe.progress._LOG_EVERY_S", 0)
    packed(tmp_path, ps.from_stream(Once()), progress="always")
    assert f"packing {COUNT} elements" in capsys.readouterr().err
    packed(tmp_path / "known", ps.from_generator(lambda: iter(range(5)), length=5), progress="always")
    assert "5/5 elements" in capsys.readouterr().err


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"num_workers": 0}, {"executor": "threads"}])
def test_a_dataset_that_is_read_inline_stays_in_its_thread(tmp_path: Path, options: dict[str, Any]) -> None:
    threads: list[int] = []

    def where(number: int) -> int:
        threads.append(threading.get_ident())
        return number

    packed(tmp_path, ps.from_stream(Once()).map(where).take(5).with_options(**options))
    assert (set(threads) == {threading.get_ident()}) == (options.get("executor") != "threads")


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(9):
        (tmp_path / "in" / f"{number}.txt").write_text("1")

    def change(element: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "in" / "8.txt").write_text("12")
        return element

    with pytest.raises(SourceError, match=r"8\.txt' changed while it was packed"):
        packed(tmp_path, ps.read_files(str(tmp_path / "in" / "*.txt")).map(change).filter(bool).take(5))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_every_step_on_the_disk_may_fail_and_a_rerun_writes_all(tmp_path: Path) -> None:
    def run(dest: Path, disk: Disk) -> None:
        with disk.used():
            ps.pack(ps.from_stream(Stream()).map(element, seed=5).take(12), dest, num_workers=1, shard_bytes=700)

    counting = FailingDisk(-1)
    run(tmp_path / "reference", counting)
    expected = hashes(tmp_path / "reference")
    for at in range(counting.count):
        dest = tmp_path / str(at)
        with pytest.raises(OSError) as caught:
            run(dest, FailingDisk(at))
        assert caught.value.errno == errno.ENOSPC
        run(dest, Disk())
        assert hashes(dest) == expected


def test_a_stream_is_estimated_by_its_first_elements() -> None:
    found = estimate(ps.from_stream(Stream()).map(element, seed=5))
    assert (found.count, found.size, found.num_shards, found.num_sampled) == (None, None, None, 64)
    assert 150 < found.mean_bytes < 400
    found = estimate(ps.from_stream(Stream()).map(element, seed=5).take(40), shard_bytes=3000)
    assert (found.count, found.num_sampled, found.num_shards) == (40, 40, 3)
