"""Where the index of a file may stand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.sources.indexing import cached_index, user_folder


def test_the_users_cache_folder_is_that_of_the_environment_or_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert user_folder() == str(tmp_path / ".cache" / "penstock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert user_folder() == str(tmp_path / "own" / "penstock")


def test_each_file_kind_and_option_has_its_own_place() -> None:
    given = [("/a", "tar", {}), ("/b", "tar", {}), ("/a", "text", {}), ("/a", "tar", {"x": 1})]
    places = {cached_index("/cache", *one) for one in given}
    assert len(places) == 4
    assert all(place.startswith(f"/cache{os.sep}index{os.sep}") for place in places)
