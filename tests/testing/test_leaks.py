from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from testing.breaking import assert_broken

from penstock.testing import check_no_leaks
from penstock.testing.leaks import held, left_behind

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


def ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has ended, and leave it a zombie."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_child_that_was_there_before_may_end_or_become_another_program_and_another_is_named() -> None:
    ending = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    changing = subprocess.Popen(["sh", "-c", "read line; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert ending.stdin is not None
    assert changing.stdin is not None
    assert changing.stdout is not None
    before = held()
    changing.stdin.write(b"go\nI am cat\n")
    changing.stdin.flush()
    assert changing.stdout.readline() == b"I am cat\n"
    ending.stdin.close()
    ended(ending)
    assert left_behind(before, 0.0) == []
    changing.stdin.close()
    ending.wait()
    changing.wait()
    changing.stdout.close()
    before = held()
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    assert any(words.startswith(f"process {child.pid} ") for words in left_behind(before, 0.0))
    child.stdin.close()
    ended(child)
    assert left_behind(before, 0.0) == [f"zombie {child.pid}"]
    child.wait()


def test_in_the_systems_folder_only_names_of_ours_count() -> None:
    before = held()
    ours, others = tempfile.mkdtemp(prefix="penstock-"), tempfile.mkdtemp(prefix="others-")
    assert left_behind(before, 0.0) == [f"temporary file {ours}"]
    os.rmdir(ours)
    os.rmdir(others)


def test_what_is_still_ending_is_given_time() -> None:
    before = held()
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    assert len(left_behind(before, 0.0)) == 1
    release.set()
    assert left_behind(before, 30.0) == []
    thread.join()
