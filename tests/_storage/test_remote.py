from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from _storage.remotes import KINDS, noise, opened, options
from faults.server import Fault, FaultServer, Request

from penstock._contracts.storage import RemoteFiles, Storage
from penstock._contracts.transform import Scratch
from penstock._storage import open_storage
from penstock._storage.remote import RemoteStorage
from penstock.errors import PlanError, SourceError, StorageError

pytestmark = pytest.mark.usefixtures("obstore_started")

FILES = [noise(500_000, 1), noise(300_000, 2), b""]
NAMES = ["a", "b", "c"]


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer({f"bucket/{name}": data for name, data in zip(NAMES, FILES, strict=True)}) as made:
        yield made


def spans(count: int, seed: int = 7, longest: int = 3000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return files, offsets and lengths of random spans."""
    generator = np.random.default_rng(seed)
    files = generator.integers(0, 2, count)
    lengths = generator.integers(0, longest, count)
    offsets = generator.integers(0, np.where(files == 0, 500_000, 300_000) - lengths)
    return files, offsets, lengths


def check(storage: RemoteStorage, asked: tuple[np.ndarray, np.ndarray, np.ndarray], scratch: Scratch | None = None) -> None:
    """Compare spans with what the files hold."""
    data, starts = storage.read_spans(*asked, scratch)
    for file, offset, length, start in zip(*asked, starts, strict=True):
        assert data[start : start + length].tobytes() == FILES[file][offset : offset + length]


@pytest.mark.parametrize("kind", KINDS)
def test_spans_in_any_order_are_read_with_few_requests(server: FaultServer, kind: str):
    storage = opened(kind, server, *NAMES, max_gap_bytes=20_000, max_requests=8)
    assert isinstance(storage, Storage)
    before = len(server.log)
    check(storage, spans(200))
    assert len(server.log) - before <= 20
    assert server.most_in_flight <= 8
    scratch = Scratch()
    for seed in range(5):
        check(storage, spans(20, seed), scratch)
    check(storage, (np.zeros(0, np.int64),) * 3)
    assert storage.read(2, 0, 0) == b""
    assert storage.read(0, 499_999, 1) == FILES[0][-1:]
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_many_threads_read_at_once_and_the_limit_holds_for_all_together(server: FaultServer, kind: str):
    storage = opened(kind, server, *NAMES, max_gap_bytes=0, max_requests=3)
    together, first = threading.Barrier(3, timeout=60), len(server.log)

    def hold(request: Request) -> None:
        if first <= request.number < first + 3:
            together.wait()

    server.fault = hold  # type: ignore[assignment]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: check(storage, spans(10, seed)), range(16)))
    assert server.most_in_flight == 3
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_connections_end_with_the_object(server: FaultServer, kind: str):
    storage = opened(kind, server, "a")
    assert storage.read(0, 0, 4) == FILES[0][:4]
    threads = [thread for thread in threading.enumerate() if thread.name == "penstock-remote"]
    assert threads
    del storage
    gc.collect()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("kind", KINDS)
def test_close_breaks_off_a_wait_for_the_next_try(server: FaultServer, kind: str):
    storage = opened(kind, server, "a", backoff_s=3600.0, max_backoff_s=3600.0, deadline_s=10_000.0)
    asked = threading.Event()

    def fault(request: object) -> Fault:
        asked.set()
        return Fault(status=503)

    server.fault = fault
    caught: list[StorageError] = []

    def read() -> None:
        try:
            storage.read(0, 0, 4)
        except StorageError as error:
            caught.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    asked.wait()
    storage.close()
    reader.join()
    assert "was being read when the storage was closed" in caught[0].what
    with pytest.raises(StorageError):
        storage.read(0, 0, 4)


def test_a_span_outside_its_object_is_refused(server: FaultServer):
    storage = opened("http", server, "a")
    for offset, length in ((500_000, 1), (-1, 1), (0, 500_001), (0, -1)):
        with pytest.raises(SourceError) as caught:
            storage.read(0, offset, length)
        assert caught.value.what == f"'{server.url}/bucket/a' has 500000 bytes, and not {length} at {offset}"
    storage.close()


def test_urls_are_opened_where_paths_are(server: FaultServer):
    storage = open_storage(RemoteFiles([f"{server.url}/bucket/{key}" for key in "bab"], options()), "read_test")
    assert [storage.name(file)[-1] for file in range(len(storage))] == ["a", "b"]
    assert isinstance(storage, RemoteStorage)
    storage.close()
    with pytest.raises(PlanError) as caught:
        open_storage([f"{server.url}/bucket/b", "/tmp/x"], "read_test")
    assert caught.value.what == "paths and URLs stand in one list"
    with pytest.raises(PlanError, match="has the scheme 'pipe'"):
        open_storage("pipe:cat x", "read_test")
