"""Streams with positions."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.errors import SourceError
from penstock.sources.counted import Counted, Run, counts_of


class Lists:
    """Parts that say how often they were read."""

    def __init__(self, *parts: list[Any], size: int = 3) -> None:
        self.parts, self.size = parts, size
        self.opened: list[int] = []

    @property
    def num_parts(self) -> int:
        return len(self.parts)

    def describe_in_part(self, part: int, number: int) -> str:
        return f"{number} of {part}"

    def runs(self, part: int) -> Iterator[Run]:
        self.opened.append(part)
        for first in range(0, len(self.parts[part]), self.size):
            yield Run(first, self.parts[part][first : first + self.size])

    def held(self) -> tuple[Any, ...]:
        return (self.parts,)

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "lists"}

    def label(self) -> str:
        return "lists"


def made(size: int = 3) -> tuple[Lists, Counted]:
    parts = Lists([*range(10)], [], [*range(10, 17)], [17], size=size)
    counted = Counted(parts, counts_of(parts))
    parts.opened.clear()
    return parts, counted


def gathered(source: Counted, indices: Any) -> list[Any]:
    rows: list[Any] = []
    source.gather(list(indices), rows)
    return rows


@pytest.mark.parametrize("size", [1, 3, 100])
def test_runs_are_read_with_one_pass_over_each_part(size: int) -> None:
    parts, counted = made(size)
    assert len(counted) == 18
    assert gathered(counted, range(5)) + gathered(counted, range(5, 18)) == list(range(18))
    assert parts.opened == [0, 2, 3]
    assert counted.describe(12) == "2 of 2"
    assert counted.fingerprint() == {"kind": "lists", "count": 18}
    assert counted.label() == "lists, 18 elements"
    assert list(counted.input_files()) == []


def test_any_order_is_read_and_only_going_back_begins_a_part_again() -> None:
    parts, counted = made()
    assert gathered(counted, [8, 1, 17, 0, 2, 9, 16, 10]) == [8, 1, 17, 0, 2, 9, 16, 10]
    assert parts.opened == [0, 0, 3, 0, 2, 2]


def test_each_thread_has_a_place_of_its_own_and_a_copy_has_none() -> None:
    parts, counted = made()
    gathered(counted, range(8))
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(gathered(counted, range(3))))
    thread.start()
    thread.join()
    assert got == [0, 1, 2]
    assert gathered(counted, [8, 9]) == [8, 9]
    assert parts.opened == [0, 0]
    copy = pickle.loads(pickle.dumps(counted))
    assert gathered(copy, range(18)) == list(range(18))


@pytest.mark.parametrize(
    ("change", "words"), [(-1, "9 of 0 is not there, of 10 that were"), (1, "10 of 0 is there, behind the 10 that were")]
)
def test_a_part_that_has_another_length_by_now_is_an_error(change: int, words: str) -> None:
    parts, counted = made()
    parts.parts[0][:] = range(10 + change)
    rows: list[Any] = []
    with pytest.raises(SourceError) as caught:
        counted.gather(range(18), rows)
    assert words in caught.value.what
    assert rows == list(range(9))


def test_what_counting_raises_is_raised() -> None:
    class Bad(Lists):
        def runs(self, part: int) -> Iterator[Run]:
            if part == 2:
                raise OSError("part 2 is bad")
            return super().runs(part)

    with pytest.raises(OSError, match="part 2"):
        counts_of(Bad([1], [2], [3], [4]))


def test_an_error_of_a_part_is_raised_again_when_it_is_read_again() -> None:
    class Ends(Lists):
        def runs(self, part: int) -> Iterator[Run]:
            yield Run(0, [0, 1])
            raise ValueError("bad from 2 on")

    counted = Counted(Ends([]), [5])
    for _ in range(2):
        rows: list[Any] = []
        with pytest.raises(ValueError, match="bad from 2"):
            counted.gather([0, 1, 2, 3], rows)
        assert rows == [0, 1]


def test_an_error_names_the_element_that_raised_and_not_the_one_that_was_asked_for() -> None:
    class Ends(Lists):
        def runs(self, part: int) -> Iterator[Run]:
            yield from super().runs(part)
            raise ValueError("bad from 5 on")

    counted = Counted(Ends([], list(range(5))), [3, 9])
    for index in (8, 10):
        with pytest.raises(ValueError, match="bad from 5") as caught:
            counted.gather([3, index], [])
        assert caught.value.__notes__ == ["penstock: raised by reading 5 of 1"]


def test_an_error_behind_the_last_element_names_none_that_was_given() -> None:
    class Ends(Lists):
        def runs(self, part: int) -> Iterator[Run]:
            yield Run(0, [0, 1])
            raise ValueError("bad at its end")

    with pytest.raises(ValueError, match="bad at its end") as caught:
        Counted(Ends([]), [2]).gather([0, 1], [])
    assert caught.value.__notes__ == ["penstock: raised by reading 2 of 0"]


def test_an_error_that_takes_no_notes_is_raised_as_it_is() -> None:
    @dataclass(frozen=True)
    class Frozen(Exception):
        text: str

    class Ends(Lists):
        def runs(self, part: int) -> Iterator[Run]:
            raise Frozen("bad")

    with pytest.raises(Frozen):
        Counted(Ends([]), [2]).gather([0], [])
