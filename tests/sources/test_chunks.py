from __future__ import annotations

import os
import pickle
import threading
from typing import Any

import pytest
from _storage.forks import forked, held_by_another_thread

from penstock.errors import RecordError
from penstock.sources.parquet import Chunks


class Part:
    def __init__(self, number: int, nbytes: int = 10) -> None:
        self.number, self.nbytes = number, nbytes


class Loads:
    """Counts what is decoded."""

    def __init__(self, nbytes: int = 10) -> None:
        self.asked: list[int] = []
        self.nbytes = nbytes

    def __call__(self, number: int) -> Part:
        self.asked.append(number)
        return Part(number, self.nbytes)


def test_a_chunk_is_decoded_once_while_it_is_kept_and_the_one_used_longest_ago_goes_first() -> None:
    loads = Loads()
    chunks = Chunks(loads, 100, 30)
    for number in (1, 2, 3, 1, 4):
        assert chunks.get(number).number == number
    assert loads.asked == [1, 2, 3, 4]
    chunks.get(1)
    chunks.get(2)
    assert loads.asked == [1, 2, 3, 4, 2]
    assert chunks.num_loaded == 5


@pytest.mark.parametrize("max_bytes", [0, 9])
def test_one_chunk_stays_however_large_it_is(max_bytes: int) -> None:
    loads = Loads()
    chunks = Chunks(loads, 100, max_bytes)
    for number in (1, 1, 2, 2, 1):
        chunks.get(number)
    assert loads.asked == [1, 2, 1]


def test_threads_that_need_one_chunk_wait_for_the_one_that_decodes_it() -> None:
    started, go, asked = threading.Event(), threading.Event(), []

    def load(number: int) -> Part:
        asked.append(number)
        started.set()
        assert go.wait(60)
        return Part(number)

    chunks = Chunks(load, 100, 100)
    got: list[Part] = []
    threads = [threading.Thread(target=lambda: got.append(chunks.get(7))) for _ in range(6)]
    threads[0].start()
    assert started.wait(60)
    for thread in threads[1:]:
        thread.start()
    assert chunks.soonest([7, 8]) == 8
    go.set()
    for thread in threads:
        thread.join()
    assert asked == [7]
    assert {id(part) for part in got} == {id(chunks.get(7))}
    assert chunks.soonest([8, 7]) == 7


class Held:
    """Decodes; from number 2 on only when told to."""

    def __init__(self, bad: frozenset[int] = frozenset()) -> None:
        self.asked: list[int] = []
        self.asking, self.go, self.bad = threading.Semaphore(0), threading.Event(), bad

    def __call__(self, number: int) -> Part:
        self.asked.append(number)
        if number >= 2:
            self.asking.release()
            assert self.go.wait(60)
        if number in self.bad:
            raise OSError("not now")
        return Part(number)


def waiting_for_2(chunks: Chunks[Part], load: Held, num_threads: int, num_asked: int) -> list[Part]:
    """Have so many threads ask for number 2; let go once so many numbers are being decoded."""
    got: list[Part] = []
    threads = [threading.Thread(target=lambda: got.append(chunks.get(2))) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for _ in range(num_asked):
        assert load.asking.acquire(timeout=60)
    load.go.set()
    for thread in threads:
        thread.join()
    return got


def test_who_would_wait_in_an_order_decodes_what_comes_next() -> None:
    load = Held()
    chunks = Chunks(load, 100, 100)
    chunks.get(0)
    chunks.get(1)
    got = waiting_for_2(chunks, load, 3, 3)
    assert sorted(load.asked) == [0, 1, 2, 3, 4]
    assert {part.number for part in got} == {2}
    assert [chunks.get(number).number for number in (3, 4)] == [3, 4]
    assert len(load.asked) == 5


@pytest.mark.parametrize(
    ("before", "count", "max_bytes"),
    [((), 100, 100), ((1, 0), 3, 100), ((0, 1), 100, 29), ((0, 7), 100, 100), ((3, 0, 1), 100, 100)],
    ids=["nothing known", "the end", "no room", "no order", "there already"],
)
def test_nothing_is_decoded_that_may_not_be_wanted(before: tuple[int, ...], count: int, max_bytes: int) -> None:
    load = Held()
    load.go.set()
    chunks = Chunks(load, count, max_bytes)
    for number in before:
        chunks.get(number)
    load.go.clear()
    while load.asking.acquire(blocking=False):
        pass
    waiting_for_2(chunks, load, 2, 1)
    assert load.asked == [*before, 2]


def test_an_error_of_what_nobody_asked_for_comes_when_somebody_does() -> None:
    load = Held(bad=frozenset({3}))
    chunks = Chunks(load, 100, 100)
    chunks.get(0)
    chunks.get(1)
    assert {part.number for part in waiting_for_2(chunks, load, 2, 2)} == {2}
    with pytest.raises(OSError, match="not now"):
        chunks.get(3)
    assert load.asked.count(3) == 2


def test_the_one_that_waited_decodes_when_the_other_failed() -> None:
    started, go, errors = threading.Event(), threading.Event(), []

    def load(number: int) -> Part:
        if not started.is_set():
            started.set()
            assert go.wait(60)
            raise OSError("gone")
        return Part(number)

    chunks = Chunks(load, 100, 100)

    def first() -> None:
        with pytest.raises(OSError, match="gone") as caught:
            chunks.get(1)
        errors.append(caught.value)

    got: list[Any] = []
    one, other = threading.Thread(target=first), threading.Thread(target=lambda: got.append(chunks.get(1)))
    one.start()
    assert started.wait(60)
    other.start()
    go.set()
    one.join()
    other.join()
    assert len(errors) == len(got) == 1


def test_bad_bytes_are_remembered_and_other_errors_are_not() -> None:
    asked: list[int] = []

    def load(number: int) -> Part:
        asked.append(number)
        if number == 1:
            raise RecordError("the bytes are bad", where="here", fix="write it again")
        raise OSError("not now")

    chunks = Chunks(load, 100, 100)
    caught = []
    for number in (1, 1, 2, 2):
        with pytest.raises((RecordError, OSError)) as error:
            chunks.get(number)
        caught.append(error.value)
    assert asked == [1, 2, 2]
    assert caught[0] is not caught[1]
    assert str(caught[0]) == str(caught[1])


def test_many_threads_over_few_bytes_get_what_they_ask_for() -> None:
    chunks = Chunks(Loads(), 100, 35)
    barrier, wrong = threading.Barrier(8), []

    def ask(seed: int) -> None:
        barrier.wait(60)
        numbers = [(seed * 7 + step * 3) % 11 for step in range(300)]
        wrong.extend(number for number in numbers if chunks.get(number).number != number)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_pickled_cache_is_empty() -> None:
    chunks = Chunks(Loads(), 100, 100)
    chunks.get(1)
    copy = pickle.loads(pickle.dumps(chunks))
    assert copy.get(1).number == 1
    assert copy.num_loaded == 1


def test_behind_a_fork_what_the_parent_is_decoding_is_decoded_and_what_it_kept_is_there() -> None:
    parent, started, go = os.getpid(), threading.Event(), threading.Event()
    asked: list[int] = []

    def load(number: int) -> Part:
        asked.append(number)
        if number == 5 and os.getpid() == parent:
            started.set()
            assert go.wait(60)
        return Part(number)

    def child() -> None:
        assert chunks.soonest([5, 1]) == 1
        assert [chunks.get(number).number for number in (1, 5, 2)] == [1, 5, 2]
        assert asked == [1, 5, 5, 2]
        assert chunks._num_bytes == 20, "the one used longest ago went"

    chunks = Chunks(load, 100, 20)
    chunks.get(1)
    thread = threading.Thread(target=chunks.get, args=(5,))
    thread.start()
    assert started.wait(60)
    try:
        with held_by_another_thread(chunks._locks.own()):
            forked(child)
    finally:
        go.set()
        thread.join()
    assert asked == [1, 5]
