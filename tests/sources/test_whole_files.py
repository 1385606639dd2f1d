from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import kernels
from penstock._contracts.source import TransientSource
from penstock._contracts.transform import Scratch
from penstock._ops.block import Block, ElementFailed
from penstock.kernels import checked
from penstock.kernels.library import load_library
from penstock.sources import paths
from penstock.sources.files import FilesSource, ImageFolderSource, ListSource

COUNT = 40
needs_library = pytest.mark.skipif(load_library() is None, reason="the C library was not built here")


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


def whole(source: Any) -> Block:
    zeros = np.zeros(len(source), np.int64)
    return Block(zeros, np.arange(len(source)), zeros.astype(np.uint64), source=source, transient=source)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many files each call of the kernel has read."""
    counts: list[int] = []
    real = kernels.read_files
    monkeypatch.setattr(kernels, "read_files", lambda *given: counts.append(real(*given)) or counts[-1])  # type: ignore[func-returns-value]
    monkeypatch.setattr(paths, "_SLOW_READ_NS", 10**12)
    return counts


@needs_library
@pytest.mark.parametrize("kind", SOURCES)
def test_files_in_memory_are_read_several_at_a_time(kind: str, folder: Path, calls: list[int], asked: list[str]) -> None:
    source = SOURCES[kind](folder)
    made, scratch = whole(source), Scratch()
    rows: list[Any] = []
    source.gather(list(range(COUNT)), rows)
    for offset in range(COUNT):
        element = made.read_transient(offset, scratch)
        assert {**element, "data": bytes(element["data"])} == rows[offset]
        assert made.begun == offset
    assert calls == [17, 17, 6]
    assert asked == []


@needs_library
def test_files_that_do_not_fit_together_are_read_one_by_one(folder: Path, calls: list[int]) -> None:
    sizes = [10, paths._FIRST_BYTES, 20, paths._FIRST_BYTES - 30, 5, 0, 7]
    for number, size in enumerate(sizes):
        (folder / "class" / f"{number:02}.jpg").write_bytes(bytes([number]) * size)
    source, scratch = FilesSource(str(folder / "class" / "0[0-6].jpg")), Scratch()
    made = whole(source)
    for number, size in enumerate(sizes):
        assert bytes(made.read_transient(number, scratch)["data"]) == bytes([number]) * size
    assert calls == [1, 0, 3, 0]


@needs_library
def test_a_block_that_stops_at_a_file_reads_that_one_and_the_next_again(folder: Path, calls: list[int]) -> None:
    source, scratch = FilesSource(str(folder / "class" / "*.jpg")), Scratch()
    (folder / "class" / "02.jpg").unlink()
    made = whole(source)
    assert [bytes(made.read_transient(offset, scratch)["data"]) for offset in (0, 1)] == [bytes(10), bytes([1]) * 10]
    with pytest.raises(ElementFailed) as caught:
        made.read_transient(2, scratch)
    assert (caught.value.offset, caught.value.stage) == (2, "read")
    assert "02.jpg" in str(caught.value.error)
    (folder / "class" / "02.jpg").write_bytes(b"back")
    assert bytes(made.read_transient(2, scratch)["data"]) == b"back"
    assert calls[0] == 2


@needs_library
@pytest.mark.parametrize("again", ["the same row", "another block", "a row further on"])
def test_what_was_read_ahead_is_given_to_the_next_row_of_its_block_alone(folder: Path, again: str, calls: list[int]) -> None:
    source, scratch = FilesSource(str(folder / "class" / "*.jpg")), Scratch()
    made = whole(source)
    made.read_transient(0, scratch)
    for number in range(COUNT):
        (folder / "class" / f"{number:02}.jpg").write_bytes(b"new")
    assert bytes(made.read_transient(1, scratch)["data"]) == bytes([1]) * 10
    block, offset = {"the same row": (made, 1), "another block": (whole(source), 2), "a row further on": (made, 3)}[again]
    assert bytes(block.read_transient(offset, scratch)["data"]) == b"new"


@needs_library
def test_a_block_tells_which_of_several_files_is_being_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, scratch, seen = FilesSource(str(folder / "class" / "*.jpg")), Scratch(), list[int | None]()
    made = whole(source)

    def read(names: bytes, buffer: Any, most_ns: int, ends: Any, at: Any) -> int:
        for number in range(len(ends)):
            at[0] = number
            seen.append(made.begun)
        return 0

    monkeypatch.setattr(kernels, "read_files", read)
    made.read_transient(5, scratch)
    assert seen == list(range(5, 22))
    assert made.begun == 5


def test_without_the_library_each_file_is_read_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "chosen", lambda name, twin: twin)
    source, scratch = FilesSource(str(folder / "class" / "*.jpg")), Scratch()
    made = whole(source)
    assert [bytes(made.read_transient(offset, scratch)["data"]) for offset in range(COUNT)] == [bytes([n]) * 10 for n in range(COUNT)]


@needs_library
def test_the_kernel_ends_behind_the_file_with_which_its_time_is_over(tmp_path: Path) -> None:
    names = [tmp_path / name for name in "abc"]
    for name in names:
        name.write_bytes(name.name.encode() * 3)
    joined = b"".join(os.fsencode(name) + b"\0" for name in names)
    for most_ns, count in ((-1, 1), (10**12, 3)):
        buffer, ends, at = np.zeros(64, np.uint8), np.zeros(3, np.int64), np.zeros(1, np.int64)
        assert kernels.read_files(joined, buffer, most_ns, ends, at) == count
        assert (ends[:count].tolist(), at[0]) == ([3, 6, 9][:count], count - 1)
        assert bytes(buffer[: 3 * count]) == b"aaabbbccc"[: 3 * count]
