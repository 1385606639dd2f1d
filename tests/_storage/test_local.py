from __future__ import annotations

import ctypes
import errno
import mmap
import os
import pickle
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from penstock._contracts.storage import Storage
from penstock._contracts.transform import Scratch
from penstock._storage.local import LocalStorage
from penstock._storage.sameness import sample
from penstock.errors import IndexStale, SourceError
from penstock.formats.example import encode_example
from penstock.formats.tfrecord import frame
from penstock.kernels import spans
from penstock.kernels.examples import FIXED, FeaturePlan, framed_taker, make_plan
from penstock.kernels.library import load_library
from penstock.kernels.wire import INT64


def made(folder: Path, **contents: bytes) -> LocalStorage:
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return LocalStorage([str(folder / name) for name in contents], "read_x")


def ints(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


def test_names_sizes_and_bytes(tmp_path: Path) -> None:
    storage = made(tmp_path, a=b"abcdef", b=b"")
    assert isinstance(storage, Storage)
    assert len(storage) == 2
    assert storage.name(0) == storage.path(0) == str(tmp_path / "a")
    assert [storage.size(0), storage.size(1)] == [6, 0]
    assert storage.identity(0) == {"size": 6, "mtime_ns": os.stat(tmp_path / "a").st_mtime_ns}
    assert storage.read(0, 2, 3) == b"cde"
    assert storage.read(1, 0, 0) == b""


@pytest.mark.parametrize("reused", [False, True], ids=["new", "scratch"])
def test_spans_come_in_any_order_and_may_share_bytes(tmp_path: Path, reused: bool) -> None:
    scratch = Scratch() if reused else None
    storage = made(tmp_path, a=bytes(range(200)) * 100, b=b"0123456789")
    rows = [(1, 3, 4), (0, 0, 200), (0, 19_999, 1), (0, 100, 200), (1, 0, 10), (0, 5, 0)]
    data, begins = storage.read_spans(*(ints(*column) for column in zip(*rows, strict=True)), scratch)
    whole = [bytes(range(200)) * 100, b"0123456789"]
    for begin, (file, offset, length) in zip(begins.tolist(), rows, strict=True):
        assert data[begin : begin + length].tobytes() == whole[file][offset : offset + length]
    data, begins = storage.read_spans(ints(), ints(), ints(), scratch)
    assert len(data) == len(begins) == 0


def scattered(storage: LocalStorage, num: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return files, offsets and lengths of short spans in no order, all files among them, some spans twice and some empty."""
    rng = np.random.default_rng(num)
    files = rng.permutation(np.resize(np.arange(len(storage)), num))
    sizes = np.array([storage.size(file) for file in range(len(storage))])[files]
    lengths = np.minimum(rng.integers(0, 3000, num), sizes)
    return [files, rng.integers(0, sizes - lengths + 1), lengths]


@pytest.mark.parametrize("num_files", [1, 2, 30])
@pytest.mark.parametrize("num", [7, 8, 64, 65, 1000])
def test_short_spans_in_no_order_come_out_of_maps_of_all_files(tmp_path: Path, num_files: int, num: int) -> None:
    contents = {f"f{number}": np.random.default_rng(number).bytes(5000 + 4096 * number) for number in range(num_files)}
    storage, scratch = made(tmp_path, **contents), Scratch()
    whole = list(contents.values())
    files, offsets, lengths = scattered(storage, num)
    for _ in range(2):  # the first time opens the files
        data, begins = storage.read_spans(files, offsets, lengths, scratch)
        for begin, file, offset, length in zip(begins.tolist(), files.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
            assert data[begin : begin + length].tobytes() == whole[file][offset : offset + length]


@pytest.mark.parametrize("cut_to", [0, 1, 4096, 49_999])
def test_one_of_many_files_that_is_cut_under_its_map_is_the_one_that_is_named(tmp_path: Path, cut_to: int) -> None:
    storage, scratch = made(tmp_path, **{f"f{number}": bytes([number + 1]) * 50_000 for number in range(9)}), Scratch()
    files, offsets, lengths = scattered(storage, 500)
    storage.read_spans(files, offsets, lengths, scratch)
    os.truncate(storage.path(5), cut_to)
    with pytest.raises(IndexStale, match=re.escape(f"{storage.name(5)!r} has {cut_to} bytes and had 50000")):
        storage.read_spans(files, offsets, lengths, scratch)


def test_a_process_that_may_make_no_file_of_memory_reads_the_same(tmp_path: Path) -> None:
    storage = made(tmp_path, a=bytes(range(200)) * 100)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))  # Python asks for EFBIG in place of the signal
    try:
        data, begins = storage.read_spans(ints(0, 0), ints(100, 19_000), ints(300, 1000), Scratch())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    rows = [data[begin : begin + length].tobytes() for begin, length in zip(begins.tolist(), (300, 1000), strict=True)]
    assert rows == [(bytes(range(200)) * 100)[begin:][:length] for begin, length in ((100, 300), (19_000, 1000))]


def test_a_read_outside_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    storage = made(tmp_path, a=b"abc")
    with pytest.raises(SourceError, match="3 bytes at 1 do not lie inside") as caught:
        storage.read(0, 1, 3)
    assert str(tmp_path / "a") in caught.value.where


def test_relative_names_stay_and_are_read_after_a_change_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"abc")
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage(["in/a"], "read_x")
    os.chdir("/")
    assert storage.name(0) == "in/a"
    assert storage.path(0) == str(tmp_path / "in" / "a")
    assert storage.read(0, 0, 3) == b"abc"


@pytest.mark.parametrize(
    "name", ["new\nline", "quo'te\"", "50%{}", "-dash", "~", "sp ace", "é", "😀", "back\\slash", "\udcff\udcfe", "x" * 255]
)
def test_odd_names_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"abc")
    storage = LocalStorage([str(tmp_path / name)], "read_x")
    assert storage.read(0, 0, 3) == b"abc"
    assert storage.name(0) == str(tmp_path / name)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    for path, words in ((tmp_path, "a directory"), (tmp_path / "fifo", "a named pipe"), ("/dev/null", "a character device")):
        with pytest.raises(SourceError) as caught:
            LocalStorage([str(path)], "read_x")
        assert words in caught.value.what
    for name, number in (("loop", errno.ELOOP), ("dangling", errno.ENOENT), ("x" * 256, errno.ENAMETOOLONG)):
        with pytest.raises(OSError) as failed:
            LocalStorage([str(tmp_path / name)], "read_x")
        assert failed.value.errno == number
        assert "read_x" in failed.value.__notes__[0]


def test_a_file_that_becomes_a_fifo_does_not_block(tmp_path: Path) -> None:
    storage = made(tmp_path, a=b"abc")
    os.unlink(tmp_path / "a")
    os.mkfifo(tmp_path / "a")
    with pytest.raises(SourceError, match="a named pipe"):
        storage.read(0, 0, 3)


@pytest.mark.parametrize("opened", [False, True], ids=["never opened", "open"])
def test_a_file_that_changed_is_an_error_that_says_how(tmp_path: Path, opened: bool) -> None:
    storage = made(tmp_path, a=b"abcdef", b=b"abcdef", c=b"abcdef", d=b"abcdef")
    storage.trust(ints(*(sample(LocalStorage([storage.path(file)], "x"), 0) for file in range(4))))
    if opened:
        for file in range(4):
            storage.read(file, 0, 1)
    with open(tmp_path / "a", "ab") as file:
        file.write(b"g")
    os.truncate(tmp_path / "b", 3)
    (tmp_path / "c").write_bytes(b"uvwxyz")
    os.utime(tmp_path / "c", ns=(0, 5))
    for number, words in ((0, "has 7 bytes and had 6"), (1, "has 3 bytes and had 6"), (2, "has other contents than it had")):
        with pytest.raises(IndexStale) as caught:
            storage.read(number, 0, 1)
        assert words in caught.value.what
        assert storage.name(number) in caught.value.what
    os.utime(tmp_path / "d", ns=(0, 5))
    assert storage.read(3, 0, 6) == b"abcdef", "only its time is new"


def test_without_samples_another_time_is_an_error_too(tmp_path: Path) -> None:
    storage = made(tmp_path, a=b"abcdef")
    os.utime(tmp_path / "a", ns=(0, 5))
    with pytest.raises(SourceError, match="was written to, or replaced"):
        storage.read(0, 0, 1)


def test_a_file_that_is_replaced_by_a_copy_of_itself_is_read(tmp_path: Path) -> None:
    storage = made(tmp_path, a=b"abcdef")
    storage.trust(ints(sample(storage, 0)))
    storage.descriptors.forget()
    (tmp_path / "copy").write_bytes(b"abcdef")
    os.replace(tmp_path / "copy", tmp_path / "a")
    assert storage.read(0, 1, 2) == b"bc"


def test_a_file_that_is_deleted_is_the_systems_error_with_the_path(tmp_path: Path) -> None:
    storage = made(tmp_path, a=b"abcdef")
    os.unlink(tmp_path / "a")
    with pytest.raises(FileNotFoundError) as caught:
        storage.read(0, 0, 1)
    assert caught.value.filename == str(tmp_path / "a")
    assert "read_x" in caught.value.__notes__[0]


def test_many_more_files_than_may_be_open_are_read_by_several_threads(tmp_path: Path) -> None:
    storage = made(tmp_path, **{f"f{number}": b"%05d" % number for number in range(300)})
    failed: list[BaseException] = []
    start = threading.Barrier(4)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        scratch = Scratch()
        start.wait()
        try:
            for _ in range(60):
                files = rng.integers(0, 300, 64)
                data, begins = storage.read_spans(files, np.zeros(64, np.int64), np.full(64, 5, np.int64), scratch)
                assert [int(data[begin : begin + 5].tobytes()) for begin in begins.tolist()] == files.tolist()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(storage.descriptors) <= storage.descriptors.capacity


def test_it_travels_to_other_processes(tmp_path: Path) -> None:
    storage = made(tmp_path, a=b"abcdef")
    storage.read(0, 0, 1)
    assert pickle.loads(pickle.dumps(storage)).read(0, 2, 2) == b"cd"


FULL = """
import os, resource, sys
from penstock._storage.local import LocalStorage
import numpy as np
folder = sys.argv[1]
storage = LocalStorage([os.path.join(folder, f"f{n}") for n in range(100)], "read_x")
files = np.arange(100)
read = lambda: storage.read_spans(files, files * 0, files * 0 + 1, None)
read()
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
os.close(held.pop())
data, begins = read()
print(len(begins), len(storage.descriptors))
storage.descriptors.forget()
held.append(os.open("/dev/null", os.O_RDONLY))
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    read()
except OSError as error:
    print(error.errno, "ulimit -n" in "".join(error.__notes__))
"""


@pytest.mark.parametrize("limit", [40, 64, 100])
def test_a_process_without_descriptors_to_spare_reads_with_one_and_without_any_says_ulimit(tmp_path: Path, limit: int) -> None:
    made(tmp_path, **{f"f{number}": b"x" for number in range(100)})
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    count, error = done.stdout.splitlines()
    assert int(count.split()[0]) == 100
    assert error == f"{errno.EMFILE} True"


def test_a_file_that_is_cut_while_threads_read_it_is_an_error_and_not_a_signal(tmp_path: Path) -> None:
    storage = made(tmp_path, a=bytes(1 << 20))
    storage.trust(ints(sample(storage, 0)))
    stopped: list[BaseException] = []
    first = threading.Event()

    def work() -> None:
        try:
            while True:
                storage.read(0, (1 << 20) - 4096, 4096)
                first.set()
        except IndexStale as error:
            stopped.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert first.wait(60)
    os.truncate(tmp_path / "a", 100)
    thread.join(60)
    assert not thread.is_alive()
    # Cut before a read began, or in the middle of one.
    whats = ["has 100 bytes and had 1048576", "was cut: nothing is at 1044480 any more, and it had 1048576 bytes"]
    assert any(what in str(stopped[0]) for what in whats)


@pytest.mark.skipif(load_library() is None, reason="no C library")
@pytest.mark.parametrize("num_files", [3, 200])
def test_frames_of_many_files_are_taken_and_the_files_stay_open_for_the_next_block(tmp_path: Path, num_files: int) -> None:
    plan = make_plan([FeaturePlan(b"y", INT64, FIXED, 1, None)])
    framed = frame(encode_example({"y": 7}))
    storage = made(tmp_path, **{f"f{number}": framed * 5 for number in range(num_files)})
    rng = np.random.default_rng(1)
    for _ in range(4):
        files, numbers = rng.integers(0, num_files, 700), rng.integers(0, 5, 700)
        column = np.zeros(700, np.int64)
        taker = framed_taker(plan, [column], 700, check_data=True)
        assert taker is not None
        spans = files, numbers * len(framed), np.full(700, len(framed))
        assert storage.stream_spans(*spans, Scratch(), (64, 4096), taker) == 700
        assert (column == 7).all()
        assert 0 < len(storage.descriptors) <= storage.descriptors.capacity


@pytest.mark.skipif(load_library() is None, reason="no C library")
def test_what_cannot_be_read_is_not_taken_and_reading_it_says_why(tmp_path: Path) -> None:
    plan = make_plan([FeaturePlan(b"y", INT64, FIXED, 1, None)])
    framed = frame(encode_example({"y": 7}))
    storage = made(tmp_path, a=framed * 10, b=framed * 10)
    os.truncate(tmp_path / "b", 5)
    column = np.zeros(20, np.int64)
    taker = framed_taker(plan, [column], 20, check_data=True)
    assert taker is not None
    rows = np.repeat([0, 1], 10), np.tile(np.arange(10) * len(framed), 2), np.full(20, len(framed))
    assert storage.stream_spans(*rows, Scratch(), (5, 4096), taker) == 10
    with pytest.raises(IndexStale, match="has 5 bytes and had"):
        storage.read_spans(*(part[10:] for part in rows), Scratch())


def pages_in_memory(file: BinaryIO) -> int:
    """Count the pages of a file that are in the page cache, without fetching any (mincore)."""
    with mmap.mmap(file.fileno(), 0) as mapped:
        resident = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        start = ctypes.c_char.from_buffer(mapped)
        status = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(resident.ctypes.data)
        )
        del start  # a mapping that is pointed at is not closed
    return len(resident) if status else int((resident & 1).sum())


def dropped_from_memory(path: Path) -> bool:
    """Have the system forget the contents of a file; return whether it did.

    The system keeps a page that another CPU still has in a list of its own: it is asked again.
    """
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
        for _ in range(100):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not pages_in_memory(file):
                return True
            time.sleep(0.01)
    return False


@pytest.mark.skipif(load_library() is None or sys.platform != "linux", reason="no C library, or a system that does not tell")
def test_files_in_memory_are_looked_at_seldom_and_often_again_when_they_were_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every: list[int] = []
    found: list[bool] = []

    def spying(files: Any, block: spans.Spans, *more: Any) -> spans.BlockOutcome:
        outcome = read(files, block, *more)
        every.append(block.every)
        found.append(outcome.missing)
        return outcome

    read = spans.read_spans
    monkeypatch.setattr(spans, "read_spans", spying)
    storage = made(tmp_path, a=bytes(4 << 20))
    files, offsets, lengths = np.zeros(64, np.int64), np.arange(64) << 14, np.full(64, 100)
    for _ in range(7):  # the first one opens the file
        storage.read_spans(files, offsets, lengths, None)
    assert (every, any(found)) == ([32, 64, 128, 256, 512, 512, 512], False)
    if not dropped_from_memory(tmp_path / "a"):
        pytest.skip("the file system here does not drop files from memory")
    for _ in range(3):
        data, begins = storage.read_spans(files, offsets, lengths, None)
        assert all(data[begin : begin + 100].tobytes() == bytes(100) for begin in begins)
    assert (every[7:], found[7:]) == ([512, 32, 64], [True, False, False])
