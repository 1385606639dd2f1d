from __future__ import annotations

import threading

from _storage.forks import forked, held_by_another_thread

from penstock.formats.cache_stores import MemoryStore


def test_records_are_found_by_number() -> None:
    store = MemoryStore(10_000)
    assert store.get([1, 2]) == [None, None]
    store.put([2, 1], [b"two", b"one"])
    assert store.get([1, 3, 2]) == [b"one", None, b"two"]
    assert store.label() == "in memory: 2 elements, 326 bytes of 10 kB; 2 hits, 3 misses"


def test_what_does_not_fit_is_left_out_and_nothing_is_thrown_out_for_it() -> None:
    store = MemoryStore(1200)
    store.put([0, 1, 2], [bytes(600), bytes(600), bytes(10)])
    assert store.get([0, 1, 2]) == [bytes(600), None, bytes(10)]
    store.put([3], [bytes(111)])
    assert store.get([3]) == [None]
    store.put([3], [bytes(110)])
    assert store.get([3]) == [bytes(110)]
    assert "1.2 kB of 1.2 kB" in store.label()


def test_of_two_records_for_one_number_the_first_stays_and_counts_once() -> None:
    store = MemoryStore(10_000)
    store.put([0], [b"first"])
    store.put([0], [b"second"])
    assert store.get([0]) == [b"first"]
    assert "1 elements, 165 bytes" in store.label()


def test_threads_that_write_at_once_count_every_byte() -> None:
    store = MemoryStore(1 << 30)
    start = threading.Barrier(4)

    def write(own: int) -> None:
        start.wait()
        for index in range(500):
            store.put([index, 1000 * (own + 1) + index], [bytes(40), bytes(40)])
            assert store.get([index]) == [bytes(40)]

    threads = [threading.Thread(target=write, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.label() == "in memory: 2500 elements, 500 kB of 1.07 GB; 2000 hits, 0 misses"


def test_a_child_forked_while_a_thread_writes_goes_on() -> None:
    store = MemoryStore(10_000)
    store.put([1], [b"one"])

    def check() -> None:
        store.put([2], [b"two"])
        assert store.get([1, 2]) == [b"one", b"two"]
        assert "2 elements" in store.label()

    with held_by_another_thread(store._locks.own()):
        forked(check)
