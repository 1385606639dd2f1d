from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock._storage.cache import held, try_lock, wait_for_lock
from penstock.errors import StorageError

HOLD = """
import sys
from penstock._storage.cache import try_lock
lock = try_lock(sys.argv[1])
print(lock is not None, flush=True)
sys.stdin.read()
"""


def test_only_one_has_a_lock_and_its_file_goes_with_it(tmp_path: Path):
    path = str(tmp_path / "a.lock")
    lock = try_lock(path)
    assert lock is not None
    assert try_lock(path) is None
    lock.release()
    assert not os.path.exists(path)
    again = try_lock(path)
    assert again is not None
    again.release()


def test_who_waits_gets_the_lock_when_it_is_free(tmp_path: Path):
    path = str(tmp_path / "a.lock")
    lock = try_lock(path)
    assert lock is not None
    order: list[str] = []

    def wait() -> None:
        got = wait_for_lock(path, 60)
        order.append("waiter")
        got.release()

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    order.append("holder")
    lock.release()
    for thread in threads:
        thread.join()
    assert order == ["holder"] + ["waiter"] * 4


def test_a_wait_that_is_too_long_is_an_error(tmp_path: Path):
    path = str(tmp_path / "a.lock")
    lock = try_lock(path)
    assert lock is not None
    with pytest.raises(StorageError) as caught:
        wait_for_lock(path, 0.01)
    assert caught.value.what == f"another process holds {path!r} and did not finish in 0.01 s"
    lock.release()  # which lets the thread go that waited


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path):
    path = str(tmp_path / "a.lock")
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        assert try_lock(path) is None
        os.kill(holder.pid, signal.SIGKILL)
        lock = wait_for_lock(path, 60)
        lock.release()


def test_a_short_lock_keeps_its_file(tmp_path: Path):
    path = str(tmp_path / "usage")
    with held(path) as descriptor:
        os.pwrite(descriptor, b"1", 0)
    with held(path) as descriptor:
        assert os.pread(descriptor, 9, 0) == b"1"
