"""Files that get their name when they are complete."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from packing.small import FailingDisk, ShortDisk, StepDisk

from penstock.packing import disk as disk_module
from penstock.packing.disk import Disk, OutFile, publish


def test_a_file_is_written_through_a_buffer_with_its_size_and_hash(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    disk = StepDisk(-1)
    file = OutFile(disk, str(tmp_path / "out"))
    for begin in range(0, len(data), 1000):
        assert file.write(memoryview(data)[begin : begin + 1000]) == 1000
    assert (file.tell(), file.closed) == (3_000_000, False)
    file.seal()
    assert file.closed
    assert (tmp_path / "out").read_bytes() == data
    assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert disk.names == ["create", "write", "write", "write", "sync", "close"]
    file.close()


def test_short_writes_go_on_until_all_is_written(tmp_path: Path) -> None:
    data = os.urandom(10_000)
    publish(ShortDisk(), str(tmp_path / "out"), str(tmp_path), lambda file: file.write(data))
    assert (tmp_path / "out").read_bytes() == data


def test_a_file_that_is_there_is_replaced_at_once_and_only_when_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    seen = []
    file = publish(
        Disk(), str(path), str(tmp_path), lambda file: file.write(b"new one"), lambda file: seen.append((file.closed, path.read_bytes()))
    )
    assert seen == [(True, b"old")]
    assert path.read_bytes() == b"new one"
    assert file.size == 7


def test_an_error_at_any_step_leaves_the_old_file_or_the_new_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for at in range(5):
        for after in (False, True):
            path.write_bytes(b"old")
            with pytest.raises(OSError) as caught:
                publish(FailingDisk(at, errno.EDQUOT, after=after), str(path), str(tmp_path), lambda file: file.write(b"new"))
            assert caught.value.errno == errno.EDQUOT
            assert path.read_bytes() in ((b"old", b"new") if at == 4 else (b"old",))
            assert os.listdir(tmp_path) == ["out"]


def test_the_names_of_new_folders_are_on_the_disk(tmp_path: Path) -> None:
    synced = []

    class Noting(Disk):
        def sync_folder(self, path: str) -> None:
            super().sync_folder(path)
            synced.append((path, os.listdir(path)))

    Noting().make_folder(str(tmp_path / "a" / "b"))
    Noting().make_folder(str(tmp_path / "a" / "b"))
    assert synced == [(str(tmp_path), ["a"]), (str(tmp_path / "a"), ["b"])]
    (tmp_path / "file").write_bytes(b"")
    for path in ("file", "file/sub"):
        with pytest.raises(OSError):
            Disk().make_folder(str(tmp_path / path))


@pytest.mark.parametrize("there", [True, False])
def test_of_a_large_file_the_system_begins_to_write_before_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(disk_module, "_sync_file_range", lambda: (lambda *numbers: asked.append(numbers)) if there else None)
    file = OutFile(Disk(), str(tmp_path / "file"))
    for _ in range(10):
        file.write(bytes(1 << 20))
    file.seal()
    assert [numbers[1:] for numbers in asked] == ([(0, 0, 2)] * 2 if there else [])
    assert (tmp_path / "file").stat().st_size == 10 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="a function of Linux")
def test_the_system_takes_what_it_is_asked_to_begin(tmp_path: Path) -> None:
    begin = disk_module._sync_file_range()
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        assert begin(file.fileno(), 0, 0, disk_module._SYNC_FILE_RANGE_WRITE) == 0


def test_what_cannot_be_cleaned_up_is_a_note_of_the_error(tmp_path: Path) -> None:
    def fill(file: OutFile) -> None:
        os.unlink(file.path)
        os.mkdir(file.path)
        raise ValueError("no content")

    with pytest.raises(ValueError, match="no content") as caught:
        publish(Disk(), str(tmp_path / "out"), str(tmp_path), fill)
    assert "and then, removing" in caught.value.__notes__[0]
