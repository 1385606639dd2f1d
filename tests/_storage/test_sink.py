from __future__ import annotations

import os

import pytest

from penstock._storage.local import Sink, can_sink

pytestmark = pytest.mark.skipif(not can_sink(), reason="this system has no anonymous files")


def test_what_is_written_to_the_file_stands_in_the_memory_also_after_it_grew() -> None:
    sink = Sink()
    small, descriptor = sink.room(10)
    os.pwrite(descriptor, b"0123456789", 0)
    assert small.tobytes() == b"0123456789"
    large, again = sink.room(3 << 20)
    assert (again, large.size) == (descriptor, 3 << 20)
    assert large[:10].tobytes() == b"0123456789"
    os.pwrite(descriptor, b"end", (3 << 20) - 3)
    assert large[-3:].tobytes() == b"end"
    assert sink.room(10)[1] == descriptor


def test_its_file_goes_with_it() -> None:
    sink = Sink()
    _, descriptor = sink.room(1)
    del sink
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_another_process_gets_a_file_of_its_own() -> None:
    sink = Sink()
    memory, descriptor = sink.room(4)
    os.pwrite(descriptor, b"ours", 0)
    owner = sink._owner
    sink._owner = owner + 1  # as a forked child finds it
    _, other = sink.room(4)
    os.pwrite(other, b"****", 0)
    assert (other != descriptor, memory.tobytes()) == (True, b"ours")
    os.close(descriptor)
