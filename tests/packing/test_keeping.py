"""The file for elements that are kept while they are packed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from penstock.errors import PackError
from penstock.packing.disk import Disk
from penstock.packing.folder import lock_folder
from penstock.packing.keeping import file_in


def test_the_file_is_its_owners_alone_and_gone_at_the_end(tmp_path: Path) -> None:
    with file_in(str(tmp_path / "a" / "new"), Disk()) as (file, _):
        file.write(b"1")
        assert [Path(file.name)] == list((tmp_path / "a" / "new").iterdir())
        assert os.stat(file.name).st_mode & 0o777 == 0o600
    assert not (tmp_path / "a" / "new").exists()


def test_without_a_folder_it_is_one_of_the_systems_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with file_in(None, Disk()):
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_there_stays_and_one_that_is_used_too(tmp_path: Path) -> None:
    with file_in(str(tmp_path), Disk()):
        pass
    assert tmp_path.is_dir()
    with file_in(str(tmp_path / "new"), Disk()):
        (tmp_path / "new" / "shard").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["shard"]


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    left, used, other = (tmp_path / name for name in (".penstock-a.kept", ".penstock-b.kept", "c.kept"))
    for path in (left, used, other):
        path.write_bytes(b"1")
    with used.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with file_in(str(tmp_path), Disk()) as (_, done_writing):
            done_writing()
            with file_in(str(tmp_path), Disk()):
                assert len(list(tmp_path.iterdir())) == 4
    assert sorted(tmp_path.iterdir()) == [used, other]


def test_while_it_is_written_nobody_else_packs_to_the_folder(tmp_path: Path) -> None:
    with file_in(str(tmp_path), Disk()) as (_, done_writing):
        with pytest.raises(PackError, match="another packer is at work"), file_in(str(tmp_path), Disk()):
            pass
        done_writing()
        os.close(lock_folder(str(tmp_path), shared=False))
