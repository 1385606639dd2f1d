"""Messages over a socket pair: whole, in order, with descriptors; and the words for what cannot be pickled."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._workers.pipe import MESSAGE, Pipe, PipeEnded, pickled
from penstock.errors import SpecError, WorkerFailed


@pytest.fixture
def ends() -> Iterator[tuple[Pipe, Pipe]]:
    one, other = (Pipe(end) for end in socket.socketpair())
    yield one, other
    one.close()
    other.close()


@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_messages_that_arrive_in_pieces_are_put_together(cuts: list[int]) -> None:
    left, right = socket.socketpair()
    with left, right:
        pipe, data = Pipe(right), bytearray()
        one, two = pickle.dumps("one", protocol=5), pickle.dumps(list(range(20)), protocol=5)
        for payload in (one, two):
            data += len(payload).to_bytes(8, "little") + bytes([MESSAGE]) + payload
        found = []
        for cut in [*cuts, len(data)]:
            if data:
                left.sendall(data[:cut])
                del data[:cut]
                pipe.fill()
            while (message := pipe.take()) is not None:
                found.append(message)
        assert found == [(MESSAGE, one), (MESSAGE, two)]


def test_descriptors_come_with_their_messages(ends: tuple[Pipe, Pipe]) -> None:
    one, other = ends
    for number in range(3):
        read, write = os.pipe()
        os.write(write, bytes([number]))
        os.close(write)
        one.send(number, fds=[read])
        os.close(read)
    for number in range(3):
        assert other.receive() == number
        descriptor = other.take_fd()
        assert os.read(descriptor, 9) == bytes([number])
        os.close(descriptor)


def test_descriptors_that_nobody_took_are_closed_with_the_pipe(ends: tuple[Pipe, Pipe]) -> None:
    one, other = ends
    read, write = os.pipe()
    one.send("here", fds=[read])
    assert other.receive() == "here"
    os.close(read)
    other.close()
    with pytest.raises(BrokenPipeError):
        os.write(write, b"x")
    os.close(write)


def test_a_descriptor_that_did_not_arrive_is_an_error_that_says_why(ends: tuple[Pipe, Pipe]) -> None:
    import resource

    one, other = ends
    one.send("here", fds=[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (other.fileno() + 1, hard))
    try:
        assert other.receive() == "here"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(WorkerFailed, match="too many open files"):
        other.take_fd()


def test_at_the_end_everything_sent_before_is_received_first(ends: tuple[Pipe, Pipe]) -> None:
    one, other = ends
    other.send("unread")
    one.send("last words")
    assert not other.ended()
    one.close()
    assert other.ended()
    assert other.receive() == "last words"
    for _ in range(2):
        with pytest.raises(PipeEnded):
            other.receive()
    with pytest.raises(PipeEnded):
        other.send("too late")


def test_shutting_ends_both_directions_although_a_copy_of_the_descriptor_is_open(ends: tuple[Pipe, Pipe]) -> None:
    one, other = ends
    copy = os.dup(one.fileno())
    one.shut()
    with pytest.raises(PipeEnded):
        other.receive()
    with pytest.raises(PipeEnded):
        other.send("anything")
    os.close(copy)
    other.close()
    one.shut()  # of one whose other end has gone: nothing


@dataclass
class Record:
    good: int
    bad: Any


class Plain:
    def __init__(self) -> None:
        self.inner = {"deep": lambda: 0}


class Refuses:
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


@pytest.mark.parametrize(
    ("message", "kind", "path"),
    [
        (lambda: 0, "function", ""),
        ((1, [2, lambda: 0]), "function", "[1][1]"),
        ({"x": np.zeros(2), "y": open}, None, ""),
        (Record(good=1, bad=lambda: 0), "function", "`self.bad` of Record"),
        ([Plain()], "function", "`self.inner['deep']` of Plain"),
        ({"r": Refuses()}, f"{__name__}.Refuses", "['r']"),
        ((number for number in range(3)), "generator", ""),
    ],
)
def test_what_cannot_be_pickled_is_named_with_place_and_type(message: Any, kind: str | None, path: str) -> None:
    if kind is None:
        assert pickle.loads(pickled(message, "there"))["y"] is open
        return
    with pytest.raises(SpecError) as caught:
        pickled(message, "there")
    place = f" (at {path})" if path else ""
    assert caught.value.what.startswith(f"a value of type {kind} cannot be sent to another process{place}: ")
    assert caught.value.where == "there"
    assert caught.value.__cause__ is not None
