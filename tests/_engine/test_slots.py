"""A buffer comes back when its last view is gone and never before: a batch that somebody holds must not change."""

from __future__ import annotations

import gc
import mmap
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock._engine.slots import HandedOver, Kept, Lease, SlotPool, anonymous_memory

LEAVES = [((4, 3), np.dtype(np.float32)), ((4,), np.dtype(np.int64)), ((4, 5), np.dtype(np.uint8))]


class Counting:
    """A pool's memory and bell, counted."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.rings = 0
        self.pool = SlotPool(self.allocate, self.ring)

    def allocate(self, num_bytes: int) -> Any:
        self.allocated.append(num_bytes)
        return anonymous_memory(num_bytes)

    def ring(self, _: object) -> None:
        self.rings += 1

    def lease(self, leaves: Any) -> Lease:
        """Lease as the engine does: what came back is booked first."""
        self.pool.take_returned()
        return self.pool.lease(leaves)


def address(array: np.ndarray[Any, Any]) -> int:
    return array.ctypes.data


VIEWS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "the array": lambda array: array,
    "a slice": lambda array: array[1:2],
    "a row": lambda array: array[0],
    "a transpose": lambda array: array.T,
    "a reshape": lambda array: array.reshape(-1),
    "another dtype": lambda array: array.view(np.uint8),
    "a ravel": lambda array: array.ravel(),
    "np.asarray": lambda array: np.asarray(array)[::2],
    "a subclass": lambda array: array.view(np.recarray),
    "a memoryview": memoryview,
    "a memoryview of a slice": lambda array: memoryview(array[1:])[:1],
    "np.frombuffer of a memoryview": lambda array: np.frombuffer(memoryview(array).cast("B"), np.uint8),
    "np.frombuffer of the array": lambda array: np.frombuffer(array, np.uint8)[3:],
    "as_strided": lambda array: np.lib.stride_tricks.as_strided(array, (2,), (0,)),
    "broadcast_to": lambda array: np.broadcast_to(array, (2, *array.shape)),
    "an iterator": iter,
    "a view inside a list": lambda array: [{"deep": (array[2:],)}],
    "a dlpack import": np.from_dlpack,
    "the base": lambda array: array.base,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_the_buffer_comes_back_when_the_last_view_is_gone_and_never_before(name: str) -> None:
    counting = Counting()
    arrays = counting.pool.lease(LEAVES).arrays(LEAVES)
    view = VIEWS[name](arrays[0])
    del arrays
    gc.collect()
    assert (counting.rings, counting.pool.num_returned) == (0, 0)
    del view
    assert (counting.rings, counting.pool.num_returned) == (1, 1)
    assert counting.pool.take_returned() == 1
    assert counting.pool.take_returned() == 0


def test_arrays_have_the_shapes_and_dtypes_asked_for_and_do_not_overlap() -> None:
    arrays = Counting().pool.lease(LEAVES).arrays(LEAVES)
    assert [(array.shape, array.dtype) for array in arrays] == LEAVES
    for number, array in enumerate(arrays):
        assert array.flags.c_contiguous
        assert array.flags.writeable
        array[:] = number
    assert [int(array.max()) == int(array.min()) == number for number, array in enumerate(arrays)] == [True] * 3


@pytest.mark.parametrize("count", [1, 3, 63, 64, 65, 1000, 5000])
def test_every_array_begins_on_a_64_byte_border(count: int) -> None:
    leaves = [((count,), np.dtype(np.uint8)), ((count, 3), np.dtype(np.int16)), ((1,), np.dtype(np.float64)), ((count,), np.dtype(bool))]
    arrays = Counting().pool.lease(leaves).arrays(leaves)
    assert [address(array) % 64 for array in arrays] == [0] * len(leaves)


@pytest.mark.parametrize(("num_bytes", "num_held", "num_kept"), [(100, 20, 16), (8 << 20, 10, 8), (33 << 20, 3, 2)])
def test_the_pool_grows_with_what_is_held_and_keeps_some_when_it_is_given_back(num_bytes: int, num_held: int, num_kept: int) -> None:
    counting, leaves = Counting(), [((num_bytes,), np.dtype(np.uint8))]
    held = [counting.lease(leaves).arrays(leaves) for _ in range(num_held)]
    assert len(counting.allocated) == num_held
    assert len({address(arrays[0]) for arrays in held}) == num_held
    held.clear()
    assert counting.pool.take_returned() == num_held
    held = [counting.lease(leaves).arrays(leaves) for _ in range(num_held)]
    assert len(counting.allocated) == 2 * num_held - num_kept


def test_a_batch_stays_valid_after_the_pool_is_closed_and_rings_nobody() -> None:
    counting = Counting()
    (array,) = counting.pool.lease(LEAVES[:1]).arrays(LEAVES[:1])
    array[:] = 3
    counting.pool.close()
    gc.collect()
    assert (array == 3).all()
    array += 1
    assert (array == 4).all()
    del array
    assert counting.rings == 0


VIEW_KINDS: list[Callable[[Any], Any]] = [np.asarray, memoryview, lambda array: array[10:], lambda array: array.reshape(5, 10)]


def test_no_held_batch_ever_changes_while_many_threads_lease_hold_and_drop() -> None:
    pool = SlotPool(anonymous_memory)
    leaves = [((50,), np.dtype(np.int64)), ((7, 11), np.dtype(np.uint8))]
    wrong: list[str] = []
    booking, returned = threading.Lock(), []

    def work(number: int) -> None:
        chance = random.Random(number)
        held: list[tuple[int, Any]] = []
        for step in range(400):
            stamp = number * 1000 + step
            with booking:
                returned.append(pool.take_returned())
            arrays = pool.lease(leaves).arrays(leaves)
            arrays[0][:] = stamp
            arrays[1][:] = stamp % 251
            view = chance.choice(VIEW_KINDS)(arrays[0])
            held.append((stamp, view))
            del arrays, view
            for _ in range(chance.randrange(3)):
                if held:
                    stamp, view = held.pop(chance.randrange(len(held)))
                    if not (np.asarray(view) == stamp).all():
                        wrong.append(f"{stamp} became {np.asarray(view).ravel()[0]}")
                    del view
        wrong.extend(f"{stamp} was overwritten" for stamp, view in held if not (np.asarray(view) == stamp).all())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(returned) + pool.take_returned() == 6 * 400


def test_a_buffer_for_which_there_is_no_memory_is_a_memory_error_that_names_the_size() -> None:
    with pytest.raises(MemoryError, match=r"Unable to allocate 64\.0 TiB"):
        anonymous_memory(1 << 46)


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without advice about huge pages")
def test_a_kernel_that_refuses_huge_pages_gives_memory_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12_345)
    with pytest.raises(OSError, match="Invalid argument"):
        mmap.mmap(-1, 4096).madvise(mmap.MADV_HUGEPAGE)
    assert len(anonymous_memory(4 << 20)) == 4 << 20


# -- what is kept -----------------------------------------------------------------------------------------------------------------


def test_the_batches_of_a_buffer_that_are_referred_to_are_counted_by_its_arrays() -> None:
    leaves = [((4, 2), np.dtype(np.float32)), ((4,), np.dtype(np.int64))]
    lease = SlotPool(bytearray).lease(leaves)
    assert lease.num_in_use(4) == 0
    whole = lease.arrays(leaves)
    batches = [[array[row : row + 1] for array in whole] for row in range(4)]
    del whole
    assert lease.num_in_use(4) == 4
    part = batches[0][0][:, :1]
    del batches[:3]
    assert lease.num_in_use(4) == 2  # one of its two arrays is enough
    assert lease.has_array_of({"a": [part]})
    assert not lease.has_array_of({"a": [part.copy()], "b": "text"})
    del part, batches
    assert lease.num_in_use(4) == 0


def test_delivered_batches_are_forgotten_when_nothing_refers_to_them() -> None:
    seen = HandedOver()
    kept = []
    for number in range(10_000):
        batch = {"name": "text", "image": np.zeros(10)}
        seen.add([batch], 80, None, batches=True)
        if number % 1000 == 0:
            kept.append(batch)
    assert len(seen._alive) <= 2 * 16 + 1
    assert seen.kept(10_000) == Kept(10, 800, "of step 1", 880)
    del kept[0]
    assert seen.kept(10_000).oldest == "of step 1001"


def test_what_has_no_array_and_single_elements_are_not_followed() -> None:
    seen = HandedOver()
    assert not seen.add([["text"], 7], 50, None, batches=True)
    assert seen.kept(2) == Kept()
    element = np.zeros(3)
    assert not seen.add([element], 24, None, batches=False)
    assert seen.kept(3) == Kept(beside_bytes=24)  # the last one is there, whoever refers to it
    assert seen.step == 3
