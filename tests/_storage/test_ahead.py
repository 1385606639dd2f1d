"""Reading ahead of reads in order."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from _storage.remotes import KINDS, noise, opened
from faults.server import Fault, FaultServer, Request

from penstock._storage import remote
from penstock._storage.remote import RemoteStorage
from penstock._storage.requests import Client
from penstock.errors import ObjectChanged, StorageError

pytestmark = pytest.mark.usefixtures("obstore_started")

SIZES = (1_500_000, 0, 700_000, 900_000)
FILES = [noise(size, seed) for seed, size in enumerate(SIZES)]
WHOLE = b"".join(FILES)
BLOCK, SPAN = 50_000, 1000


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer({f"bucket/{number}": data for number, data in enumerate(FILES)}) as made:
        yield made


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_MOST_BYTES", 40_000)
    monkeypatch.setattr(remote, "_VAIN_BYTES", 100_000)


def storage_of(server: FaultServer, kind: str = "http", **given: object) -> RemoteStorage:
    return opened(kind, server, *map(str, range(len(FILES))), **{"max_gap_bytes": 0, **given})


def read(storage: RemoteStorage, place: int, size: int = BLOCK) -> None:
    """Read a block of spans at a place in all files, one behind the other, and compare."""
    begins = np.cumsum([0, *SIZES])
    places = np.arange(place, min(place + size, len(WHOLE)), SPAN)
    files = np.searchsorted(begins, places, side="right") - 1
    lengths = np.minimum(SPAN, np.minimum(begins[files + 1], place + size) - places)
    data, starts = storage.read_spans(files, places - begins[files], lengths, None)
    for begin, length, start in zip(places.tolist(), lengths.tolist(), starts.tolist(), strict=True):
        assert data[start : start + length].tobytes() == WHOLE[begin : begin + length], f"other bytes at {begin}"


def read_all(storage: RemoteStorage, places: range) -> None:
    for place in places:
        read(storage, place)


def asked(server: FaultServer, first: int) -> list[tuple[int, int]]:
    """Return what was asked for since request `first`, as places in all files, sorted."""
    begins = np.cumsum([0, *SIZES])
    found = ((int(begins[int(one.path[-1])]), one) for one in server.log[first:])
    return sorted((base + one.begin, base + one.end) for base, one in found)


def wait_until(told: object) -> None:
    deadline = time.monotonic() + 10
    while not told():  # type: ignore[operator]
        assert time.monotonic() < deadline, "nothing happened for half a minute"
        time.sleep(0.005)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_what_is_read_in_order_is_asked_for_before_and_no_byte_twice(
    server: FaultServer, kind: str, num_threads: int, small_windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_SLACK", 1000)  # a thread that waits for a CPU is left behind further than eight blocks
    storage, first = storage_of(server, kind), len(server.log)
    first = len(server.log)
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(lambda place: read(storage, place), range(0, len(WHOLE), BLOCK)))
    ranges = asked(server, first)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(WHOLE)
    assert all(end == begin for (_, end), (begin, _) in pairwise(ranges)), "a hole, or bytes that came twice"
    storage.close()


def test_ranges_ahead_are_asked_for_while_nobody_reads_and_no_more_than_allowed(server: FaultServer, small_windows: None) -> None:
    storage, first = storage_of(server, read_ahead_bytes=300_000), len(server.log)
    read_all(storage, range(0, 10 * BLOCK, BLOCK))
    wait_until(lambda: asked(server, first)[-1][1] > 11 * BLOCK)
    time.sleep(0.05)
    assert asked(server, first)[-1][1] <= 10 * BLOCK + 300_000
    storage.close()


def test_none_are_asked_for_ahead_when_there_is_no_room_for_them(server: FaultServer) -> None:
    storage, first = storage_of(server, read_ahead_bytes=0), len(server.log)
    read_all(storage, range(0, 10 * BLOCK, BLOCK))
    assert asked(server, first)[-1][1] == 10 * BLOCK
    storage.close()


def places_of(order: str) -> list[int]:
    """Return where blocks of 10 kB begin that are read in some order that is none, or has holes."""
    count = len(WHOLE) // 10_000
    generator = np.random.default_rng(3)
    numbers = {
        "permutation": generator.permutation(count),
        "every second": np.arange(0, count, 2),
        "every fourth": np.arange(0, count, 4),
        "backwards": np.arange(count)[::-1],
        "runs of three": (generator.permutation(count // 4)[:, None] * 4 + np.arange(3)).reshape(-1),
        "the same": np.repeat(7, 50),
    }[order]
    return [int(number) * 10_000 for number in numbers]


@pytest.mark.parametrize("order", ["permutation", "every second", "every fourth", "backwards", "runs of three", "the same"])
def test_hardly_more_than_is_wanted_is_asked_for_in_other_orders(server: FaultServer, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_VAIN_BYTES", 100_000)
    storage, first = storage_of(server), len(server.log)
    places = places_of(order)
    for place in places:
        read(storage, place, 10_000)
    assert sum(end - begin for begin, end in asked(server, first)) <= 1.125 * 10_000 * len(places) + 400_000
    storage.close()


def test_scattered_spans_ask_for_nothing_ahead(server: FaultServer, small_windows: None) -> None:
    storage, first = storage_of(server), len(server.log)
    generator = np.random.default_rng(3)
    for _ in range(30):
        offsets = generator.permutation(SIZES[0] // SPAN)[:20] * SPAN
        data, starts = storage.read_spans(np.zeros(20, np.int64), offsets, np.full(20, SPAN), None)
        for offset, start in zip(offsets.tolist(), starts.tolist(), strict=True):
            assert data[start : start + SPAN].tobytes() == FILES[0][offset : offset + SPAN]
    assert sum(end - begin for begin, end in asked(server, first)) == 30 * 20 * SPAN
    storage.close()


def test_what_was_fetched_in_vain_ends_it(server: FaultServer, small_windows: None) -> None:
    """Runs of six blocks at random places: each looks like an order, and ends. Without an end to it, a third more is asked for."""
    storage, first = storage_of(server), len(server.log)
    generator = np.random.default_rng(5)
    for place in generator.integers(0, len(WHOLE) - 60_000, 240).tolist():
        for block in range(6):
            read(storage, place // 1000 * 1000 + block * 10_000, 10_000)
    assert sum(end - begin for begin, end in asked(server, first)) <= 1.3 * 240 * 60_000
    storage.close()


def test_no_more_is_held_or_on_its_way_than_allowed_and_what_is_given_up_is_broken_off(server: FaultServer, small_windows: None) -> None:
    storage = storage_of(server, read_ahead_bytes=200_000)
    free = threading.Event()
    slow: list[Request] = []

    def fault(request: Request) -> Fault | None:
        if request.end - request.begin > 10_000:  # those ahead
            slow.append(request)
            free.wait(30)
        return None

    server.fault = fault
    ((_, streams),) = storage._here.values()
    for start in (0, 500_000, 1_000_000, 1_600_000, 2_300_000):
        for block in range(4):  # no read waits for what the fourth has begun
            read(storage, start + block * 10_000, 10_000)
        assert 0 < sum(len(piece.data) for piece in streams._pieces.values()) <= 200_000
    assert len(slow) >= 2
    free.set()
    read_all(storage, range(0, len(WHOLE), BLOCK))
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_failed_ahead_is_asked_for_again_by_the_read_and_only_then_an_error(
    server: FaultServer, kind: str, small_windows: None
) -> None:
    storage = storage_of(server, kind, retries=0, read_ahead_bytes=150_000)
    ((_, streams),) = storage._here.values()
    refused: list[Request] = []
    go_on = threading.Event()

    def refuse_one(request: Request) -> Fault | None:
        if request.begin < 7 * BLOCK or request.path[-1] != "0" or refused:
            return None
        refused.append(request)
        go_on.wait(10)
        return Fault(status=503)

    server.fault = refuse_one
    read_all(storage, range(0, 7 * BLOCK, BLOCK))
    wait_until(lambda: refused)
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(read_all, storage, range(7 * BLOCK, 12 * BLOCK, BLOCK))
        wait_until(lambda: any(piece.waiting for piece in streams._pieces.values()))
        go_on.set()
        others.result()
    server.fault = lambda request: Fault(status=503)
    with pytest.raises(StorageError, match="503") as caught:
        read_all(storage, range(12 * BLOCK, SIZES[0], BLOCK))
    assert "bucket/0" in caught.value.what
    server.fault = None
    read_all(storage, range(12 * BLOCK, len(WHOLE), BLOCK))
    storage.close()


def test_each_of_several_readers_has_an_error_of_its_own(server: FaultServer, small_windows: None) -> None:
    storage = storage_of(server, retries=0, read_ahead_bytes=150_000)
    read_all(storage, range(0, 6 * BLOCK, BLOCK))
    server.fault = lambda request: Fault(status=503)

    def failure(place: int) -> StorageError:
        with pytest.raises(StorageError) as caught:
            read(storage, place, SPAN)
        return caught.value

    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(failure, range(20 * BLOCK, 20 * BLOCK + 4 * SPAN, SPAN)))
    assert len({id(error) for error in errors}) == 4
    storage.close()


def test_ranges_grow_only_while_they_come_soon(server: FaultServer, small_windows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a range takes long, it is the link that is full: more of them at once would only take longer, until their time is over."""
    windows = []
    for long_s in (30.0, 1e-9):
        monkeypatch.setattr(remote, "_LONG_S", long_s)
        storage = storage_of(server)
        server.fault = lambda request: time.sleep(0.01)  # so that reads have to wait
        read_all(storage, range(0, 20 * BLOCK, BLOCK))
        ((_, streams),) = storage._here.values()
        windows.append(streams._streams[0].window)
        storage.close()
    assert windows[1] <= 2 * BLOCK < windows[0]


def test_small_objects_are_not_asked_for_by_the_thousand(small_windows: None) -> None:
    objects = {f"bucket/{number:04}": bytes([number % 251]) * 100 for number in range(2000)}
    with FaultServer(objects) as server:
        storage = opened("http", server, *sorted(path.partition("/")[2] for path in objects), max_gap_bytes=0, max_requests=4)
        ((_, streams),) = storage._here.values()
        for first in range(0, 2000, 50):
            files = np.arange(first, first + 50)
            data, starts = storage.read_spans(files, np.zeros(50, np.int64), np.full(50, 100), None)
            assert [data[start] for start in starts.tolist()] == [number % 251 for number in files.tolist()]
            assert len(streams._pieces) <= 8
        storage.close()


def test_of_two_clients_that_two_threads_make_one_is_kept(server: FaultServer) -> None:
    storage = storage_of(server)
    first = storage._in_this_process()
    assert storage._adopt(Client(storage._options)) is first
    copy = pickle.loads(pickle.dumps(storage))
    barrier = threading.Barrier(8)

    def use(number: int) -> object:
        barrier.wait()
        read(copy, number * BLOCK)
        return copy._in_this_process()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(use, range(8))))) == 1
    copy.close()
    storage.close()


def test_an_object_that_changes_is_told_as_such(server: FaultServer, small_windows: None) -> None:
    storage = storage_of(server, read_ahead_bytes=150_000)
    read_all(storage, range(0, 6 * BLOCK, BLOCK))
    server.put("bucket/0", noise(SIZES[0], 99))
    with pytest.raises(ObjectChanged):
        read_all(storage, range(6 * BLOCK, SIZES[0], BLOCK))
    storage.close()


def test_close_ends_what_is_on_its_way(server: FaultServer, small_windows: None) -> None:
    storage = storage_of(server)
    held, free = threading.Event(), threading.Event()

    def fault(request: Request) -> Fault | None:
        if request.begin >= 6 * BLOCK:
            held.set()
            free.wait(30)
        return None

    server.fault = fault
    read_all(storage, range(0, 6 * BLOCK, BLOCK))
    assert held.wait(30)
    threads = [thread for thread in threading.enumerate() if thread.name == "penstock-remote"]
    storage.close()
    free.set()
    assert not any(thread.is_alive() for thread in threads)
