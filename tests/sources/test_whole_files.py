from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock._contracts.source import TransientSource
from penstock._contracts.transform import Scratch
from penstock._ops.block import Block
from penstock.sources import paths
from penstock.sources.files import FilesSource, ImageFolderSource, ListSource

COUNT = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "class").mkdir()
    for number in range(COUNT):
        (tmp_path / "class" / f"{number:02}.jpg").write_bytes(bytes([number]) * 10)
    (tmp_path / "list.txt").write_text("".join(f"class/{number:02}.jpg {number}\n" for number in range(COUNT)))
    return tmp_path


SOURCES: dict[str, Callable[[Path], Any]] = {
    "files": lambda folder: FilesSource(str(folder / "class" / "*.jpg")),
    "folder": ImageFolderSource,
    "list": lambda folder: ListSource(folder / "list.txt"),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that the system is asked to read ahead, in order; it is asked all the same."""
    names: list[str] = []
    real = os.posix_fadvise

    def advise(descriptor: int, *rest: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor, *rest)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    return names


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every read count as slow."""
    monkeypatch.setattr(paths, "_SLOW_READ_NS", -1)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_slow_read_has_the_next_files_fetched_each_of_them_once(kind: str, folder: Path, asked: list[str], slow: None) -> None:
    source = SOURCES[kind](folder)
    assert isinstance(source, TransientSource)
    rows: list[Any] = []
    source.gather(list(range(COUNT)), rows)
    names = [f"{number:02}.jpg" for number in range(1, COUNT)]
    assert asked == names
    asked.clear()
    zeros = np.zeros(COUNT, np.int64)
    made = Block(zeros, np.arange(COUNT), zeros.astype(np.uint64), source=source, transient=source)
    scratch = Scratch()
    assert [bytes(made.read_transient(offset, scratch)["data"]) for offset in range(COUNT)] == [bytes([n]) * 10 for n in range(COUNT)]
    assert asked == names


@pytest.mark.parametrize("kind", SOURCES)
def test_files_in_memory_are_read_without_it(kind: str, folder: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_SLOW_READ_NS", 10**12)
    SOURCES[kind](folder).gather(list(range(COUNT)), [])
    assert asked == []


def test_no_more_than_a_few_files_are_fetched_at_once(folder: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = FilesSource(str(folder / "class" / "*.jpg"))
    slow = iter([-1] + [10**12] * 100)
    monkeypatch.setattr(paths, "_SLOW_READ_NS", _Each(slow))
    source.gather(list(range(COUNT)), [])
    assert len(asked) == paths._NUM_AHEAD


class _Each:
    """A bound that is another one at each comparison."""

    def __init__(self, bounds: Any) -> None:
        self._bounds = bounds

    def __gt__(self, other: int) -> bool:
        return bool(next(self._bounds) > other)


def test_a_worker_that_reads_two_sources_in_turn_asks_each_for_its_own(folder: Path, asked: list[str], slow: None) -> None:
    many = FilesSource(str(folder / "class" / "*.jpg"))
    few = FilesSource(str(folder / "class" / "0[12].jpg"))
    scratch, last = Scratch(), np.array([COUNT - 1])
    few.read_transient(0, scratch, np.array([1]))
    many.read_transient(COUNT - 2, scratch, last)
    few.read_transient(1, scratch, np.array([0]))
    assert asked == ["02.jpg", f"{COUNT - 1}.jpg", "01.jpg"]


def test_a_file_that_is_not_there_is_told_when_it_is_read(folder: Path, asked: list[str], slow: None) -> None:
    source, rows = FilesSource(str(folder / "class" / "*.jpg")), []
    os.remove(folder / "class" / "03.jpg")
    with pytest.raises(FileNotFoundError, match=r"03\.jpg"):
        source.gather(list(range(COUNT)), rows)
    assert len(rows) == 3
    assert "03.jpg" not in asked


@pytest.mark.parametrize("name", ["pipe", "directory"])
def test_nothing_is_waited_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path) if name == "pipe" else path.mkdir()
    caller = threading.Thread(target=paths.fetch_ahead, args=(str(path),), daemon=True)
    caller.start()
    caller.join(20)
    assert not caller.is_alive()


def test_a_system_without_the_call_reads_as_ever(folder: Path, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise")
    rows: list[Any] = []
    FilesSource(str(folder / "class" / "*.jpg")).gather(list(range(COUNT)), rows)
    assert len(rows) == COUNT
