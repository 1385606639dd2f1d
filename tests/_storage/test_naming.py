from __future__ import annotations

import os
import stat

from penstock._storage.local import kind_of_file
from penstock._storage.urls import shown


def test_names_are_quoted_escaped_and_cut() -> None:
    assert shown("a\nb") == "'a\\nb'"
    assert shown(b"\xff") == "'\\udcff'"
    assert len(shown("x" * 1000)) == 162
    assert shown("x" * 1000).endswith("...'")


def test_kinds_of_files_have_words() -> None:
    assert kind_of_file(os.stat("/").st_mode) == "a directory"
    assert kind_of_file(stat.S_IFIFO) == "a named pipe (FIFO)"
    assert kind_of_file(0) == "of an unknown kind"
