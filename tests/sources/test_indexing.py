from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources.marks import Marked, marked
from sources.memory import growth, needs_proc

from penstock._storage import open_storage
from penstock._storage.sameness import sampled_spans
from penstock.errors import RecordError, SourceError
from penstock.formats.index import decode, parts
from penstock.kernels.framing import crc32c
from penstock.sources.indexing import IndexReport, build, open_indices

PAST_NS = 1_000_000_000_000_000_000


def old(path: Path, data: bytes | None = None) -> Path:
    """Write a file whose time is so long ago that it is trusted."""
    if data is not None:
        path.write_bytes(data)
    os.utime(path, ns=(PAST_NS, PAST_NS))
    return path


class Opening:
    """One look at the indices of a folder's files."""

    def __init__(self, folder: Path, format: Any = None, pattern: str = "*.x", **given: Any) -> None:
        self.format = Marked() if format is None else format
        self.reports: list[IndexReport] = []
        storage = open_storage(folder / pattern, "read_x")
        given.setdefault("cache_folder", str(folder / "cache"))
        self.indices = open_indices(storage, self.format, on_file=self.reports.append, **given)
        self.reasons = [report.reason for report in sorted(self.reports, key=lambda report: report.file)]


def test_what_is_missing_is_built_beside_the_file_and_used_the_next_time(tmp_path: Path) -> None:
    for name in "ab":
        old(tmp_path / f"{name}.x", marked(b"one", name.encode()))
    first = Opening(tmp_path)
    assert first.reasons == ["missing", "missing"]
    assert [report.path for report in sorted(first.reports, key=lambda report: report.file)] == [
        f"{tmp_path}/.penstock/{name}.x.psidx" for name in "ab"
    ]
    assert [report.count for report in first.reports] == [2, 2]
    second = Opening(tmp_path)
    assert second.reasons == [None, None]
    assert second.format.scanned == []
    for one, other in zip(first.indices, second.indices, strict=True):
        assert parts(one) == parts(other)
    assert second.indices[0].crc32c == crc32c(marked(b"one", b"a"))
    assert Opening(tmp_path, rebuild=True).reasons == ["asked for"] * 2


def test_the_rest_of_a_file_that_the_format_did_not_read_is_in_the_check_sum(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    old(tmp_path / "a.x", data)

    class Lazy(Marked):
        def scan(self, pieces: Any, size: int, name: str) -> dict[str, Any]:
            next(pieces)
            return {"offsets": np.array([0]), "lengths": np.array([size], np.int32)}

    index = build(open_storage(tmp_path / "a.x", "x"), 0, Lazy())
    assert index.crc32c == crc32c(data)
    assert index.columns["offsets"].dtype == np.int64
    assert index.columns["lengths"].dtype == np.uint32


@pytest.mark.parametrize("size", [0, 1, 2 << 20, (2 << 20) + 1, 7_000_000])
def test_pieces_are_the_file_in_order_whether_they_are_read_ahead_or_not(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    old(tmp_path / "a.x", data)
    seen: list[bytes] = []

    class Seeing(Marked):
        def scan(self, pieces: Any, size: int, name: str) -> dict[str, Any]:
            seen.append(b"".join(piece.tobytes() for piece in pieces))
            return {"offsets": np.empty(0, np.int64), "lengths": np.empty(0, np.int64)}

    indices = [build(open_storage(tmp_path / "a.x", "x"), 0, Seeing(), read_ahead=ahead) for ahead in (False, True)]
    assert seen == [data, data]
    assert [index.crc32c for index in indices] == [crc32c(data)] * 2


def test_a_format_that_fails_in_the_middle_leaves_no_thread(tmp_path: Path) -> None:
    old(tmp_path / "a.x", bytes(9_000_000))

    class Failing(Marked):
        def scan(self, pieces: Any, size: int, name: str) -> dict[str, Any]:
            next(pieces)
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        build(open_storage(tmp_path / "a.x", "x"), 0, Failing())
    assert threading.active_count() == 1
    assert caught.value.args == ("mine",)


def test_a_length_beyond_four_bytes_makes_long_lengths(tmp_path: Path) -> None:
    with open(tmp_path / "a.x", "wb") as file:
        file.truncate(5 << 30)

    class Sparse(Marked):
        def scan(self, pieces: Any, size: int, name: str) -> dict[str, Any]:
            pieces.close()
            return {"offsets": np.array([0]), "lengths": np.array([size])}

    index = build(open_storage(tmp_path / "a.x", "x"), 0, Sparse())
    assert index.columns["lengths"].dtype == np.int64


@pytest.mark.parametrize("time_ns", [-5_000_000_000, 0, 2**62, 4_000_000_000_000_000_000])
def test_a_time_alone_neither_makes_nor_breaks_an_index(tmp_path: Path, time_ns: int) -> None:
    old(tmp_path / "a.x", marked(b"one"))
    Opening(tmp_path)
    os.utime(tmp_path / "a.x", ns=(time_ns, time_ns))
    assert Opening(tmp_path).reasons == [None]
    (tmp_path / "a.x").write_bytes(marked(b"two"))
    os.utime(tmp_path / "a.x", ns=(time_ns, time_ns))
    assert Opening(tmp_path).reasons == ["the file has other contents than it had"]


def test_a_file_of_this_moment_is_sampled_so_that_a_write_in_the_same_tick_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.x").write_bytes(marked(b"one"))
    status = os.stat(tmp_path / "a.x")
    assert "mtime_ns" not in Opening(tmp_path).indices[0].identity
    (tmp_path / "a.x").write_bytes(marked(b"two"))
    os.utime(tmp_path / "a.x", ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert Opening(tmp_path).reasons == ["the file has other contents than it had"]


def unseen_edit(path: Path) -> bytes:
    """Move a border of records where no sample looks; return the new contents, of the same size."""
    data = bytearray(path.read_bytes())
    places, length = sampled_spans(len(data))
    place = int(places[1]) + length
    place += -place % 4
    assert data[place] == 3
    assert place + 8 <= places[2]
    data[place : place + 8] = marked(b"joined!")
    path.write_bytes(data)
    os.utime(path, ns=(PAST_NS, PAST_NS + 7))
    return bytes(data)


@pytest.mark.parametrize("checks_records", [False, True])
def test_an_edit_of_a_large_file_that_no_sample_sees_is_seen_unless_records_have_check_sums(tmp_path: Path, checks_records: bool) -> None:
    path, format = old(tmp_path / "a.x", marked(*[b"abc"] * 250_000)), Marked(checks_records=checks_records)
    assert len(Opening(tmp_path, format).indices[0]) == 250_000
    data = unseen_edit(path)
    again = Opening(tmp_path, format)
    assert again.reasons == [None if checks_records else "the file has other contents than it had"]
    assert len(again.indices[0]) == 250_000 - (not checks_records)
    assert (again.indices[0].crc32c == crc32c(data)) is not checks_records


def test_a_large_file_that_only_looks_new_is_compared_once_and_its_time_noted(tmp_path: Path) -> None:
    path = old(tmp_path / "a.x", marked(*[b"abc"] * 250_000))
    Opening(tmp_path)
    os.utime(path, ns=(PAST_NS, PAST_NS + 7))
    assert Opening(tmp_path).reasons == [None]
    noted = decode((tmp_path / ".penstock" / "a.x.psidx").read_bytes(), "x")
    assert noted.identity.items() >= {"size": 1_000_000, "mtime_ns": PAST_NS + 7}.items()
    assert (len(noted), noted.crc32c) == (250_000, crc32c(path.read_bytes()))


def lengthen(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(marked(b"more"))


def replace(path: Path) -> None:
    old(path.with_suffix(".new"), marked(b"uno", b"due"))
    os.utime(path.with_suffix(".new"), ns=(5, 5))
    os.replace(path.with_suffix(".new"), path)


@pytest.mark.parametrize(("change", "words"), [(lengthen, "has 13 bytes and had 8"), (replace, "other contents")])
def test_a_file_that_changed_after_its_index_is_indexed_again(tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    path = old(tmp_path / "a.x", marked(b"one", b"two"))
    Opening(tmp_path)
    change(path)
    again = Opening(tmp_path)
    assert words in (again.reasons[0] or "")
    assert again.indices[0].size == path.stat().st_size
    assert Opening(tmp_path).reasons == [None]


def test_a_file_that_is_shorter_than_when_it_was_indexed_is_indexed_again_with_a_warning(tmp_path: Path) -> None:
    path = old(tmp_path / "a.x", marked(b"one", b"two"))
    Opening(tmp_path)
    os.truncate(path, 4)  # between two records, where nothing in the file shows it
    with pytest.warns(
        UserWarning, match=r"a\.x' had 2 records in 8 bytes when it was indexed, and has 4 bytes now: it was cut, or"
    ) as caught:
        again = Opening(tmp_path)
    assert len(caught) == 1
    assert again.reasons == ["the file has 4 bytes and had 8"]
    assert len(again.indices[0]) == 1
    assert Opening(tmp_path).reasons == [None]


def other_version(data: bytes) -> bytes:
    header = data[:8] + struct.pack("<I", 99) + data[12:60]
    return header + struct.pack("<I", crc32c(header)) + data[64:]


@pytest.mark.parametrize(
    ("damage", "warned"),
    [
        (lambda data: data[:-1], True),
        (lambda data: data[:70], True),
        (lambda data: data[:30], True),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], True),
        (lambda data: b"", False),
        (lambda data: b"0 17\n17 33\n", False),
        (other_version, False),
    ],
    ids=["cut", "cut in the description", "cut in the header", "bit", "empty", "of others", "version"],
)
def test_an_index_that_is_none_is_built_again_and_a_damaged_one_with_a_warning(tmp_path: Path, damage: Any, warned: bool) -> None:
    old(tmp_path / "a.x", marked(b"one"))
    Opening(tmp_path)
    sidecar = tmp_path / ".penstock" / "a.x.psidx"
    good = sidecar.read_bytes()
    sidecar.write_bytes(damage(good))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = Opening(tmp_path)
    assert [("is damaged" in str(warning.message), "a.x.psidx" in str(warning.message)) for warning in caught] == [(True, True)] * warned
    assert again.reasons == ["damaged" if warned else "of another version, or no index"]
    assert sidecar.read_bytes() == good


def test_an_index_of_another_file_is_not_trusted(tmp_path: Path) -> None:
    old(tmp_path / "a.x", marked(b"one"))
    old(tmp_path / "b.x", marked(b"t", b"w"))
    os.utime(tmp_path / "b.x", ns=(PAST_NS + 1, PAST_NS + 1))
    Opening(tmp_path)
    (tmp_path / ".penstock" / "a.x.psidx").write_bytes((tmp_path / ".penstock" / "b.x.psidx").read_bytes())
    again = Opening(tmp_path)
    assert again.reasons == ["the file has other contents than it had", None]
    assert len(again.indices[0]) == 1


def test_formats_that_share_a_file_do_not_take_each_others_index(tmp_path: Path) -> None:
    old(tmp_path / "a.x", marked(b"one"))
    Opening(tmp_path)
    beside = (tmp_path / ".penstock" / "a.x.psidx").read_bytes()
    others = [Marked(kind="other"), Marked(options={"key": 1})]
    for _ in range(2):
        for format in others:
            Opening(tmp_path, format)
    assert (tmp_path / ".penstock" / "a.x.psidx").read_bytes() == beside
    assert [Opening(tmp_path, format).reasons for format in others] == [[None], [None]]
    assert len(list((tmp_path / "cache").rglob("*.psidx"))) == 2


def test_a_folder_that_cannot_be_written_has_its_indices_in_the_cache_folder(tmp_path: Path) -> None:
    old(tmp_path / "a.x", marked(b"one"))
    (tmp_path / ".penstock").write_bytes(b"no folder")
    first = Opening(tmp_path)
    assert first.reports[0].path is not None
    assert first.reports[0].path.startswith(str(tmp_path / "cache" / "index"))
    assert Opening(tmp_path).reasons == [None]


def test_where_nothing_can_be_written_the_index_is_kept_in_memory_with_a_warning(tmp_path: Path) -> None:
    old(tmp_path / "a.x", marked(b"one"))
    (tmp_path / ".penstock").write_bytes(b"no folder")
    (tmp_path / "cache").write_bytes(b"no folder")
    with pytest.warns(UserWarning, match="can be written neither beside it nor"):
        opened = Opening(tmp_path)
    assert opened.reports[0].path is None
    assert len(opened.indices[0]) == 1


def test_the_first_file_that_is_not_of_the_format_is_the_error(tmp_path: Path) -> None:
    for number in range(20):
        old(tmp_path / f"{number:02d}.x", marked(b"one") if number != 7 else b"\xff")
    with pytest.raises(RecordError) as caught:
        Opening(tmp_path)
    assert "07.x, record 0, offset 0" in caught.value.where
    assert not (tmp_path / ".penstock" / "07.x.psidx").exists()


def test_a_file_that_changes_while_it_is_indexed_is_an_error(tmp_path: Path) -> None:
    path = old(tmp_path / "a.x", marked(b"one"))

    class Touching(Marked):
        def scan(self, pieces: Any, size: int, name: str) -> dict[str, Any]:
            found = super().scan(pieces, size, name)
            path.write_bytes(marked(b"two"))
            return found

    with pytest.raises(SourceError, match="since it was opened"):
        Opening(tmp_path, Touching())
    assert not (tmp_path / ".penstock" / "a.x.psidx").exists()


BUILD = """
import sys
from pathlib import Path
from sources.marks import Marked
from penstock import read_text
from penstock._storage import open_storage
from penstock.sources.indexing import open_indices
sys.stdin.readline()
indices = open_indices(open_storage(sys.argv[1] + "/*.x", "x"), Marked())
print(sum(map(len, indices)))
"""


def test_processes_that_build_the_same_indices_at_once_all_get_them(tmp_path: Path) -> None:
    for number in range(30):
        old(tmp_path / f"{number}.x", marked(*[b"%d" % number] * 50))
    path = os.pathsep.join([*sys.path])
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        for _ in range(3)
    ]
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("go\n")
        run.stdin.flush()
    assert [run.communicate(timeout=100)[0].strip() for run in runs] == ["1500"] * 3
    assert (len(os.listdir(tmp_path)), len(os.listdir(tmp_path / ".penstock"))) == (31, 30)
    for number in range(30):
        assert len(decode((tmp_path / ".penstock" / f"{number}.x.psidx").read_bytes(), "x")) == 50


def test_many_threads_build_one_storage_once_each(tmp_path: Path) -> None:
    for number in range(100):
        old(tmp_path / f"{number:03d}.x", marked(b"%d" % number))
    opened = Opening(tmp_path)
    assert sorted(opened.format.scanned) == [str(tmp_path / f"{number:03d}.x") for number in range(100)]
    assert [index.columns["first"].tolist() for index in opened.indices] == [[ord(str(number)[0])] for number in range(100)]
    assert threading.active_count() == 1


OPEN = """
shards = read_text(arguments[0] + "/*.x")
print(len(shards), *(shards[number]["text"] for number in (0, 50_500, 99_999)))
"""


@needs_proc
@pytest.mark.slow
def test_a_hundred_thousand_shards_are_opened_and_read_in_bounded_memory(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    for first in range(0, 100_000, 1000):  # file systems limit the links to one file
        kept = old(folder / f"{first:05d}.x", b"%d\n" % first)
        for number in range(first + 1, first + 1000):
            os.link(kept, folder / f"{number:05d}.x")
    kept = old(tmp_path / "small", b"one\n")
    lines, peak, _ = growth("from penstock import read_text; read_text(arguments[1])[0]", OPEN, folder, kept)
    assert lines == ["100000 0 50000 99000"]
    assert peak < 100_000 * 6000
