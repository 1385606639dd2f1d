from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from _storage.forks import forked, held_by_another_thread

from penstock._storage.local import Descriptors, most_open
from penstock.kernels.spans import map_file, unmap_file


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "a").write_bytes(b"x")
    return str(tmp_path / "a")


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_what_a_read_opened_serves_the_next_and_the_longest_open_makes_room(path: str) -> None:
    pool = Descriptors(np.zeros(4, np.int64), 2)
    files = np.arange(4)
    ticket, found, _ = pool.enter(files)
    assert found.tolist() == [-1] * 4
    opened = [[file, os.open(path, os.O_RDONLY)] for file in range(3)]
    pool.leave(ticket, opened)
    ticket, found, _ = pool.enter(files)
    assert found.tolist() == [-1, opened[1][1], opened[2][1], -1]
    assert not is_open(opened[0][1])
    pool.leave(ticket)
    del pool
    assert not is_open(opened[1][1])


def test_none_is_closed_while_a_read_that_may_use_it_goes_on(path: str) -> None:
    pool = Descriptors(np.zeros(2, np.int64), 1)
    ticket, _, _ = pool.enter(np.array([0]))
    first = os.open(path, os.O_RDONLY)
    pool.leave(ticket, [[0, first]])
    reader, found, _ = pool.enter(np.array([0]))
    assert found.tolist() == [first]
    other, _, _ = pool.enter(np.array([1]))
    pool.leave(other, [[1, os.open(path, os.O_RDONLY)]])
    assert is_open(first)
    late, found, _ = pool.enter(np.array([0]))
    assert found.tolist() == [-1]
    pool.leave(reader)
    assert not is_open(first), "the late reader was never told of it"
    pool.leave(late)


def test_of_two_that_opened_the_same_file_one_is_closed(path: str) -> None:
    pool = Descriptors(np.zeros(1, np.int64), 1)
    one, _, _ = pool.enter(np.array([0]))
    two, _, _ = pool.enter(np.array([0]))
    first, second = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY)
    pool.leave(one, [[0, first]])
    pool.leave(two, [[0, second]])
    assert is_open(first)
    assert not is_open(second)
    assert len(pool) == 1


def test_forgetting_closes_one_or_all(path: str) -> None:
    pool = Descriptors(np.zeros(3, np.int64), 3)
    ticket, _, _ = pool.enter(np.arange(3))
    opened = [os.open(path, os.O_RDONLY) for _ in range(3)]
    pool.leave(ticket, [[file, descriptor] for file, descriptor in enumerate(opened)])
    pool.forget(1)
    assert [is_open(descriptor) for descriptor in opened] == [True, False, True]
    pool.forget()
    assert not any(map(is_open, opened))
    pool.forget(1)


def test_what_waits_for_a_slow_read_is_no_more_than_what_is_kept(path: str) -> None:
    pool = Descriptors(np.zeros(100, np.int64), 3)
    slow, _, _ = pool.enter(np.array([0]))
    opened = [os.open(path, os.O_RDONLY) for _ in range(100)]
    for file, descriptor in enumerate(opened):
        ticket, _, _ = pool.enter(np.array([file]))
        pool.leave(ticket, [[file, descriptor]])
        assert len(pool) <= 6
    assert sum(map(is_open, opened)) == 6
    ticket, found, _ = pool.enter(np.arange(100))
    assert [is_open(descriptor) for descriptor in found.tolist() if descriptor >= 0] == [True] * 3
    pool.leave(slow)
    pool.leave(ticket)
    assert sum(map(is_open, opened)) == len(pool) == 3
    pool.forget()


def test_behind_a_fork_the_files_that_were_open_are_read_and_no_read_of_the_parent_is_waited_for(path: str) -> None:
    pool = Descriptors(np.ones(3, np.int64), 2)
    first, second = (os.open(path, os.O_RDONLY) for _ in range(2))
    pool.leave(pool.enter(np.arange(3))[0], [[0, first], [1, second]])
    reader, _, _ = pool.enter(np.arange(3))
    pool.forget(0)
    maps = pool._map_of_file.copy()

    def child() -> None:
        ticket, found, seen = pool.enter(np.arange(3))
        assert found.tolist() == [-1, second, -1]
        assert seen.tolist() == maps.tolist()
        assert not is_open(first), "the read that it waited for is the parent's"
        third = os.open(path, os.O_RDONLY)
        pool.leave(ticket, [[2, third]])
        pool.forget()
        assert not is_open(second)
        assert not is_open(third)
        assert len(pool) == 0

    with held_by_another_thread(pool._locks.own()):
        forked(child)
    assert is_open(first)
    assert is_open(second)
    pool.leave(reader)
    assert not is_open(first)


def test_the_number_kept_is_a_part_of_what_the_process_may_open() -> None:
    resource = pytest.importorskip("resource", reason="needs POSIX limits")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert most_open() == 32
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def can_map() -> bool:
    with open(__file__, "rb") as file:
        address = map_file(file.fileno(), 1)
    if address:
        unmap_file(address, 1)
    return address != 0


@pytest.mark.skipif(not can_map(), reason="there are no maps of files here: no C library, or not Linux")
def test_files_that_are_kept_are_mapped_until_nobody_can_be_reading(path: str) -> None:
    pool = Descriptors(np.array([1, 1]), 1)
    ticket, _, maps = pool.enter(np.array([0, 1]))
    assert maps.tolist() == [0, 0]
    pool.leave(ticket, [[0, os.open(path, os.O_RDONLY)]])
    reader, _, maps = pool.enter(np.array([0, 1]))
    first, other = maps.tolist()
    assert (first > 0, other) == (True, 0)
    pool.forget()
    assert is_mapped(first), "a read may be using it"
    pool.leave(reader)
    assert not is_mapped(first)
    pool.leave(pool.enter(np.array([0]))[0], [[0, os.open(path, os.O_RDONLY)]])
    again = int(pool._map_of_file[0])
    del pool
    assert not is_mapped(again)


def is_mapped(address: int) -> bool:
    return any(line.startswith(f"{address:x}-") for line in Path("/proc/self/maps").read_text().splitlines())
