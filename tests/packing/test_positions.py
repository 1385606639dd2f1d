"""Datasets that get positions before they are packed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing.small import bad_at_7, dataset, odd, twice

import penstock as ps
from penstock._plan import node as plan
from penstock._plan.base import sources
from penstock.errors import PackError, PlanError, SourceError, SpecError
from penstock.packing import positions
from penstock.packing.disk import Disk
from penstock.packing.positions import Positioned, positioned
from penstock.packing.ticks import Watching
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


def is_odd(number: int) -> bool:
    return number % 2 == 1


def plus(number: int) -> int:
    return number + 1


def sequences() -> ps.Dataset:
    return ps.from_source([np.full(1 + number % 5, number) for number in range(COUNT)])


def given(ds: Any, folder: Path | None, **options: Any) -> Any:
    fixed: dict[str, Any] = {
        "on_error": None,
        "variants": 1,
        "num_threads": 2,
        "watching": Watching(),
        "disk": Disk(),
        "check": lambda ds: None,
    }
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
    "random numbers behind take": (lambda: ps.from_source(range(40)).filter(is_odd).take(9).map(noisy, seed=2).map(list), "map(noisy"),
    "random numbers behind batches": (lambda: ps.from_stream(Once()).batch(4).unbatch().filter(is_odd).map(noisy, seed=2), "map(noisy"),
    "random numbers behind skip": (lambda: ps.from_stream(Once()).skip(7).filter(is_odd).map(noisy).map(str).map(list), "map(noisy"),
    "random numbers behind a shuffle": (lambda: ps.from_stream(Once()).shuffle(8, seed=1).map(noisy).map(noisy), "map(noisy"),
    "random numbers of two passes": (lambda: ps.from_source(range(9)).filter(is_odd).repeat(2).map(noisy), "map(noisy"),
    "a stream in two passes": (lambda: ps.from_generator(lambda: iter(range(9))).repeat(2).map(noisy).map(list), "map(noisy"),
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


def test_an_error_of_a_function_is_its_own_and_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="number 7 is bad"), given(dataset().map(bad_at_7).filter(odd).take(9), tmp_path / "new"):
        pass
    with pytest.raises(SpecError, match="has no pickle"), given(ps.from_stream(Once([1, lambda: 1])), tmp_path / "new"):
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
        (lambda: ps.from_stream(Once()).take(3), {"variants": 2}, "what take(3) gives is read once, and would be the same in all variants"),
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
    with given(ps.from_stream(Once()), tmp_path, watching=Watching(progress="always")):
        pass
    assert f"reading {COUNT} elements" in capsys.readouterr().err


def test_the_check_sees_all_but_the_elements_before_they_are_read(tmp_path: Path) -> None:
    seen: list[Any] = []
    stream = Once()

    def check(ds: ps.Dataset) -> None:
        seen.append((str(ds), ds._root))
        raise KeyError("no")

    with pytest.raises(KeyError), given(ps.from_stream(stream).filter(is_odd).map(plus), tmp_path / "new", check=check):
        pass
    ((words, root),) = seen
    assert "map(plus)" in words
    assert [len(node.source) for node in sources(root)] == [0]
    assert len(list(stream)) == COUNT
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"num_workers": 0}, {"executor": "threads"}])
def test_a_dataset_that_is_read_inline_stays_in_its_thread(tmp_path: Path, options: dict[str, Any]) -> None:
    threads: list[int] = []

    def where(number: int) -> int:
        threads.append(threading.get_ident())
        return number

    with given(ps.from_stream(Once()).map(where).take(5).with_options(**options), tmp_path):
        pass
    assert (set(threads) == {threading.get_ident()}) == (options.get("executor") != "threads")


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(9):
        (tmp_path / "in" / f"{number}.txt").write_text("1")

    def change(element: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "in" / "8.txt").write_text("12")
        return element

    ds = ps.read_files(str(tmp_path / "in" / "*.txt")).map(change).filter(bool).take(5)
    with pytest.raises(SourceError, match=r"8\.txt' changed while it was packed"), given(ds, tmp_path / "out"):
        pass
    assert not (tmp_path / "out").exists()
