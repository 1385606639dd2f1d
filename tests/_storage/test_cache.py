from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from _storage.remotes import noise, opened
from faults.server import FaultServer, Request

from penstock._contracts.transform import Scratch
from penstock._storage.remote import RemoteStorage
from penstock.errors import StorageError

DATA = noise(1_000_000)
WIDTH = 64 * 1024
NUM_BLOCKS = -(-len(DATA) // WIDTH)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer({"bucket/key": DATA, "bucket/small": DATA[:100]}) as made:
        yield made


def cached(server: FaultServer, folder: Path, **given: object) -> RemoteStorage:
    """Open the object behind a cache."""
    return opened("http", server, "key", "small", cache_dir=folder, cache_block_bytes=WIDTH, cache_bytes=10**7, **given)


def fetched(server: FaultServer) -> list[int]:
    """Return where the blocks begin that were asked for."""
    return [request.begin for request in server.log if request.end - request.begin > 1]


def read_some(storage: RemoteStorage, seed: int, scratch: Scratch | None = None, count: int = 30) -> None:
    """Read random spans and compare them."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 150_000, count)
    offsets = generator.integers(0, len(DATA) - lengths)
    data, starts = storage.read_spans(np.zeros(count, np.int64), offsets, lengths, scratch)
    for offset, length, start in zip(offsets, lengths, starts, strict=True):
        assert data[start : start + length].tobytes() == DATA[offset : offset + length]


def test_each_block_is_fetched_once(server: FaultServer, tmp_path: Path):
    storage, scratch = cached(server, tmp_path), Scratch()
    for seed in range(6):
        read_some(storage, seed, scratch)
    assert storage.read(1, 10, 80) == DATA[10:90]
    assert sorted(fetched(server)) == sorted([0, *range(0, len(DATA), WIDTH)])
    storage.close()
    again = cached(server, tmp_path)
    before = len(server.log)
    read_some(again, 1)
    assert len(server.log) == before
    again.close()


def test_only_what_is_touched_is_fetched(server: FaultServer, tmp_path: Path):
    storage = cached(server, tmp_path)
    assert storage.read(0, WIDTH - 1, 2) == DATA[WIDTH - 1 : WIDTH + 1]
    assert sorted(fetched(server)) == [0, WIDTH]
    assert storage.read(0, 5, 0) == b""
    storage.close()


def test_another_version_of_an_object_is_another_object(server: FaultServer, tmp_path: Path):
    storage = cached(server, tmp_path)
    assert storage.read(0, 0, 10) == DATA[:10]
    storage.close()
    server.put("bucket/key", DATA[::-1])
    storage = cached(server, tmp_path)
    assert storage.read(0, 0, 10) == DATA[::-1][:10]
    storage.close()


def test_threads_that_want_the_same_blocks_fetch_them_once(server: FaultServer, tmp_path: Path):
    storage = cached(server, tmp_path, max_requests=4)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: read_some(storage, seed), range(8)))
    assert sorted(fetched(server)) == list(range(0, len(DATA), WIDTH))
    storage.close()


READER = """
import sys
import numpy as np
from penstock._contracts.storage import RemoteFiles, StorageOptions
from penstock._storage import open_storage
from penstock._storage.cache import CacheFolder
wait = CacheFolder.wait_for_lock
def told(self, name, limit_s):
    print("waiting", flush=True)
    return wait(self, name, limit_s)
CacheFolder.wait_for_lock = told
url, folder = sys.argv[1:]
options = StorageOptions(cache_dir=folder, cache_block_bytes=65536, cache_bytes=10**7, deadline_s=300)
storage = open_storage(RemoteFiles(url, options), "reader")
print("open", flush=True)
sys.stdin.readline()
data = storage.read(0, 0, storage.size(0))
import hashlib
print(hashlib.sha256(data).hexdigest(), flush=True)
storage.close()
"""


def start(server: FaultServer, folder: Path) -> subprocess.Popen[str]:
    """Start a process that has opened the object and waits for a line before it reads all of it."""
    arguments = [sys.executable, "-c", READER, f"{server.url}/bucket/key", str(folder)]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def finish(process: subprocess.Popen[str]) -> str:
    with process:
        out, _ = process.communicate()
    return (out.splitlines() or [""])[-1]


def test_two_processes_that_want_the_same_blocks_fetch_them_once(server: FaultServer, tmp_path: Path):
    import hashlib

    readers = [start(server, tmp_path) for _ in range(2)]
    waits, lock, held = threading.Event(), threading.Lock(), []

    def hold(request: Request) -> None:
        with lock:
            if request.end - request.begin == 1 or held:
                return
            held.append(request.number)
        assert waits.wait(60)

    server.fault = hold  # type: ignore[assignment]
    for reader in readers:
        go(reader)
    try:
        # The first answer is held back until the other process waits for the lock of a block.
        ready, _, _ = select.select([reader.stdout for reader in readers], [], [], 60)
        assert ready
        assert ready[0].readline() == "waiting\n"
    finally:
        waits.set()
    assert [finish(reader) for reader in readers] == [hashlib.sha256(DATA).hexdigest()] * 2
    assert sorted(fetched(server)) == list(range(0, len(DATA), WIDTH))


def test_blocks_that_a_killed_process_was_fetching_are_fetched_by_the_next(server: FaultServer, tmp_path: Path):
    victim = start(server, tmp_path)
    asked, go_on = threading.Event(), threading.Event()

    def hold(request: Request) -> None:
        if request.end - request.begin > 1 and not go_on.is_set():
            asked.set()
            go_on.wait(60)

    server.fault = hold  # type: ignore[assignment]
    go(victim)
    assert asked.wait(60)
    os.kill(victim.pid, signal.SIGKILL)
    finish(victim)
    go_on.set()
    storage = cached(server, tmp_path)
    assert storage.read(0, 0, len(DATA)) == DATA
    storage.close()


def damage(folder: Path) -> int:
    """Flip a bit of every block; return how many there are."""
    paths = [path for path in folder.rglob("*-*") if path.is_file()]
    for path in paths:
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
    return len(paths)


def test_a_damaged_block_is_fetched_again_once_and_then_an_error(server: FaultServer, tmp_path: Path):
    storage = cached(server, tmp_path)
    assert storage.read(0, 0, len(DATA)) == DATA
    assert damage(tmp_path) == NUM_BLOCKS
    assert storage.read(0, 0, len(DATA)) == DATA
    assert sorted(fetched(server)) == sorted([*range(0, len(DATA), WIDTH)] * 2)
    assert storage.read(0, 0, len(DATA)) == DATA
    assert len(fetched(server)) == 2 * NUM_BLOCKS
    damage(tmp_path)
    with pytest.raises(StorageError) as caught:
        storage.read(0, 0, 10)
    assert caught.value.what == f"a block in cache_dir={str(tmp_path)!r} is damaged again after it was fetched again"
    assert not list(tmp_path.rglob("*.lock"))
    storage.close()


def test_a_failed_fetch_leaves_no_lock_and_no_block(server: FaultServer, tmp_path: Path):
    storage = cached(server, tmp_path, retries=0)
    server.put("bucket/key", b"another")
    with pytest.raises(Exception, match="was replaced"):
        storage.read(0, 0, len(DATA))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
    storage.close()


def test_a_cache_that_is_too_small_for_a_pass_stays_small_and_right(server: FaultServer, tmp_path: Path):
    limit = 4 * WIDTH
    storage = opened("http", server, "key", cache_dir=tmp_path, cache_block_bytes=WIDTH, cache_bytes=limit + 10_000)
    for seed in range(4):
        read_some(storage, seed)
        assert sum(path.stat().st_size for path in tmp_path.rglob("*-*") if path.is_file()) <= limit + 10_000
    storage.close()
