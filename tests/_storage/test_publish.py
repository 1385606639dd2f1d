from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path
from typing import BinaryIO

import pytest
from programs import output_of, python

from penstock._storage.local import publish


def test_bytes_pieces_and_a_writer_give_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    publish(path, b"one")
    assert (tmp_path / "a").read_bytes() == b"one"
    publish(path, [b"tw", memoryview(b"o")])
    assert (tmp_path / "a").read_bytes() == b"two"

    def write(file: BinaryIO) -> None:
        file.write(b"three")

    publish(path, write)
    assert (tmp_path / "a").read_bytes() == b"three"
    assert os.listdir(tmp_path) == ["a"]


def test_when_writing_fails_the_old_file_stays_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"x" * 100_000)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        publish(str(tmp_path / "a"), write)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_that_is_not_there_and_a_name_that_is_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        publish(str(tmp_path / "no" / "a"), b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        publish(str(tmp_path / "folder"), b"")
    assert os.listdir(tmp_path) == ["folder"]


def test_names_of_250_bytes_can_be_published(tmp_path: Path) -> None:
    name = "é" * 125
    publish(str(tmp_path / name), b"x")
    assert os.listdir(tmp_path) == [name]


def test_several_threads_that_publish_one_name_leave_one_complete_file(tmp_path: Path) -> None:
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait()
        for _ in range(20):
            publish(str(tmp_path / "a"), bytes([number]) * 10_000)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data = (tmp_path / "a").read_bytes()
    assert len(data) == 10_000
    assert len(set(data)) == 1
    assert os.listdir(tmp_path) == ["a"]


KILLED = """
import os, signal, sys
from penstock._storage.local import publish
def write(file):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
publish(sys.argv[1], write)
"""


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    assert python("-c", KILLED, tmp_path / "a").returncode == -9
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == ["a"]


def test_what_killed_processes_left_is_used_up_by_the_next_that_publishes_the_name(tmp_path: Path) -> None:
    for _ in range(3):
        assert python("-c", KILLED, tmp_path / "a").returncode == -9
        assert len(os.listdir(tmp_path)) == 1  # the last one's, and not one of each
    publish(str(tmp_path / "b"), b"other")
    assert len(os.listdir(tmp_path)) == 2
    publish(str(tmp_path / "a"), b"x")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_part_that_somebody_writes_is_left_alone_and_so_is_one_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")

    def write(file: BinaryIO) -> None:
        file.write(b"outer")
        file.flush()
        publish(str(tmp_path / "a"), b"inner")
        assert (tmp_path / "a").read_bytes() == b"inner"

    publish(str(tmp_path / "a"), write)
    assert (tmp_path / "a").read_bytes() == b"outer"
    assert sorted(os.listdir(tmp_path)) == ["a", "precious"]

    part = tmp_path / f".a.{zlib.crc32(b'a'):08x}.part"
    for plant in (lambda: part.symlink_to(tmp_path / "precious"), lambda: os.link(tmp_path / "precious", part), lambda: os.mkfifo(part)):
        plant()
        publish(str(tmp_path / "a"), b"again")
        assert (tmp_path / "a").read_bytes() == b"again"
        assert (tmp_path / "precious").read_bytes() == b"precious"
        part.unlink()


LIMITED = """
import resource, signal, sys
from penstock._storage.local import publish
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    publish(sys.argv[1], b"x" * 5000)
except OSError as error:
    print(error.errno)
"""


def test_a_disk_that_takes_only_a_part_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    assert output_of("-c", LIMITED, tmp_path / "a") == "27\n"
    assert os.listdir(tmp_path) == []
