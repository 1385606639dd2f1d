"""Stores and networks that do not do what they should: FAULTS D14 to D19, D21, C30, F9, R8."""

from __future__ import annotations

import gc
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from _storage.remotes import KEYS, KINDS, noise, opened, options
from core import core
from faults.server import Fault, FaultServer, Request, login_page

import penstock as ps
from penstock._storage import open_storage
from penstock._storage.remote import open_remote
from penstock.errors import ObjectChanged, PlanError, StorageError

pytestmark = pytest.mark.usefixtures("obstore_started")

DATA = noise(300_000)
COUNT = 100_000


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer({"bucket/key": DATA}) as made:
        yield made


def first(*faults: Fault | None) -> Callable[[Request], Fault | None]:
    """Return a script: these faults, then none."""
    left = iter(faults)
    return lambda request: next(left, None)


AGAIN = {
    "500": Fault(status=500),
    "502": Fault(status=502),
    "503 SlowDown": Fault(status=503, body=b"<Error><Code>SlowDown</Code></Error>"),
    "429": Fault(status=429),
    "reset": Fault(reset=True),
    "reset in the middle": Fault(reset_after=6_000),
    "short body": Fault(close_after=6_000),
    "no body": Fault(close_after=0),
    "all of the object": Fault(whole=True),
    "another range": Fault(shift=1000),
    "login page": login_page(),
    "page as a range": Fault(body=b"<html>", headers={"content-range": "bytes 100000-199999/300000"}),
    "no HTTP": Fault(raw=b"SSH-2.0-OpenSSH\r\n\r\n"),
    "nothing": Fault(raw=b""),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", AGAIN.values(), ids=AGAIN.keys())
def test_what_goes_wrong_is_asked_again_and_is_never_an_end(server: FaultServer, kind: str, fault: Fault):
    storage = opened(kind, server, "key", max_range_bytes=COUNT)
    server.fault = first(fault, None, fault)
    before = len(server.log)
    for _ in range(2):
        assert storage.read(0, COUNT, COUNT) == DATA[COUNT : 2 * COUNT]
    assert len(server.log) == before + 4
    server.fault = lambda request: fault
    with pytest.raises((StorageError, ObjectChanged)) as caught:
        storage.read(0, COUNT, COUNT)
    assert isinstance(caught.value, StorageError), "no version has changed"
    shown = f"{server.url}/bucket/key" if kind == "http" else f"{kind}://bucket/key"
    assert f"of '{shown}' did not come after 5 tries: " in caught.value.what
    storage.close()


def test_bytes_that_came_before_a_break_are_not_asked_for_again(server: FaultServer):
    storage = opened("http", server, "key", max_range_bytes=COUNT)
    server.fault = first(Fault(close_after=60_000), Fault(close_after=10_000))
    assert storage.read(0, 0, COUNT) == DATA[:COUNT]
    assert [request.begin for request in server.log[1:]] == [0, 60_000, 70_000]
    storage.close()


def test_chunks_without_an_end_and_coded_bodies_are_asked_again(server: FaultServer):
    storage = opened("http", server, "key")
    server.fault = first(Fault(headers={"content-encoding": "gzip"}), Fault(headers={"content-encoding": "br"}))
    assert storage.read(0, 0, COUNT) == DATA[:COUNT]
    assert len(server.log) == 4
    server.fault = first(Fault(chunked=True, endless=True))
    assert storage.read(0, 0, COUNT) == DATA[:COUNT]
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_faults_while_objects_are_looked_for_are_asked_again_too(server: FaultServer, kind: str):
    server.fault = first(Fault(status=503), Fault(reset=True))
    storage = opened(kind, server, "key")
    assert len(server.log) == 3
    assert storage.size(0) == len(DATA)
    storage.close()


def test_a_server_is_left_alone_for_as_long_as_it_wants(server: FaultServer):
    storage = opened("http", server, "key")
    server.fault = first(Fault(status=503, headers={"retry-after": "1"}))
    assert storage.read(0, 0, 10) == DATA[:10]
    assert server.log[2].time_s - server.log[1].time_s >= 1.0
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("status", "what"), [(404, "is not there"), (403, "may not be read"), (401, "may not be read")])
def test_an_object_that_is_gone_or_forbidden_is_an_error_at_once(server: FaultServer, kind: str, status: int, what: str):
    storage = opened(kind, server, "key")
    server.fault = lambda request: Fault(status=status)
    before = len(server.log)
    with pytest.raises(StorageError) as caught:
        storage.read(0, 0, 10)
    assert what in caught.value.what
    assert len(server.log) - before == (1 if status == 404 else 2), "asked again once, with fresh credentials"
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_is_replaced_between_two_reads_is_an_error(server: FaultServer, kind: str):
    storage = opened(kind, server, "key")
    assert storage.read(0, 0, 10) == DATA[:10]
    server.put("bucket/key", DATA[::-1])
    with pytest.raises(ObjectChanged, match="was replaced while it was read"):
        storage.read(0, 0, 10)
    server.fault = lambda request: Fault(headers={"etag": '"third"'})
    server.put("bucket/key", DATA)  # a server that ignores If-Match: the answer's own tag is compared
    with pytest.raises(ObjectChanged):
        storage.read(0, 0, 10)
    storage.close()


# -- servers that are slow or silent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_stops_after_nine_tenths_is_asked_for_the_rest(server: FaultServer, kind: str):
    storage = opened(kind, server, "key", timeout_s=0.2, max_range_bytes=COUNT)
    server.fault = first(Fault(hang_after=90_000))
    assert storage.read(0, 0, COUNT) == DATA[:COUNT]
    if kind == "http":
        assert server.log[2].begin == 90_000
    storage.close()


def test_a_server_that_gives_a_byte_at_a_time_is_given_up(server: FaultServer):
    storage = opened("http", server, "key", timeout_s=0.1, min_bytes_per_s=100_000.0, retries=0)
    server.fault = lambda request: Fault(drip=(1, 0.02))
    with pytest.raises(StorageError, match="fewer than 100000 bytes a second came"):
        storage.read(0, 0, COUNT)
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_object_store_is_asked_again(server: FaultServer, kind: str):
    storage = opened(kind, server, "key", timeout_s=0.2, min_bytes_per_s=1e6)
    server.fault = first(Fault(drip=(100, 0.05)))
    assert storage.read(0, 0, 10_000) == DATA[:10_000]
    assert len(server.log) == 3
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", core([Fault(hang_after=0), Fault(status=503), Fault(reset=True)]), ids=["silent", "503", "reset"])
def test_the_deadline_of_a_read_is_kept(server: FaultServer, kind: str, fault: Fault):
    deadline_s = 1.0
    storage = opened(kind, server, "key", retries=10**9, timeout_s=0.3, deadline_s=deadline_s, max_backoff_s=0.05)
    server.fault = lambda request: fault
    begin = time.monotonic()
    with pytest.raises(StorageError) as caught:
        storage.read(0, 0, 10)
    assert time.monotonic() - begin >= 0.9 * deadline_s
    assert "did not come after 1 s, the deadline: " in caught.value.what
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_keeps_coming_ends_at_the_deadline_too(server: FaultServer, kind: str):
    storage = opened(kind, server, "key", timeout_s=5.0, deadline_s=0.5, min_bytes_per_s=1000.0, max_range_bytes=COUNT)
    server.fault = lambda request: Fault(drip=(1000, 0.02))  # 50 kB/s at most: 2 s for all of it
    with pytest.raises(StorageError, match=r"did not come after 0\.5 s, the deadline"):
        storage.read(0, 0, COUNT)
    storage.close()


def test_a_host_that_accepts_and_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/key"
        with pytest.raises(StorageError) as caught:
            open_remote([url], options(timeout_s=0.1, retries=1), "read_test")
    assert "did not come after 2 tries: no answer came for 0.1 s" in caught.value.what


@pytest.mark.parametrize(
    ("url", "why"), [("http://127.0.0.1:1/key", "the connection failed"), ("https://no-such-host.invalid/key", "the connection failed")]
)
def test_nobody_there_is_an_error_after_the_retries(url: str, why: str):
    with pytest.raises(StorageError) as caught:
        open_remote([url], options(retries=1), "read_test")
    assert f"did not come after 2 tries: {why}" in caught.value.what


# -- many readers, many faults -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_readers_that_start_together_are_held_to_the_limit_and_all_finish(server: FaultServer, kind: str):
    storage = opened(kind, server, "key", max_requests=8, max_gap_bytes=0, retries=100)
    server.fault = lambda request: Fault(status=503, body=b"SlowDown") if request.in_flight > 4 else None
    start = threading.Barrier(64)

    def read(number: int) -> bool:
        start.wait()
        return storage.read(0, number * 1000, 1000) == DATA[number * 1000 : (number + 1) * 1000]

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(read, range(64)))
    assert server.most_in_flight <= 8
    storage.close()


RANDOM = [
    Fault(status=503), Fault(status=500), Fault(reset=True), Fault(close_after=500), Fault(reset_after=100), Fault(whole=True),
    Fault(shift=7), login_page(), Fault(raw=b""), Fault(chunked=True, endless=True),
]  # fmt: skip


def soak(server: FaultServer, kind: str, num_reads: int) -> int:
    """Read at random while each fault comes with a chance of 1 in 10; return how many requests that took."""
    storage = opened(kind, server, "key", retries=300, max_gap_bytes=0, deadline_s=1000.0, timeout_s=30.0)
    dice, lock = random.Random(7), threading.Lock()

    def fault(request: Request) -> Fault | None:
        with lock:
            return next((fault for fault in RANDOM if dice.random() < 0.1), None)

    server.fault = fault
    begin = len(server.log)

    def read(seed: int) -> None:
        generator = np.random.default_rng(seed)
        lengths = generator.integers(1, 5000, 25)
        offsets = generator.integers(0, len(DATA) - lengths)
        data, starts = storage.read_spans(np.zeros(25, np.int64), offsets, lengths, None)
        for offset, length, start in zip(offsets, lengths, starts, strict=True):
            assert data[start : start + length].tobytes() == DATA[offset : offset + length]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(num_reads // 25)))
    storage.close()
    return len(server.log) - begin


@pytest.mark.parametrize("kind", KINDS)
def test_hundreds_of_reads_from_a_store_with_every_fault_give_no_wrong_byte_and_no_false_end(server: FaultServer, kind: str):
    assert soak(server, kind, 300) > 400


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_reads_from_a_store_with_every_fault_give_no_wrong_byte_and_no_false_end(server: FaultServer, kind: str):
    assert soak(server, kind, 10_000) > 15_000


# -- what must not be shown, and what must not be asked ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [400, 403, 404, 412, 500])
def test_no_error_shows_a_secret(server: FaultServer, kind: str, status: int):
    secrets = ("hunter2", KEYS["access_key_id"], KEYS["secret_access_key"])
    given = {"headers": {"Authorization": "Bearer hunter2hunter2"}} if kind == "http" else {}
    key = "key?X-Amz-Signature=hunter2hunter2" if kind == "http" else "key"
    storage = opened(kind, server, key, **given)
    body = f"<Error><AWSAccessKeyId>{secrets[1]}</AWSAccessKeyId><Signature>hunter2</Signature></Error>".encode()
    server.fault = lambda request: Fault(status=status, body=body)
    with pytest.raises((StorageError, ObjectChanged)) as caught:
        storage.read(0, 0, 10)
    texts = [
        str(caught.value),
        repr(caught.value),
        storage.name(0),
        str(storage.identity(0)),
        "".join(getattr(caught.value, "__notes__", [])),
    ]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not [secret for secret in secrets for text in texts if secret in text]
    storage.close()


@pytest.mark.parametrize(
    "url",
    [
        "pipe:curl https://example.org/shard.tar", "pipe://cat", "file:///etc/passwd", "http://169.254.169.254/latest/meta-data/",
        "https://metadata.google.internal/computeMetadata/v1/", "javascript://x", "s3+http://bucket/key", "http://example.org/x",
    ],
)  # fmt: skip
def test_lists_of_urls_run_nothing_and_ask_nobody_who_holds_credentials(url: str):
    with pytest.raises(PlanError):
        open_storage(url, "read_text")
    with pytest.raises(PlanError):
        open_storage(["https://127.0.0.1:1/fine", url], "read_text")


# -- a feed that is closed while its workers wait for a server (R1) ------------------------------------------------------------------------


async def same(line: str) -> str:
    return line


@pytest.mark.parametrize(
    ("kind", "dropped", "asynchronous"),
    [("http", False, False), ("http", True, True), ("s3", True, False), ("s3", False, True)],
    ids=["http, closed", "http, dropped, async map", "s3, dropped", "s3, closed, async map"],
)
def test_a_feed_that_ends_breaks_off_its_reads_loses_nothing_and_the_dataset_stays_of_use(
    kind: str, dropped: bool, asynchronous: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = [f"line {number} " + "x" * 500 for number in range(600)]
    with FaultServer({"bucket/lines": "\n".join(lines).encode()}) as server:
        start = f"{server.url}/bucket/" if kind == "http" else "s3://bucket/"
        given = options(None if kind == "http" else server, deadline_s=3600.0, timeout_s=3600.0, max_range_bytes=5_000, max_gap_bytes=0)
        dataset = ps.read_text(ps.RemoteFiles(start + "lines", given)).shuffle(seed=3)
        dataset = (dataset.map(same, concurrency=8) if asynchronous else dataset).batch(10)
        wanted = [list(batch) for batch in dataset.feed(executor="inline")]
        bad = tmp_path / "bad.jsonl"
        feed = dataset.feed(executor="threads", num_workers=3, memory_bytes=50_000, on_error=ps.Retry(3, then=ps.Skip(quarantine=bad)))
        found = [list(next(feed))]
        state, waits = feed.state_dict(), threading.Event()

        def hang(request: Request) -> Fault:
            waits.set()
            return Fault(hang_after=100)

        server.fault = hang
        while not waits.wait(0.05):  # what was read ahead is delivered until a worker asks the server, and then waits for ever
            found.append(list(next(feed)))
            state = feed.state_dict()
        workers = [thread for thread in threading.enumerate() if thread.name.startswith("penstock-") and thread.name != "penstock-remote"]
        if dropped:
            del feed
            gc.collect()
            for thread in workers:
                thread.join()
        else:
            feed.close()  # StillRunning, if the reads were not broken off
            assert feed.stats().num_skipped == 0
        assert not bad.exists() or not bad.read_text()
        server.fault = None
        again = dataset.feed(executor="threads", num_workers=2)
        again.load_state_dict(state)
        assert found + [list(batch) for batch in again] == wanted
