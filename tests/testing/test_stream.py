from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from testing.breaking import assert_broken

from penstock.sources import GeneratorSource
from penstock.testing import check_source


def count() -> Iterator[int]:
    yield from range(30)


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def test_streams_that_keep_the_laws_pass() -> None:
    for kwargs in ({}, {"fast_forward": True}, {"fast_forward": True, "length": 30}):
        check_source(GeneratorSource(count, **kwargs), expected=range(30), again=lambda kwargs=kwargs: GeneratorSource(count, **kwargs))
    check_source(GeneratorSource(lambda: ()), expected=[])
    check_source(GeneratorSource(endless), expected=range(1000), most_elements=50)


def test_a_stream_that_says_that_it_has_one_pass_is_checked_for_one() -> None:
    check_source(GeneratorSource(count()), expected=range(30))


class Remembering(GeneratorSource):
    taken = 0

    def open(self, pass_number: int) -> Any:
        def rows() -> Iterator[int]:
            for number in range(self.taken, 30):
                self.taken += 1
                yield number
            self.taken = 0

        return rows()


class Leaving(GeneratorSource):
    left: list[int] = []  # noqa: RUF012

    def open(self, pass_number: int) -> Any:
        self.left.append(os.open(os.devnull, os.O_RDONLY))
        return super().open(pass_number)


class Says(GeneratorSource):
    """A stream of 30 elements that says of itself what it is told to."""

    def __init__(self, length: Any) -> None:
        super().__init__(count)
        self.length = length

    def declared_length(self) -> Any:
        return self.length


def fails() -> Iterator[int]:
    yield 1
    raise OSError("gone")


@pytest.mark.parametrize(
    ("source", "what", "where", "fix"),
    [
        (Says(29), "29 elements are declared, and a pass has 30", "declared_length()", "the true number"),
        (GeneratorSource(fails), "a pass failed: OSError: gone", "open()", "mend the source"),
        (Remembering(count), "the pass behind one that was closed behind", "open()", "start at the first"),
    ],
)
def test_a_stream_with_one_fault_is_named(source: Any, what: str, where: str, fix: str) -> None:
    assert_broken(lambda: check_source(source), what, where, fix)


def test_a_pass_that_is_longer_than_declared_is_named_before_its_end() -> None:
    assert_broken(
        lambda: check_source(Says(5), most_elements=10),
        "5 elements are declared, and a pass has at least 10",
        "declared_length()",
        "the true number",
    )


def test_other_elements_than_expected_are_named() -> None:
    assert_broken(lambda: check_source(GeneratorSource(count), expected=[0, 2]), "element 1 is 1, not 2", "open()", "the right ones")


def test_a_pass_that_leaves_a_descriptor_open_is_named() -> None:
    source = Leaving(count)
    assert_broken(lambda: check_source(source), "descriptor", "check_no_leaks()", "close")
    for descriptor in source.left:
        os.close(descriptor)
