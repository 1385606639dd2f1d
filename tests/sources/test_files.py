from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from sources.gathering import fill, gathered

from penstock._contracts.source import ColumnSource, IndexedSource
from penstock.errors import SourceError
from penstock.sources.files import FilesSource
from penstock.testing import check_source


def test_files_come_sorted_by_bytes_with_path_and_data(tmp_path: Path) -> None:
    fill(tmp_path, "b.bin", "a/z.bin", "a/é.bin", "B.bin", "c.txt", ".hidden.bin")
    source = FilesSource(tmp_path / "**" / "*.bin")
    assert isinstance(source, IndexedSource)
    assert not isinstance(source, ColumnSource)
    names = [os.path.relpath(row["path"], tmp_path) for row in gathered(source)]
    assert names == ["B.bin", "a/z.bin", "a/é.bin", "b.bin"]
    assert [row["data"].decode() for row in gathered(source)] == names
    check_source(source, again=lambda: FilesSource(tmp_path / "**" / "*.bin"))


def test_relative_paths_stay_relative_and_are_read_after_a_change_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "in/a", "in/b")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    source = FilesSource("in/*")
    os.chdir(tmp_path / "elsewhere")
    assert gathered(source) == [{"path": "in/a", "data": b"in/a"}, {"path": "in/b", "data": b"in/b"}]
    assert source.fingerprint()["sampled_bytes"] == 8


ODD_NAMES = ["new\nline", "quo'te\"", "50%{}", "-dash", "~", "sp ace", "e\u0301", "é", "😀", "back\\slash", "\udcff\udcfe", "[1]"]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX names")
def test_odd_names_are_read_and_shown_escaped(tmp_path: Path) -> None:
    fill(tmp_path, *ODD_NAMES)
    source = FilesSource(tmp_path / "*")
    assert {os.path.basename(row["path"]) for row in gathered(source)} == set(ODD_NAMES)
    for index in range(len(source)):
        shown = source.describe(index)
        assert "\n" not in shown
        shown.encode("utf-8")
    assert gathered(FilesSource(tmp_path / "[1]"))[0]["data"] == b"[1]"


def test_a_file_deleted_after_listing_is_the_systems_error_with_a_note(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b")
    source = FilesSource(tmp_path / "*")
    (tmp_path / "b").unlink()
    rows: list[Any] = []
    with pytest.raises(FileNotFoundError, match="b") as caught:
        source.gather([0, 1, 0], rows)
    assert len(rows) == 1
    assert f"reading file {str(tmp_path / 'b')!r}" in caught.value.__notes__


@pytest.mark.skipif(os.name != "posix", reason="needs a FIFO")
def test_a_fifo_among_the_files_is_an_error_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError) as caught:
        gathered(FilesSource(tmp_path / "*"))
    assert "named pipe" in caught.value.what
    assert "pipe" in caught.value.__notes__[0]


def test_the_fingerprint_tells_other_names_other_content_and_one_more_file_but_not_another_place_or_time(tmp_path: Path) -> None:
    fill(tmp_path, "one/a", "one/b", "moved/a", "moved/b", "names/a", "names/c", "more/a", "more/b", "more/c", "content/a", "content/b")
    for folder in ("moved", "content", "names", "more"):
        for path in (tmp_path / folder).iterdir():
            path.write_bytes(b"one/" + path.name.encode())
    (tmp_path / "content/b").write_bytes(b"two/b")
    os.utime(tmp_path / "moved/a", (1, 1))
    prints = {name: FilesSource(tmp_path / name / "*").fingerprint() for name in ("one", "moved", "names", "more", "content")}
    assert prints["one"] == prints["moved"]
    assert all(prints["one"] != prints[name] for name in ("names", "more", "content"))
