from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock._storage.cache import CacheFolder
from penstock.errors import StorageError

HOLD = """
import sys
from penstock._storage.cache import CacheFolder
lock = CacheFolder(sys.argv[1], 10**6).try_lock("a")
print(lock is not None, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return CacheFolder(str(tmp_path), 10**6)


def test_only_one_has_a_lock_and_its_file_goes_with_it(folder: CacheFolder, tmp_path: Path):
    for _ in range(2):
        lock = folder.try_lock("a")
        assert lock is not None
        assert folder.try_lock("a") is None
        lock.release()
        assert not list(tmp_path.rglob("*.lock"))


def test_who_waits_gets_the_lock_when_it_is_free(folder: CacheFolder):
    lock = folder.try_lock("a")
    assert lock is not None
    order: list[str] = []

    def wait() -> None:
        got = folder.wait_for_lock("a", 60)
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


def test_a_wait_that_is_too_long_is_an_error(folder: CacheFolder):
    lock = folder.try_lock("a")
    assert lock is not None
    with pytest.raises(StorageError, match="another process holds ") as caught:
        folder.wait_for_lock("a", 0.01)
    assert "and did not finish in 0.01 s" in caught.value.what
    lock.release()


def test_the_lock_of_a_process_that_was_killed_is_free(folder: CacheFolder, tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        assert folder.try_lock("a") is None
        os.kill(holder.pid, signal.SIGKILL)
        folder.wait_for_lock("a", 60).release()
