from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock._system.text import shown
from penstock.sources.paths import pack_paths

names = st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name).map(os.fsdecode)


@given(paths=st.lists(names, max_size=20))
def test_paths_come_back_as_they_were_sorted_by_their_bytes_and_once_each(paths: list[str]) -> None:
    table = pack_paths(paths, "/base/")
    assert [table.path(index) for index in range(len(table))] == sorted(set(paths), key=os.fsencode)


@given(paths=st.lists(names, min_size=2, max_size=20, unique=True))
def test_hashes_depend_on_the_path_alone_and_not_on_its_neighbours(paths: list[str]) -> None:
    table = pack_paths(paths, "/base/")
    hashes = table.hashes()
    assert len(np.unique(hashes)) == len(paths)
    for index in range(len(table)):
        assert pack_paths([table.path(index)], "/").hashes()[0] == hashes[index]


def test_hashes_are_the_same_on_every_platform() -> None:
    table = pack_paths(["a", "cat/0001.jpg"], "/")
    assert [hex(value) for value in table.hashes().tolist()] == ["0x95da58fda43ea24c", "0x2d7aa1cffc03521c"]


def test_relative_paths_stand_in_the_base_and_absolute_ones_where_they_are() -> None:
    table = pack_paths(["a"], os.path.join(os.sep, "base", ""))
    assert table.full("a") == os.path.join(os.sep, "base", "a")
    assert table.full("/x/a") == "/x/a"


def test_a_path_costs_its_bytes_and_16_more() -> None:
    table = pack_paths([f"images/{number:07d}.jpg" for number in range(10_000)], "/")
    assert len(table.blob) + table.starts.nbytes + table.ends.nbytes == 10_000 * (18 + 16) + 8


def test_the_fingerprint_records_missing_files_instead_of_failing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    table = pack_paths(["a", "b"], os.path.join(tmp_path, ""))
    without = table.fingerprint("test")
    (tmp_path / "b").write_bytes(b"2")
    assert table.fingerprint("test") != without
    assert without["count"] == 2


def test_shown_escapes_what_would_break_a_message() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert shown(b"\xff\x1b'") == '"\\udcff\\x1b\'"'
    assert shown("naïve 😀") == "'naïve 😀'"
    assert len(shown("x" * 5000)) == 162
    assert shown(b"\xff").isascii()
