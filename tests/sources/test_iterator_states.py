from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from feeds import resumed

import penstock as ps
from penstock.errors import SourceError
from penstock.sources.stream import IteratorStates, has_iterator_states

CLOSED: list[int] = []


class Counting:
    """An iterator with a place, as Grain's have."""

    def __init__(self, count: int, as_bytes: bool) -> None:
        self.count, self.next, self.as_bytes = count, 0, as_bytes

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.next == self.count:
            raise StopIteration
        self.next += 1
        return self.next - 1

    def close(self) -> None:
        CLOSED.append(self.next)

    def get_state(self) -> Any:
        return b"%d" % self.next if self.as_bytes else {"next": self.next}

    def set_state(self, state: Any) -> None:
        self.next = int(state if self.as_bytes else state["next"])


class IterDataset:
    """One of Grain, by name."""

    __module__ = "grain.dataset"

    def __init__(self, count: int, as_bytes: bool = False) -> None:
        self.count, self.as_bytes = count, as_bytes

    def __iter__(self) -> Iterator[int]:
        return Counting(self.count, self.as_bytes)


class Mapped(IterDataset):
    """A transformation of one, in a module of the user's."""

    __module__ = "mine"


def test_they_are_known_by_name_without_being_iterated() -> None:
    assert has_iterator_states(IterDataset(3))
    assert has_iterator_states(Mapped(3))
    assert not has_iterator_states(Counting(3, False))
    assert not has_iterator_states([1])


@pytest.mark.parametrize("as_bytes", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 70, 100])
def test_a_feed_goes_on_where_the_iterator_was(as_bytes: bool, stop: int) -> None:
    with ps.from_stream(Mapped(100, as_bytes)).repeat(2).feed() as feed:
        head = [next(feed) for _ in range(stop)]
        state = json.loads(json.dumps(feed.state_dict()))
    assert head + resumed(ps.from_stream(Mapped(100, as_bytes)).repeat(2), state) == [*range(100), *range(100)]


def test_an_iterator_is_closed_at_its_end_and_with_the_feed() -> None:
    CLOSED.clear()
    assert list(ps.from_stream(Mapped(5))) == [0, 1, 2, 3, 4]
    assert CLOSED == [5]
    with ps.from_stream(Mapped(10**9)).feed() as feed:
        next(feed)
    assert len(CLOSED) >= 2


def test_it_is_named_as_what_it_is() -> None:
    assert "from_stream(Mapped)" in str(ps.from_stream(Mapped(3)))


def test_a_state_that_is_no_base64_is_an_error() -> None:
    stream = IteratorStates(Mapped(3, True))
    stream.load_state_dict({"base64": "?"})
    with pytest.raises(SourceError, match="a state is no base64"):
        iter(stream)
