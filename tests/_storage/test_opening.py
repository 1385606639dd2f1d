from __future__ import annotations

from pathlib import Path

import pytest

from penstock._storage import open_storage
from penstock._storage.local import LocalStorage
from penstock.errors import SourceError


def test_patterns_become_a_storage_of_the_files_in_order(tmp_path: Path) -> None:
    for name in "bca":
        (tmp_path / name).write_bytes(name.encode())
    storage = open_storage([tmp_path / "[ab]", str(tmp_path / "{b,c}")], "read_x")
    assert isinstance(storage, LocalStorage)
    assert [storage.read(file, 0, 1) for file in range(len(storage))] == [b"a", b"b", b"c"]


def test_a_glob_that_finds_a_pipe_is_refused(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "a")
    with pytest.raises(SourceError, match="a named pipe"):
        open_storage(tmp_path / "*", "read_x")
