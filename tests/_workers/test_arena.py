"""Memory of a parent and its children: buffers, what becomes of them, and what a pickle says of arrays in it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import numpy as np
import pytest

from penstock._workers import arena as module
from penstock._workers.arena import Arena, ArenaView
from penstock.errors import PlanError


def test_a_buffer_is_writable_and_the_other_side_sees_what_is_written() -> None:
    arena = Arena()
    array = np.frombuffer(arena.allocate(4000), np.int64, 500)
    array[:] = np.arange(500)
    offset = arena.offset_of(array)
    assert offset is not None
    view = ArenaView(os.dup(arena.fd), arena.num_bytes)
    seen = view.array(offset, (5, 100), np.dtype(np.int64))
    assert seen.tolist() == np.arange(500).reshape(5, 100).tolist()
    seen[4, 99] = -1
    assert array[-1] == -1
    arena.close()


def test_a_buffer_is_not_free_while_an_array_over_it_is_referred_to() -> None:
    arena = Arena()
    array = np.frombuffer(arena.allocate(10_000), np.uint8)[100:200]
    array[:] = 7
    gc.collect()
    others = [np.frombuffer(arena.allocate(10_000), np.uint8) for _ in range(5)]
    for other in others:
        other[:] = 9
    assert set(array.tolist()) == {7}
    arena.close()


def test_free_memory_beyond_what_is_kept_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Arena()
    monkeypatch.setattr(module, "_KEEP_BYTES", 64 << 20)
    buffers = [arena.allocate(40 << 20) for _ in range(4)]
    for buffer in buffers:
        np.frombuffer(buffer, np.uint8)[::4096] = 1
    before = os.fstat(arena.fd).st_blocks * 512
    del buffers, buffer
    gc.collect()
    arena.allocate(1)
    assert before >= 160 << 20
    assert os.fstat(arena.fd).st_blocks * 512 <= 64 << 20
    arena.close()


def test_a_pickle_holds_of_its_arrays_only_where_they_lie_and_gives_copies() -> None:
    arena = Arena()
    array = np.frombuffer(arena.allocate(1 << 20), np.float64)[::2].reshape(-1, 4)
    array[:] = np.arange(array.size).reshape(array.shape)
    data = arena.dumps({"inside": array, "outside": np.arange(3)})
    assert len(data) < 1000
    view = ArenaView(os.dup(arena.fd), arena.num_bytes)
    found = view.loads(data)
    assert np.array_equal(found["inside"], array)
    assert found["outside"].tolist() == [0, 1, 2]
    found["inside"][:] = 0
    assert array[-1, -1] == array.size - 1
    arena.close()


def test_more_memory_than_there_are_addresses_is_an_error() -> None:
    arena = Arena()
    with pytest.raises(PlanError, match="bytes of shared memory are in use"):
        arena.allocate(arena.num_bytes + 1)
    arena.close()


class Pins:
    """The ranges that are pinned, and a check that none is pinned twice."""

    def __init__(self) -> None:
        self.ranges: dict[int, int] = {}
        self.num_pinned = 0

    def __call__(self, address: int, num_bytes: int) -> Callable[[], object]:
        assert not any(address < other + size and other < address + num_bytes for other, size in self.ranges.items())
        self.ranges[address] = num_bytes
        self.num_pinned += 1
        return lambda: self.ranges.pop(address)


def test_a_buffer_is_unpinned_before_its_pages_go_back_and_pinned_when_it_has_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = Pins()
    arena = Arena(pins)
    monkeypatch.setattr(module, "_KEEP_BYTES", 64 << 20)
    buffers = [arena.allocate(40 << 20) for _ in range(4)]
    assert len(pins.ranges) == 4
    del buffers
    gc.collect()
    arena.allocate(1)
    assert sorted(pins.ranges.values()) == [4096, 40 << 20]
    kept = [arena.allocate(40 << 20) for _ in range(4)]
    assert sorted(pins.ranges.values()) == [4096, *[40 << 20] * 4]
    assert pins.num_pinned == 8
    arena.close()
    assert not pins.ranges
    del kept
