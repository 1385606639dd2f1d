"""Reading ahead of reads in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from _storage.remotes import KINDS, noise, opened

from penstock._storage import ahead
from penstock._storage.remote import RemoteStorage
from penstock.errors import ObjectChanged, StorageError
from penstock.testing.server import Fault, FaultServer, Request

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
    monkeypatch.setattr(ahead, "_LEAST_PIECE", 40_000)
    monkeypatch.setattr(ahead, "_LEAST_WINDOW", 100_000)


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
    deadline = time.monotonic() + 30
    while not told():  # type: ignore[operator]
        assert time.monotonic() < deadline, "nothing happened for half a minute"
        time.sleep(0.005)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_what_is_read_in_order_is_asked_for_before_and_no_byte_twice(
    server: FaultServer, kind: str, num_threads: int, small_windows: None
) -> None:
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


@pytest.mark.parametrize("given", [{"read_ahead_bytes": 0}, {}])
def test_other_orders_ask_for_nothing_ahead(server: FaultServer, given: dict[str, int], small_windows: None) -> None:
    storage, first = storage_of(server, **given), len(server.log)
    order = np.random.default_rng(7).permutation(len(WHOLE) // BLOCK) if not given else np.arange(len(WHOLE) // BLOCK)
    generator = np.random.default_rng(3)
    for number in order.tolist():
        if given:
            read(storage, number * BLOCK)
            continue
        offsets = generator.permutation(SIZES[0] // SPAN)[:20] * SPAN
        data, starts = storage.read_spans(np.zeros(20, np.int64), offsets, np.full(20, SPAN), None)
        for offset, start in zip(offsets.tolist(), starts.tolist(), strict=True):
            assert data[start : start + SPAN].tobytes() == FILES[0][offset : offset + SPAN]
    expected = len(order) * BLOCK if given else len(order) * 20 * SPAN
    assert sum(end - begin for begin, end in asked(server, first)) == expected
    storage.close()


def test_a_stream_of_which_parts_are_left_out_is_soon_left_alone(server: FaultServer, small_windows: None) -> None:
    """As of one rank that reads one block of four."""
    storage, first = storage_of(server), len(server.log)
    places = range(0, len(WHOLE), 4 * BLOCK // 5)
    for place in places:
        read(storage, place, BLOCK // 5)
    wanted = len(places) * BLOCK // 5
    assert sum(end - begin for begin, end in asked(server, first)) < 3 * wanted  # four times as much, if it went on
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_a_range_ahead_is_raised_where_its_bytes_are_asked_for_and_a_later_read_asks_again(
    server: FaultServer, kind: str, small_windows: None
) -> None:
    storage = storage_of(server, kind, retries=0)
    read(storage, 0)
    refused = threading.Event()

    def fault(request: Request) -> Fault | None:
        if request.begin < 4 * BLOCK or request.path[-1] != "0":
            return None
        refused.set()
        return Fault(status=503)

    server.fault = fault
    read_all(storage, range(BLOCK, 3 * BLOCK, BLOCK))
    assert refused.wait(30)
    with pytest.raises(StorageError) as caught:
        read_all(storage, range(3 * BLOCK, 6 * BLOCK, BLOCK))
    assert "503" in caught.value.what
    assert "bucket/0" in caught.value.what
    server.fault = None
    read_all(storage, range(3 * BLOCK, len(WHOLE), BLOCK))
    storage.close()


def test_a_broken_answer_ahead_is_asked_for_again_from_where_it_got_to(server: FaultServer, small_windows: None) -> None:
    storage = storage_of(server)
    broken: list[Request] = []

    def fault(request: Request) -> Fault | None:
        if len(broken) == 8 or request.end - request.begin < 20_000:
            return None
        broken.append(request)
        return Fault(reset_after=10_000)

    server.fault = fault
    read_all(storage, range(0, len(WHOLE), BLOCK))
    assert len(broken) == 8
    storage.close()


def test_an_object_that_changes_is_told_as_such(server: FaultServer, small_windows: None) -> None:
    storage = storage_of(server)
    read_all(storage, range(0, 3 * BLOCK, BLOCK))
    server.put("bucket/0", noise(SIZES[0], 99))
    with pytest.raises(ObjectChanged):
        read_all(storage, range(3 * BLOCK, SIZES[0], BLOCK))
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
    read_all(storage, range(0, 3 * BLOCK, BLOCK))
    assert held.wait(30)
    threads = [thread for thread in threading.enumerate() if thread.name == "penstock-remote"]
    storage.close()
    free.set()
    assert not any(thread.is_alive() for thread in threads)


def test_what_nobody_reads_for_a_minute_is_forgotten(server: FaultServer, small_windows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_IDLE_S", 0.05)
    storage = storage_of(server)
    read_all(storage, range(0, 3 * BLOCK, BLOCK))
    (streams,) = storage._aheads.values()
    wait_until(lambda: not streams._streams)
    read(storage, 3 * BLOCK)
    storage.close()
