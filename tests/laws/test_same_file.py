"""How a file can change under an index or a cache: what is read is right, or an error, and never what no file holds."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core import core

import penstock as ps
from penstock._storage import open_storage
from penstock._storage.sameness import WHOLE_BYTES, sample, sampled_spans, stamps
from penstock.cli.command import main
from penstock.errors import IndexStale, PenstockError, SourceError
from penstock.formats.index import beside, decode, parts
from penstock.sources import indexing

PAST_NS = 1_000_000_000_000_000_000


def aged(path: Path, time_ns: int = PAST_NS) -> None:
    os.utime(path, ns=(time_ns, time_ns))


def replaced(path: Path, data: bytes) -> None:
    """As `cp -p` and `mv`, `rsync -t`, or a backup that is restored."""
    new = path.with_name("new")
    new.write_bytes(data)
    aged(new)
    os.replace(new, path)


def rewritten(path: Path, data: bytes) -> None:
    """As `rsync -t --inplace`."""
    with open(path, "r+b") as file:
        file.write(data)
    aged(path)


def cut_and_padded(path: Path, data: bytes) -> None:
    os.truncate(path, 3)
    with open(path, "r+b") as file:
        file.truncate(len(data))
        file.write(data)
    aged(path)


def made_again(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)
    aged(path)


def edited(path: Path, data: bytes) -> None:
    path.write_bytes(data)


CHANGES = (replaced, rewritten, cut_and_padded, made_again, edited)


def texts(data: bytes) -> list[Any]:
    return [{"text": line} for line in data.decode().split("\n")[:-1]]


def values(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def rows(data: bytes) -> list[Any]:
    return [{"a": one, "b": other} for one, other in csv.reader(data.decode().splitlines(keepends=True)[1:])]


def numbers(data: bytes) -> list[Any]:
    return [{key: int(value) for key, value in row.items()} for row in rows(data)]


READERS: dict[str, tuple[Callable[[Path], ps.Dataset], Callable[[bytes], list[Any]]]] = {
    "text": (ps.read_text, texts),
    "jsonl": (ps.read_jsonl, values),
    "csv": (ps.read_csv, rows),
    "csv of numbers": (lambda path: ps.read_csv(path, columns={"a": np.int64, "b": np.int64}), numbers),
}


def contents(kind: str, size: int, seed: int) -> bytes:
    """Return so many bytes of lines, which end at other places for another seed."""
    rng, is_csv = random.Random(seed), kind.startswith("csv")
    widest, tail = (12, ",1\n") if kind == "csv of numbers" else (300, ",1\n" if is_csv else "\n")
    out = ["a,b\n"] if is_csv else []
    left = size - sum(map(len, out))
    while left > 2 * (widest + 8):
        word = "".join(rng.choices("123456789", k=rng.randrange(1, widest)))
        out.append(f'"{word}\n,"{tail}' if kind == "csv" and rng.random() < 0.3 else word + tail)
        left -= len(out[-1])
    out += ["7" * (part - len(tail)) + tail for part in (left // 2, left - left // 2)]
    return "".join(out).encode()


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a file that is shorter than it was
        yield


@pytest.mark.parametrize("size", core([1000, 300_000]), ids=["small", "large"])
@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_between_two_openings_is_read_as_it_is(
    tmp_path: Path, kind: str, change: Callable[[Path, bytes], None], size: int
) -> None:
    path, (read, right) = tmp_path / "data", READERS[kind]
    before, now = contents(kind, size, 1), contents(kind, size, 2)
    assert len(before) == len(now)
    path.write_bytes(before)
    aged(path)
    assert list(read(path)) == right(before)
    change(path, now)
    assert list(read(path)) == right(now)
    if kind == "csv of numbers" and size > WHOLE_BYTES:
        return  # so many elements take long in a cache
    assert list(read(path).cache(tmp_path / "cache")) == right(now)
    change(path, before)
    assert list(read(path).cache(tmp_path / "cache")) == right(before)


LINE = "7" * 59


@pytest.mark.parametrize("kind", ["text", "jsonl", "csv"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_end_of_a_record_that_moved_where_no_sample_looks_is_an_error_until_the_index_is_built_again(
    tmp_path: Path, kind: str, change: Callable[[Path, bytes], None]
) -> None:
    path, (read, right) = tmp_path / "data", READERS[kind]
    tail = ",1\n" if kind == "csv" else "\n"
    before = (("a,b\n" if kind == "csv" else "") + (LINE + tail) * 6000).encode()
    places, length = sampled_spans(len(before))
    place = before.index(b"\n", int(places[7]) + length) + 1
    moved = (LINE[:40] + tail + "7" * (2 * len(LINE) - 40) + tail).encode()
    now = before[:place] + moved + before[place + len(moved) :]
    assert place + len(moved) < places[8]
    path.write_bytes(before)
    aged(path)
    opened = read(path)
    change(path, now)
    for dataset in (opened, read(path)):
        is_open_still = dataset is opened and change in (replaced, made_again)
        with contextlib.suppress(IndexStale):
            assert list(dataset) == right(before if is_open_still else now)
    assert main(["index", str(path), "--rebuild", "--format", kind]) == 0
    assert list(read(path)) == right(now)


@pytest.mark.parametrize("kind", ["text", "jsonl", "csv"])
def test_a_record_whose_ends_are_not_where_they_were_says_what_to_do(tmp_path: Path, kind: str) -> None:
    path, (read, right) = tmp_path / "data", READERS[kind]
    head, tail = ("a,b\n", ",1\n") if kind == "csv" else ("", "\n")
    path.write_text(head + f"12{tail}345{tail}6789{tail}")
    dataset = read(path)
    storage: Any = dataset._root.source  # type: ignore[attr-defined]
    assert list(dataset) == right(path.read_bytes())
    path.write_text(head + f"1{tail}2345{tail}6789{tail}")
    storage._storage.trust(np.array([sample(open_storage(path, "x"), 0)], np.uint32))
    for number in range(2):
        with pytest.raises(IndexStale) as caught:
            dataset[number]
        assert caught.value.what == "the file changed since it was indexed: a record does not begin or end where it did"
        assert "record" in caught.value.where
        assert caught.value.fix.endswith("build the index again (penstock index --rebuild)")
    assert dataset[2] == right(path.read_bytes())[2]


@pytest.mark.parametrize("kind", READERS)
def test_a_folder_that_was_copied_with_its_indices_is_not_indexed_again(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, right = READERS[kind]
    data = contents(kind, 300_000, 1)
    assert len(data) > WHOLE_BYTES
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "data").write_bytes(data)
    aged(tmp_path / "there" / "data")
    read(tmp_path / "there" / "data")
    shutil.copytree(tmp_path / "there", tmp_path / "here")  # with times, as cp -a
    monkeypatch.setattr(indexing, "build", None)
    monkeypatch.setattr(indexing._Pieces, "plain", None)
    assert list(read(tmp_path / "here" / "data")) == right(data)


def test_an_index_of_an_earlier_version_beside_its_file_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    path.write_bytes(contents("text", 300_000, 1))
    aged(path)
    ps.read_text(path)
    found = decode(Path(beside(str(path))).read_bytes(), "x")
    del found.identity["mark"]  # type: ignore[attr-defined]
    Path(beside(str(path), old=True)).write_bytes(b"".join(parts(found)))
    shutil.rmtree(tmp_path / ".penstock")
    monkeypatch.setattr(indexing, "build", None)
    assert list(ps.read_text(path)) == texts(path.read_bytes())
    assert not (tmp_path / ".penstock").exists()


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_corrected_is_not_taken_from_a_cache_nor_from_what_was_packed(
    tmp_path: Path, change: Callable[[Path, bytes], None]
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(200):
        (tmp_path / "in" / f"{number:03}").write_bytes(b"old %3d" % number + bytes(20_000))
        aged(tmp_path / "in" / f"{number:03}")

    def read() -> list[bytes]:
        return [element["data"] for element in ps.read_files(tmp_path / "in" / "*").cache(tmp_path / "cache")]

    def pack() -> None:
        ps.pack(ps.read_files(tmp_path / "in" / "*"), tmp_path / "out", executor="threads", num_shards=1)

    first = read()
    pack()
    assert read() == first
    for number in (5, 70, 199):
        data = bytearray(first[number])
        data[10_000:10_009] = b"corrected"
        change(tmp_path / "in" / f"{number:03}", bytes(data))
    assert [number for number, (one, other) in enumerate(zip(first, read(), strict=True)) if one != other] == [5, 70, 199]
    with pytest.raises(PenstockError, match="the input files have changed"):
        pack()


def test_a_stamp_shows_every_change_and_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    aged(path)
    seen = [stamps([str(path)]).tolist()]
    for change in CHANGES[:-1]:
        change(path, b"xyz")
        seen.append(stamps([str(path)]).tolist())
        assert stamps([str(path)]).tolist() == seen[-1]
    assert len({str(stamp) for stamp in seen}) == len(seen)
    assert [stamp[0][:2] for stamp in seen] == [[3, PAST_NS]] * len(seen)
    path.unlink()
    assert stamps([str(path)])[0, :2].tolist() == [-1, 2]
    assert stamps([]).shape == (0, 3)
    with pytest.raises(SourceError):
        ps.read_files(str(path))
