from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import penstock as ps
from penstock._contracts.source import StreamSource
from penstock.errors import PlanError, SourceError
from penstock.sources.stream import GeneratorSource, rest_of
from penstock.testing import check_source


def count() -> Iterator[int]:
    yield from range(3)


class Again:
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


@pytest.mark.parametrize(
    ("fn", "elements"),
    [(count, [0, 1, 2]), (lambda: [5, 6], [5, 6]), (Again(), [1, 2]), ([7], [7]), (lambda: (), []), (lambda: [None], [None])],
)
def test_whatever_yields_keeps_the_laws_of_a_stream(fn: Any, elements: list[Any]) -> None:
    assert isinstance(GeneratorSource(fn), StreamSource)
    for fast_forward in (False, True):
        check_source(GeneratorSource(fn, fast_forward), expected=elements, again=lambda: GeneratorSource(fn))


def assert_one_shot(source: GeneratorSource, name: str) -> None:
    with pytest.raises(SourceError) as caught:
        list(source.open())
    assert f"{name} can be read only once" in caught.value.what
    assert "pass 2" in caught.value.where
    assert "new iterator on every call" in caught.value.fix


def test_a_second_pass_over_a_generator_object_is_an_error_and_not_an_empty_epoch() -> None:
    source = GeneratorSource(count())
    assert list(source.open()) == [0, 1, 2]
    assert_one_shot(source, "count")


@pytest.mark.parametrize("make", [count, lambda: iter([1, 2]), lambda: map(str, [1])])
def test_a_callable_that_returns_the_same_iterator_again_is_an_error(make: Any) -> None:
    same = make()
    source = GeneratorSource(lambda: same)
    assert list(source.open())
    assert_one_shot(source, "<lambda>")


def test_a_used_up_iterator_behind_a_new_wrapper_is_an_error() -> None:
    same = count()

    def wrapped() -> Iterator[int]:
        return (value + 1 for value in same)

    source = GeneratorSource(wrapped)
    assert list(source.open()) == [1, 2, 3]
    assert_one_shot(source, "wrapped")


def test_nothing_runs_before_the_first_element_is_asked_for_and_close_closes_the_users_generator() -> None:
    events = []

    def rows() -> Iterator[int]:
        events.append("start")
        try:
            yield 1
            yield 2
        finally:
            events.append("end")

    passed = GeneratorSource(rows).open()
    assert events == []
    assert next(passed) == 1
    passed.close()  # type: ignore[attr-defined]
    assert events == ["start", "end"]


def test_an_abandoned_pass_is_not_kept_alive() -> None:
    made = []

    def rows() -> Iterator[int]:
        generator = count()
        made.append(weakref.ref(generator))
        return generator

    source = GeneratorSource(rows)
    passed = source.open()
    next(passed)
    del passed
    gc.collect()
    assert made[0]() is None
    assert list(source.open()) == [0, 1, 2]


def test_an_error_of_the_generator_stays_as_it_is() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise KeyError("lost")

    passed = GeneratorSource(rows).open()
    assert next(passed) == 1
    with pytest.raises(KeyError, match="lost"):
        next(passed)


async def tomorrow() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("fn", "got", "hint"), [(lambda: 5, "returned a int", "yield elements"), (tomorrow, "async_generator", "async generator cannot")]
)
def test_a_callable_that_returns_no_iterable_is_an_error(fn: Any, got: str, hint: str) -> None:
    with pytest.raises(SourceError) as caught:
        GeneratorSource(fn).open()
    assert got in caught.value.what
    assert "from_generator" in caught.value.where
    assert hint in caught.value.fix


def test_what_is_neither_callable_nor_iterable_is_an_error() -> None:
    with pytest.raises(PlanError, match="neither callable nor iterable") as caught:
        GeneratorSource(5)  # type: ignore[arg-type]
    assert "from_generator" in caught.value.where
    assert "without arguments" in caught.value.fix


@pytest.mark.parametrize("length", [-1, 2.0, True, "3"])
def test_a_length_that_is_no_count_is_an_error(length: Any) -> None:
    with pytest.raises(PlanError) as caught:
        GeneratorSource(count, length=length)
    assert f"length={length!r} is not a count" in caught.value.what
    assert "from_generator(count)" in caught.value.where
    assert "int >= 0" in caught.value.fix


def test_it_says_what_it_was_told() -> None:
    plain, full = GeneratorSource(count), GeneratorSource(count, fast_forward=True, length=3)
    assert (plain.declared_length(), plain.can_fast_forward(), plain.label()) == (None, False, "from_generator(count)")
    assert (full.declared_length(), full.can_fast_forward(), full.label()) == (3, True, "from_generator(count, 3 elements)")
    assert full.describe(2) == "element 2 of generator count"
    assert plain.fingerprint() != full.fingerprint()
    assert plain.fingerprint() != GeneratorSource(Again()).fingerprint()


class Anew:
    """An iterator that begins anew whenever it is asked for one, as many programs have them."""

    def __init__(self) -> None:
        self.num_closed = 0

    def __iter__(self) -> Anew:
        self.number = -1
        return self

    def __next__(self) -> int:
        self.number += 1
        if self.number == 5:
            raise StopIteration
        return self.number

    def close(self) -> None:
        self.num_closed += 1


@pytest.mark.parametrize("opened", [ps.from_generator, ps.from_stream])
def test_an_iterator_that_begins_anew_gives_each_element_once(opened: Any) -> None:
    assert list(opened(Anew())) == list(range(5))
    assert list(opened(Anew()).take(3)) == [0, 1, 2]


def test_the_rest_of_an_iterator_ends_and_closes_as_it_does() -> None:
    iterator = iter(Anew())
    assert list(rest_of(iterator)) == [0, 1, 2, 3, 4]
    assert iterator.num_closed == 0
    rest = rest_of(iter(iterator))
    assert next(rest) == 0
    rest.close()
    assert iterator.num_closed == 1
    rest = rest_of(iter([1]))
    next(rest)
    rest.close()
