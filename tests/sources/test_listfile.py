from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from sources.gathering import fill, gathered

from penstock._contracts.source import ColumnSource, IndexedSource
from penstock.errors import ListFileError, PlanError, SourceError
from penstock.sources.files import ListSource


def listed(folder: Path, text: str | bytes, **options: Any) -> ListSource:
    (folder / "l.txt").write_bytes(os.fsencode(text))
    return ListSource(folder / "l.txt", **options)


def test_elements_are_path_data_and_label(tmp_path: Path) -> None:
    fill(tmp_path, "cat/1", "dog 2")
    source = listed(tmp_path, "# path label\ncat/1 0\ndog 2 1\n")
    assert isinstance(source, IndexedSource)
    assert not isinstance(source, ColumnSource)
    assert gathered(source) == [{"path": "cat/1", "data": b"cat/1", "label": 0}, {"path": "dog 2", "data": b"dog 2", "label": 1}]
    assert type(gathered(source)[0]["label"]) is int
    assert [row["label"] for row in gathered(source, [1, 0, 1])] == [1, 0, 1]
    assert source.describe(1) == f"line 3 of {str(tmp_path / 'l.txt')!r} ('dog 2')"


def test_a_list_of_paths_alone_has_no_label(tmp_path: Path) -> None:
    fill(tmp_path, "a 1")
    assert gathered(listed(tmp_path, "a 1\n", label=False)) == [{"path": "a 1", "data": b"a 1"}]


def test_paths_stand_in_root_and_absolute_ones_may_when_they_are_inside(tmp_path: Path) -> None:
    fill(tmp_path, "in/a")
    source = listed(tmp_path, f"a 1\n{tmp_path}/in/a 2\n", root=tmp_path / "in")
    assert [row["data"] for row in gathered(source)] == [b"in/a", b"in/a"]
    with pytest.raises(ListFileError, match=r"line 2: path '\.\./l\.txt' is outside root"):
        listed(tmp_path, "a 1\n../l.txt 2\n", root=tmp_path / "in")


def test_list_and_root_are_made_absolute_when_the_source_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "in/a", "b")
    (tmp_path / "l.txt").write_text("a 1\n")
    (tmp_path / "m.txt").write_text("b 1\n")
    monkeypatch.chdir(tmp_path)
    sources = [ListSource("l.txt", "in"), ListSource("m.txt")]
    os.chdir("/")
    assert [gathered(source)[0]["data"] for source in sources] == [b"in/a", b"b"]
    assert sources[0].describe(0) == "line 1 of 'l.txt' ('a')"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX names")
@pytest.mark.parametrize(
    "name", ["quo'te\"", "50%{}", "-dash", "~", "sp  ace", "e\u0301", "é", "😀", "back\\slash", "\udcff\udcfe", "x" * 255]
)
def test_odd_paths_are_read_and_shown_escaped(tmp_path: Path, name: str) -> None:
    fill(tmp_path, name)
    source = listed(tmp_path, f"{name}\t3\n")
    assert gathered(source) == [{"path": name, "data": os.fsencode(name), "label": 3}]
    source.describe(0).encode("utf-8")


def test_a_missing_file_is_the_systems_error_with_list_line_and_path(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b", "c")
    source = listed(tmp_path, "a 0\n\nb 1\nc 2\n")
    (tmp_path / "b").unlink()
    rows: list[Any] = []
    with pytest.raises(FileNotFoundError, match="b") as caught:
        source.gather([2, 1, 0], rows)
    assert len(rows) == 1
    assert caught.value.filename == str(tmp_path / "b")
    assert caught.value.__notes__ == [f"reading line 3 of {str(tmp_path / 'l.txt')!r} ('b')"]


def test_a_list_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as missing:
        ListSource(tmp_path / "none.txt")
    assert missing.value.what == f"file {str(tmp_path / 'none.txt')!r} is not there"
    assert missing.value.where.startswith("read_list, in the working directory ")
    assert "check the path" in missing.value.fix
    with pytest.raises(SourceError, match="is a directory"):
        ListSource(tmp_path)


def test_a_root_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        listed(tmp_path, "a 1\n", root=tmp_path / "none")
    assert f"root {str(tmp_path / 'none')!r} is not a folder" in caught.value.what
    assert "read_list(" in caught.value.where
    assert "holds the files" in caught.value.fix


def test_an_empty_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ListFileError, match="holds no line with a path") as caught:
        listed(tmp_path, "")
    assert "read_list(" in caught.value.where


TWICE = "a 1\nb 2\n# note\na 3\nb 2\na 1\n"


def test_duplicates_are_kept_and_counted(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b")
    source = listed(tmp_path, TWICE)
    assert [row["label"] for row in gathered(source)] == [1, 2, 3, 2, 1]
    assert source.num_duplicates == 3
    assert source.label() == f"read_list({str(tmp_path / 'l.txt')!r}, 5 elements, 3 duplicates)"
    assert listed(tmp_path, "a 1\nb 1\n").label() == f"read_list({str(tmp_path / 'l.txt')!r}, 2 elements)"


def test_duplicates_are_dropped_or_refused_on_demand(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b")
    source = listed(tmp_path, TWICE, duplicates="drop")
    assert [(row["path"], row["label"]) for row in gathered(source)] == [("a", 1), ("b", 2)]
    assert len(listed(tmp_path, "a\nb\na\n", label=False, duplicates="drop")) == 2
    with pytest.raises(ListFileError) as caught:
        listed(tmp_path, TWICE, duplicates="error")
    assert caught.value.what == "line 4: path 'a' stands in the list a second time"
    assert "3 such lines in all" in caught.value.where
    assert 'duplicates="drop"' in caught.value.fix
    assert len(listed(tmp_path, "a 1\nb 2\n", duplicates="error")) == 2


def test_an_unknown_duplicates_policy_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="duplicates='maybe' is not known") as caught:
        listed(tmp_path, "a 1\n", duplicates="maybe")
    assert "read_list" in caught.value.where
    assert "keep, drop, error" in caught.value.fix


def test_a_million_lines_cost_no_python_objects_and_a_bounded_memory(tmp_path: Path) -> None:
    num_lines = 1_000_000
    with open(tmp_path / "l.txt", "wb") as file:
        for begin in range(0, num_lines, 10_000):
            file.write(b"".join(b"n%04d/%07d.JPEG %d\n" % (n % 1000, n, n % 1000) for n in range(begin, begin + 10_000)))
    tracemalloc.start()
    try:
        source = ListSource(tmp_path / "l.txt")
        kept, peak = tracemalloc.get_traced_memory()
        num_objects = sum(trace.count for trace in tracemalloc.take_snapshot().statistics("filename"))
    finally:
        tracemalloc.stop()
    assert len(source) == num_lines
    assert source.describe(999_999).startswith(f"line {num_lines} of")
    assert "n0999/0999999.JPEG" in source.describe(999_999)
    assert source.num_duplicates == 0
    assert kept < 60 * num_lines
    assert peak < 100 * num_lines
    assert num_objects < 5000


def test_the_fingerprint_tells_other_names_labels_content_and_lines_but_not_comments_or_another_root(tmp_path: Path) -> None:
    for folder in ("one", "moved", "content"):
        fill(tmp_path / folder, "a", "b", "c")
    (tmp_path / "content/b").write_bytes(b"B")
    base = listed(tmp_path, "a 1\nb 2\n", root=tmp_path / "one").fingerprint()
    same = [("a 1\nb 2\n", "moved"), ("# x\r\na\t1\r\n\r\nb 2", "one")]
    other = [("a 1\nc 2\n", "one"), ("a 1\nb 3\n", "one"), ("a 1\nb 2\nc 3\n", "one"), ("a 1\nb 2\n", "content"), ("b 2\na 1\n", "one")]
    for text, root in same:
        assert listed(tmp_path, text, root=tmp_path / root).fingerprint() == base
    for text, root in other:
        assert listed(tmp_path, text, root=tmp_path / root).fingerprint() != base
    os.utime(tmp_path / "one/a", (1, 1))
    assert listed(tmp_path, "a 1\nb 2\n", root=tmp_path / "one").fingerprint() == base
