"""Reading spans in C, and its twin: the same bytes and the same verdicts."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import output_of

from penstock._storage.local import can_sink
from penstock.kernels import backend, spans
from penstock.kernels.library import load_library

LIBRARY = load_library()
READERS: dict[str, Any] = {"numpy": spans.read_spans_twin, **({} if LIBRARY is None else {"c": LIBRARY.read_spans})}
both = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
GUARD = 0xA5


def tables(*paths: Path | str) -> spans.Files:
    encoded = [os.fsencode(path) + b"\0" for path in paths]
    starts = np.cumsum([0, *map(len, encoded)])[:-1].astype(np.int64)
    known = [spans.known_of(os.stat(path)) if os.path.exists(path) else (10, 0, 0) for path in paths]
    return spans.Files(b"".join(encoded), starts, np.array(known, np.int64).reshape(-1, 3))


class Run:
    """One call, with room behind the output that must stay as it was."""

    def __init__(self, reader: Any, files: spans.Files, rows: list[tuple[int, int, int]], **given: Any) -> None:
        columns = [np.array([row[side] for row in rows], np.int64) for side in range(3)]
        descriptors = np.array(given.get("descriptors", [-1] * len(rows)), np.int64)
        gap = given.get("gap", 0)
        room = given.get("room", int(columns[2].clip(0, 1 << 20).sum()) + gap * len(rows))
        memory = np.full(room + 64, GUARD, np.uint8)
        self.begins = np.full(len(rows), -7, np.int64)
        self.kept, self.facts = np.full((given.get("most_kept", 0), 2), -7, np.int64), np.empty(spans.NUM_FACTS, np.int64)
        block = spans.Spans(*columns, descriptors)
        self.problem = reader(files, block, gap, memory[:room], self.begins, self.kept, self.facts)
        assert (memory[room:] == GUARD).all()
        self.out, self.rows = memory[:room], rows
        self.opened = self.kept[: self.facts[6]].tolist()
        for _, descriptor in self.opened:
            os.close(descriptor)

    def parts(self) -> list[bytes]:
        assert self.problem == spans.DONE
        return [self.out[begin : begin + row[2]].tobytes() for begin, row in zip(self.begins.tolist(), self.rows, strict=True)]


DATA = [bytes((number * 7 + place * (number + 3)) % 251 for place in range(size)) for number, size in enumerate((300, 1, 0, 5000))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, data in enumerate(DATA):
        (tmp_path / str(number)).write_bytes(data)
    return tmp_path


def all_of(folder: Path) -> spans.Files:
    return tables(*(folder / str(number) for number in range(len(DATA))))


@st.composite
def blocks(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    rows = []
    for _ in range(draw(st.integers(0, 40))):
        file = draw(st.integers(0, len(DATA) - 1))
        offset = draw(st.integers(0, len(DATA[file])))
        rows.append((file, offset, draw(st.integers(0, len(DATA[file]) - offset))))
    return sorted(rows) if draw(st.booleans()) else rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=blocks(), gap=st.sampled_from([0, 1, 7, 4096]), most_kept=st.integers(0, 3))
def test_any_spans_in_any_order_come_as_they_stand_in_the_files(
    folder: Path, rows: list[tuple[int, int, int]], gap: int, most_kept: int
) -> None:
    files = all_of(folder)
    runs = [Run(reader, files, rows, gap=gap, most_kept=most_kept) for reader in READERS.values()]
    for run in runs:
        assert run.parts() == [DATA[file][offset : offset + length] for file, offset, length in rows]
        assert run.begins.tolist() == runs[0].begins.tolist()
        assert run.facts[7] == runs[0].facts[7]
        used = sorted({row[0] for row in rows})
        assert [file for file, _ in run.opened] == used[:most_kept]


@both
def test_descriptors_that_are_open_are_used(reader: Any, folder: Path) -> None:
    files = all_of(folder)
    descriptor = os.open(folder / "0", os.O_RDONLY)
    try:
        gone = files._replace(paths=files.paths.replace(b"/0\0", b"/X\0"))
        run = Run(reader, gone, [(0, 1, 2), (0, 100, 3)], descriptors=[descriptor, descriptor], most_kept=5)
        assert run.parts() == [DATA[0][1:3], DATA[0][100:103]]
        assert run.opened == []
    finally:
        os.close(descriptor)


BAD = [(-1, 0, 0), (4, 0, 0), (0, -1, 1), (0, 0, -1), (0, 0, 301), (0, 301, 0), (0, 300, 1), (0, 2**62, 2**62), (0, 1, 2**63 - 1)]


@both
@pytest.mark.parametrize("row", BAD, ids=str)
def test_a_row_outside_its_file_is_told_before_anything_is_read(reader: Any, folder: Path, row: tuple[int, int, int]) -> None:
    run = Run(reader, all_of(folder), [(0, 0, 1), row], most_kept=2)
    assert (run.problem, run.facts[1]) == (spans.BAD_ROW, 1)
    assert run.opened == []


@both
def test_a_file_that_is_not_there_or_not_allowed_says_errno(reader: Any, folder: Path) -> None:
    files = tables(folder / "0", folder / "none")
    run = Run(reader, files, [(1, 0, 5), (0, 0, 5)], most_kept=2)
    assert (run.problem, run.facts[1], run.facts[2]) == (spans.NOT_OPENED, 1, errno.ENOENT)
    assert [file for file, _ in run.opened] == [0], "the file before it is told, so that it can be closed"


@both
def test_a_fifo_does_not_block_and_is_refused(reader: Any, folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    run = Run(reader, tables(folder / "fifo"), [(0, 0, 0)])
    assert (run.problem, run.facts[1]) == (spans.NOT_REGULAR, 0)


@both
def test_another_size_time_or_inode_is_told_with_what_was_found(reader: Any, folder: Path) -> None:
    for column in range(3):
        files = all_of(folder)
        found = files.known[3].tolist()
        files.known[3, column] += 1
        run = Run(reader, files, [(3, 0, 5)], most_kept=1)
        assert (run.problem, run.facts[1]) == (spans.CHANGED, 3)
        assert run.facts[3:6].tolist() == found
        assert run.opened == []


@both
def test_times_far_away_and_before_1970_compare_equal(reader: Any, folder: Path) -> None:
    for seconds in (-5, 0, 2**33):
        os.utime(folder / "0", ns=(0, seconds * 1_000_000_000 + 17))
        assert Run(reader, all_of(folder), [(0, 0, 3)]).parts() == [DATA[0][:3]]


@both
def test_too_little_room_is_told_and_nothing_is_written_behind_it(reader: Any, folder: Path) -> None:
    assert Run(reader, all_of(folder), [(0, 0, 10), (3, 0, 10)], room=19).problem == spans.NO_ROOM


def test_as_int64_wraps_as_c_does() -> None:
    assert [spans.as_int64(number) for number in (5, -5, 2**63, 2**64 + 1)] == [5, -5, -(2**63), 1]


def test_the_checked_call_returns_what_happened(folder: Path) -> None:
    block = spans.Spans(*(np.array([number], np.int64) for number in (0, 5, 10, -1)))
    out, begins = np.empty(10, np.uint8), np.empty(1, np.int64)
    outcome = spans.read_spans(all_of(folder), block, 0, out, begins, 1)
    assert (outcome.problem, outcome.num_bytes, outcome.error) == (spans.DONE, 10, 0)
    assert out.tobytes() == DATA[0][5:15]
    assert [file for file, _ in outcome.kept] == [0]
    os.close(outcome.kept[0][1])


def test_a_block_without_memory_that_may_be_shared_is_read_too(folder: Path) -> None:
    columns = [np.array([number], np.int64) for number in (0, 5, 10, -1)]
    for column in columns:
        column.flags.writeable = False
    out, begins = np.empty(10, np.uint8), np.empty(1, np.int64)
    assert spans.read_spans(all_of(folder), spans.Spans(*columns), 0, out, begins, 0).problem == spans.DONE
    assert out.tobytes() == DATA[0][5:15]


class Mapped:
    """One call of the C function with a map of the file, or of another in its place, and a sink. The file that is mapped is cut before."""

    def __init__(self, path: Path, cut_to: int | None = None, mapped: Path | None = None) -> None:
        assert LIBRARY is not None
        mapped = path if mapped is None else mapped
        size, files = path.stat().st_size, tables(path)
        assert mapped.stat().st_size == size
        descriptor, other = os.open(path, os.O_RDONLY), os.open(mapped, os.O_RDONLY)
        address = spans.map_file(other, size)
        assert address
        sink = os.memfd_create("test")
        os.ftruncate(sink, 1 << 20)
        memory = mmap.mmap(sink, 1 << 20)
        self.out = np.frombuffer(memory, np.uint8)
        self.rows = [(offset, 5) for offset in range(size - 10, 0, -40)]
        offsets, lengths = (np.array([row[side] for row in self.rows], np.int64) for side in range(2))
        zeros, begins = np.zeros(len(self.rows), np.int64), np.empty(len(self.rows), np.int64)
        block = spans.Spans(zeros, offsets, lengths, zeros + descriptor, zeros + address, sink)
        if cut_to is not None:
            os.truncate(mapped, cut_to)
        facts = np.empty(spans.NUM_FACTS, np.int64)
        try:
            self.problem = LIBRARY.read_spans(files, block, 0, self.out, begins, np.empty((0, 2), np.int64), facts)
        finally:
            spans.unmap_file(address, size)
            for opened in (descriptor, other, sink):
                os.close(opened)
        self.parts = [self.out[begin : begin + 5].tobytes() for begin in begins.tolist()]


maps_wanted = pytest.mark.skipif(LIBRARY is None or not hasattr(os, "memfd_create"), reason="no C library, or a system without memfd")


@maps_wanted
@pytest.mark.parametrize("size", [200, 5000, 100_000])
def test_many_small_spans_come_by_way_of_the_map(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    (tmp_path / "a").write_bytes(data)
    run = Mapped(tmp_path / "a")
    assert run.problem == spans.DONE
    assert run.parts == [data[offset : offset + 5] for offset, _ in run.rows]


@maps_wanted
@pytest.mark.parametrize("size", [0, 1, 4096, 50_001, 99_999])
def test_a_file_that_was_cut_under_its_map_is_told_and_ends_nobody(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(bytes(100_000))
    assert Mapped(tmp_path / "a", cut_to=size).problem in (spans.CHANGED, spans.CUT)


PAGE, LIST = mmap.PAGESIZE, 256


@maps_wanted
@pytest.mark.parametrize("pages", [0, 1, 5, 24, 25])
def test_where_a_map_has_no_page_the_kernel_says_so_and_the_file_is_read(tmp_path: Path, pages: int) -> None:
    data = np.random.default_rng(1).bytes(25 * PAGE)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(other := bytes(byte ^ 0xFF for byte in data))  # so that it is seen where the bytes came from
    run = Mapped(tmp_path / "a", cut_to=pages * PAGE, mapped=tmp_path / "b")
    assert run.problem == spans.DONE, "the file itself is whole"
    rows = sorted(run.rows)
    lists = [rows[begin : begin + LIST] for begin in range(0, len(rows), LIST)]
    expected = {
        offset: (other if offsets[-1][0] + 5 <= pages * PAGE else data)[offset : offset + 5] for offsets in lists for offset, _ in offsets
    }
    assert [expected[offset] for offset, _ in run.rows] == run.parts
    whole = sum(offsets[-1][0] + 5 <= pages * PAGE for offsets in lists)
    assert (whole == 0 or pages > 0, whole == len(lists)) == (True, pages == 25)


CUTS_WHILE_READING = """
import os, sys, threading
import numpy as np
from penstock._contracts.transform import Scratch
from penstock._storage.local import LocalStorage
from penstock.errors import SourceError

path = sys.argv[1]
for _ in range(20):
    with open(path, "wb") as file:
        file.write(bytes(range(256)) * 4096)
    storage, scratch = LocalStorage([path], "read_test"), Scratch()
    offsets = np.random.default_rng(1).permutation(4096)[:300] * 256
    files, lengths = np.zeros(300, np.int64), np.full(300, 256)
    storage.read_spans(files, offsets, lengths, scratch)  # opens and maps
    if sys.argv[2] == "mapped":
        with open("/proc/self/maps") as maps:
            assert path in maps.read()
    enough, count = threading.Event(), 0

    def cut():
        assert enough.wait(60)
        os.truncate(path, 5001)

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        while True:
            data, begins = storage.read_spans(files, offsets, lengths, scratch)
            assert all(data[begin] == 0 and data[begin + 255] == 255 for begin in begins), "zeros in place of data"
            count += 1
            if count == 50:
                enough.set()
    except SourceError:
        assert count >= 50
    cutter.join()
print("whole")
"""


def test_a_file_that_is_cut_while_small_spans_of_it_are_read_is_an_error_and_no_signal(tmp_path: Path) -> None:
    way = "mapped" if backend() == "c" and can_sink() and sys.platform == "linux" else "read"
    assert output_of("-c", CUTS_WHILE_READING, tmp_path / "a", way) == "whole\n"
