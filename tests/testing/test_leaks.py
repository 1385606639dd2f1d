from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pytest
from testing.breaking import assert_broken

from penstock.testing import check_no_leaks
from penstock.testing.leaks import Held, left_behind

FIX = "close feeds and files"


def test_a_block_that_leaves_nothing_passes(tmp_path: Path) -> None:
    with check_no_leaks(folder=str(tmp_path)):
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()


def test_each_thing_that_is_left_is_named(tmp_path: Path) -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left-running", daemon=True)
    descriptors: list[int] = []

    def leave() -> None:
        with check_no_leaks(grace_s=0.0, folder=str(tmp_path)):
            thread.start()
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
            (tmp_path / "left.txt").touch()

    broken = assert_broken(leave, "left behind:", "check_no_leaks()", FIX)
    assert "thread 'left-running'" in broken.what
    assert f"descriptor {descriptors[0]} -> /dev/null" in broken.what
    assert f"temporary file {tmp_path / 'left.txt'}" in broken.what
    release.set()
    thread.join()
    os.close(descriptors[0])


def test_a_block_that_raises_keeps_its_own_error() -> None:
    opened: list[int] = []

    def fail() -> None:
        with check_no_leaks(grace_s=0.0):
            opened.append(os.open(os.devnull, os.O_RDONLY))
            raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        fail()
    os.close(opened[0])


def test_in_the_systems_folder_only_names_of_ours_count() -> None:
    before = Held.now()
    ours, others = tempfile.mkdtemp(prefix="penstock-"), tempfile.mkdtemp(prefix="others-")
    assert left_behind(before, 0.0) == [f"temporary file {ours}"]
    os.rmdir(ours)
    os.rmdir(others)


def test_what_is_still_ending_is_given_time() -> None:
    before = Held.now()
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    assert len(left_behind(before, 0.0)) == 1
    release.set()
    assert left_behind(before, 30.0) == []
    thread.join()
