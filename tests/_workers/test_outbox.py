"""What children write into shared memory is what the parent reads. The two ends are in one process here; `test_inbox` has two."""

from __future__ import annotations

import gc
import mmap
import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock._workers.inbox import Inbox
from penstock._workers.outbox import Outbox, has_shared_memory
from penstock._workers.pipe import Pipe
from penstock.testing.runs import same

needs_memory_files = pytest.mark.skipif(not has_shared_memory(), reason="no anonymous memory files here")


class Both:
    """An outbox and an inbox with the pipe between them."""

    def __init__(self, *, shared: bool | None = None, max_leased: int = 100) -> None:
        self.pipe, self.other = (Pipe(end) for end in socket.socketpair())
        self.outbox = Outbox(self.pipe, shared=shared)
        self.inbox = Inbox(max_leased)
        self.last: Any = None

    def through(self, value: object) -> Any:
        self.outbox.send(value)
        self.last = self.other.receive()
        return self.inbox.open(self.last, self.other.take_fd)

    def give_back(self) -> list[int]:
        numbers = self.inbox.take_returned()
        self.outbox.given_back(numbers)
        return numbers

    def close(self) -> None:
        self.pipe.close()
        self.other.close()
        del self.outbox, self.inbox  # pytest holds this object until the audit has looked


@pytest.fixture(params=[pytest.param(True, marks=needs_memory_files), False], ids=["memory file", "pipe"])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    made = Both(shared=request.param)
    yield made
    made.close()


@pytest.fixture
def mapped() -> Iterator[Both]:
    if not has_shared_memory():
        pytest.skip("no anonymous memory files here")
    made = Both(shared=True, max_leased=3)
    yield made
    made.close()


def test_trees_of_arrays_of_any_dtype_layout_and_size_arrive_bit_by_bit(both: Both) -> None:
    big = np.random.default_rng(1).random((100, 50))
    for value in (
        {"x": big.astype(np.float32), "y": [np.arange(3), (np.float64(2.5), "text", None)]},
        (big.T, big[::2, ::3], np.asfortranarray(big)),
        [np.zeros((0, 4)), np.array(7), np.array([True, False] * 4000)],
        {"strings": np.array(["a", "bc"] * 2000), "objects": np.array([None, "x", 3], object), "big endian": big.astype(">f4")},
        {"times": np.array(["2026-01-01"] * 900, "M8[D]"), "complex": big.astype(complex)},
        bytes(10_000),
        "x" * 10_000,
        bytearray(5000),
    ):
        found = both.through(value)
        assert same(value, found)
        del found
        both.give_back()


def test_a_slot_is_used_again_when_the_last_view_is_gone_and_not_before(mapped: Both) -> None:
    found = mapped.through(np.zeros(10_000))
    part = found[5:8]
    first = mapped.last.slot
    del found
    gc.collect()
    assert mapped.give_back() == []
    second = mapped.through(np.ones(10_000))
    assert mapped.last.slot != first
    assert part.tolist() == [0, 0, 0]
    del part
    gc.collect()
    assert mapped.give_back() == [first]
    third = mapped.through(np.full(10_000, 2.0))
    assert (mapped.last.slot, mapped.last.new_bytes) == (first, 0)
    assert second.sum() == 10_000
    assert third.sum() == 20_000


def test_a_consumer_that_keeps_everything_costs_bytes_and_neither_slots_nor_descriptors(mapped: Both) -> None:
    kept = []
    for number in range(50):
        kept.append(mapped.through(np.full(10_000, number)))
        mapped.give_back()
    # Three leased ones, and the one through which the copies go.
    with open("/proc/self/maps") as maps:
        mappings = sum("memfd:penstock" in line for line in maps)
    assert mappings == 2 * 4  # of both ends
    for number, array in enumerate(kept):
        assert array[0] == array[-1] == number
        assert array.ctypes.data % 64 == 0


def test_memory_that_is_not_there_is_an_error_and_not_a_signal(mapped: Both) -> None:
    import resource

    # The limit on files stands for a full memory: the system says no at the same place.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            mapped.outbox.send(np.zeros(1 << 21, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "bytes of shared memory for a batch" in caught.value.__notes__[0]
    assert mapped.through(np.ones(5000)).sum() == 5000


def test_the_memory_of_a_slot_can_be_made_neither_smaller_nor_larger(mapped: Both) -> None:
    mapped.outbox.send(np.zeros(10_000))
    message = mapped.other.receive()
    descriptor = mapped.other.take_fd()
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    mmap.mmap(descriptor, message.new_bytes).close()
    os.close(descriptor)
