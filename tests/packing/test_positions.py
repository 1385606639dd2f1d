"""Datasets that get positions before they are packed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import bad_at_7, dataset, odd, twice

import penstock as ps
from penstock._plan import node as plan
from penstock.errors import PackError, PlanError, SpecError
from penstock.packing import positions
from penstock.packing.disk import Disk
from penstock.packing.positions import Positioned, positioned
from penstock.sources.kept import KeptSource

COUNT = 30


class Once:
    """A stream that can be read once."""

    def __init__(self, elements: Any = range(COUNT)) -> None:
        self._elements = iter(elements)

    def __iter__(self) -> Iterator[Any]:
        yield from self._elements


def noisy(number: Any, rng: np.random.Generator) -> tuple[Any, float]:
    return number, float(rng.random())


def plus(number: int) -> int:
    return number + 1


def sequences() -> ps.Dataset:
    return ps.from_source([np.full(1 + number % 5, number) for number in range(COUNT)])


def given(ds: Any, folder: Path | None, **options: Any) -> Any:
    fixed: dict[str, Any] = {"on_error": None, "variants": 1, "num_threads": 2, "progress": False, "disk": Disk()}
    return positioned(ds, None if folder is None else str(folder), **{**fixed, **options})


def source_of(found: Positioned) -> Any:
    node: Any = found.dataset._root
    while not isinstance(node, plan.Read):
        node = node.child
    return node.source


WITH = {
    "plain": dataset,
    "filter": lambda: dataset().shuffle(seed=3).filter(odd).map(len),
    "counted": lambda: ps.from_generator(lambda: iter(range(9)), fast_forward=True, length=9).take(5).filter(bool),
}
WITHOUT: dict[str, tuple[Callable[[], ps.Dataset], str]] = {
    "stream": (lambda: ps.from_stream(Once()), "from_stream(Once)"),
    "generator": (lambda: ps.from_generator(lambda: iter(range(COUNT))).map(plus).prefetch(2), "from_generator"),
    "random numbers": (lambda: ps.from_stream(Once()).map(noisy, seed=2).filter(bool).map(list), "from_stream(Once)"),
    "first of a filter": (lambda: dataset().filter(odd).take(5).map(len), "take(5)"),
    "batches of a filter": (lambda: sequences().map(len).filter(bool).batch(4).map(np.copy), "batch(4)"),
    "buffer": (lambda: ps.from_stream(Once()).shuffle(8, seed=1).flat_map(lambda number: [number] * (number % 3)), "shuffle"),
    "packed": (lambda: sequences().pack_sequences(16).map(dict), "pack_sequences"),
    "two passes": (lambda: dataset().flat_map(twice).repeat(2), "repeat(2)"),
}


@pytest.mark.parametrize("name", WITH)
def test_what_has_positions_or_is_counted_stays_as_it_is(tmp_path: Path, name: str) -> None:
    ds = WITH[name]()
    with given(ds, tmp_path / "new") as found:
        assert repr(list(found.dataset)) == repr(list(ds))
        assert (found.below, found.lost) == (None, ())
        assert not isinstance(source_of(found), KeptSource)
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", WITHOUT)
def test_what_only_reading_tells_is_read_once_and_gives_the_same(tmp_path: Path, name: str) -> None:
    make, below = WITHOUT[name]
    whole = list(make().feed(executor="inline"))
    with given(make(), tmp_path / "new") as found:
        assert repr(list(found.dataset.feed(num_workers=3))) == repr(whole)
        assert repr(list(found.dataset.feed(executor="inline"))) == repr(whole)
        assert source_of(found).label().startswith(below)
        (path,) = (tmp_path / "new").iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "new").exists()


def test_without_a_folder_nothing_stays_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with given(ps.from_stream(Once()), None) as found:
        assert list(found.dataset) == list(range(COUNT))
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_there_stays_and_one_that_is_used_too(tmp_path: Path) -> None:
    with given(ps.from_stream(Once()), tmp_path):
        pass
    assert tmp_path.is_dir()
    with given(ps.from_stream(Once()), tmp_path / "new"):
        (tmp_path / "new" / "shard").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["shard"]


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    left, used, other = (tmp_path / name for name in (".penstock-a.kept", ".penstock-b.kept", "c.kept"))
    for path in (left, used, other):
        path.write_bytes(b"1")
    with used.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with given(ps.from_stream(Once()), tmp_path), given(ps.from_stream(Once()), tmp_path) as found:
            assert len(list(found.dataset)) == COUNT
            assert len(list(tmp_path.iterdir())) == 4
    assert sorted(tmp_path.iterdir()) == [used, other]


def test_an_error_of_a_function_is_its_own_and_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="number 7 is bad"), given(dataset().map(bad_at_7).filter(odd).take(9), tmp_path / "new"):
        pass
    with pytest.raises(SpecError, match="cannot be kept"), given(ps.from_stream(Once([1, lambda: 1])), tmp_path / "new"):
        pass
    assert not list(tmp_path.iterdir())


def test_what_is_left_out_is_listed(tmp_path: Path) -> None:
    with given(dataset(20).map(bad_at_7).filter(odd).take(9), tmp_path, on_error=ps.Skip()) as found:
        assert [one["number"] for one in found.dataset] == [1, 3, 5, 9, 11, 13, 15, 17, 19]
        (lost,) = found.lost
    assert (lost["key"], lost["error"], lost["text"], lost["stage"]) == ([[0, 7, 0]], "ValueError", "number 7 is bad", "bad_at_7")


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda: [1, 2], {}, "is not a Dataset"),
        (lambda: ps.from_stream(Once()).repeat(), {}, "an endless dataset cannot be packed"),
        (lambda: dataset().filter(odd).repeat().batch(2), {}, "an endless dataset cannot be packed"),
        (lambda: ps.from_stream(Once()), {"on_error": ps.Replace(1)}, "Replace() would put an element"),
        (lambda: ps.from_stream(Once()), {"on_error": 3}, "on_error"),
        (lambda: ps.from_stream(Once()).map(noisy, seed=2).take(3), {"variants": 2}, "put that map above take(3)"),
    ],
)
def test_what_cannot_be_read_is_an_error_before_it_is(tmp_path: Path, make: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught, given(make(), tmp_path / "new", **options):
        pass
    assert words in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_destination_inside_a_folder_that_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").touch()
    with pytest.raises(PlanError, match="lies inside"), given(ps.read_images(str(tmp_path)).filter(bool).take(1), tmp_path / "out"):
        pass


def test_an_endless_stream_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"1" * 1000

    look = os.statvfs

    def nearly_full(path: Any) -> Any:
        values = list(look(path)[:10])
        values[2], values[4] = 1000, 49  # f_blocks, f_bavail
        return os.statvfs_result(values)

    monkeypatch.setattr(positions, "_LOOK_BYTES", 50_000)
    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pytest.raises(PackError) as caught, given(ps.from_generator(endless), tmp_path):
        pass
    assert "the disk is nearly full" in caught.value.what
    assert "take(n)" in caught.value.fix
    assert not list(tmp_path.iterdir())


def test_progress_is_shown_without_a_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("penstock.observe.progress._LOG_EVERY_S", 0)
    with given(ps.from_stream(Once()), tmp_path, progress="always"):
        pass
    assert f"reading {COUNT} elements" in capsys.readouterr().err
