from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sources.streams import Numbers, Sticky, Told

from penstock._contracts.source import StatefulStream, StreamSource
from penstock.errors import PlanError, SourceError, StateUnavailable
from penstock.sources.stream import IterableSource, StatefulSource, stream_source


class Again:
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


class Half(Again):
    def state_dict(self) -> Any:
        return {}


def test_every_pass_is_iter_of_the_object() -> None:
    source = stream_source(Again(), fast_forward=True, length=2)
    assert isinstance(source, StreamSource)
    assert [list(source.open(number)) for number in range(3)] == [[1, 2]] * 3
    assert (source.declared_length(), source.can_fast_forward()) == (2, True)
    assert source.label() == "from_stream(Again, 2 elements)"
    assert source.describe(4) == "element 4 of stream Again"


def test_only_an_object_that_gives_and_takes_states_has_them() -> None:
    assert isinstance(stream_source(Numbers(2)), StatefulStream)
    for stream in (Again(), Half(), [1, 2]):
        assert type(stream_source(stream)) is IterableSource
        assert not isinstance(stream_source(stream), StatefulStream)
    assert stream_source(Numbers(2)).fingerprint() == {"kind": "stream", "name": "Numbers", "length": None, "stateful": True}
    assert stream_source(Again()).fingerprint()["stateful"] is False


class Counted(Again):
    """As MosaicML's StreamingDataset: its state is asked for with what was delivered."""

    def state_dict(self, num_samples: int, from_beginning: bool) -> Any:
        raise AssertionError

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError


class NamedEpochs(Again):
    def set_epoch(self, epoch: int, *, step: int) -> None:
        raise AssertionError


class Optional(Numbers):
    def state_dict(self, deep: bool = False) -> Any:
        return super().state_dict()


def test_methods_that_want_other_arguments_are_not_those_of_the_protocol() -> None:
    for stream in (Counted(), NamedEpochs()):
        source = stream_source(stream)
        assert type(source) is IterableSource
        assert list(source.open()) == [1, 2]
    assert isinstance(stream_source(Optional(2)), StatefulStream)


def test_a_stream_that_is_callable_too_is_iterated() -> None:
    class Both(Again):
        def __call__(self) -> Any:
            raise AssertionError

    assert list(stream_source(Both()).open()) == [1, 2]


@pytest.mark.parametrize("stream", [len, 5, lambda: iter([1])])
def test_what_cannot_be_iterated_is_refused(stream: Any) -> None:
    with pytest.raises(PlanError) as refusal:
        stream_source(stream)
    assert refusal.value.what == f"{stream!r} cannot be iterated"
    assert refusal.value.where == "from_stream()"
    assert "from_generator" in refusal.value.fix


def test_a_state_is_where_the_open_pass_is_and_a_pass_can_be_opened_there() -> None:
    source = StatefulSource(Numbers(6))
    states = [source.state() for _ in source.open(0)]
    for place, state in enumerate(states):
        assert list(source.open_at(0, state)) == list(range(place + 1, 6))
        assert list(source.open(1)) == list(range(6))


def test_a_state_is_a_copy() -> None:
    class Live(Numbers):
        kept: dict[str, list[int]] = {"seen": []}  # noqa: RUF012

        def state_dict(self) -> Any:
            return self.kept

    stream = Live(3)
    state = StatefulSource(stream).state()
    stream.kept["seen"].append(1)
    assert state == {"seen": []}


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"at": object()}, "not JSON serializable"),
        ({"rng": (1, 2)}, "JSON gives tuples back as lists"),
        ({1: 2}, "keys as str"),
        (float("nan"), "Out of range float values"),
    ],
)
def test_a_state_that_json_cannot_hold_is_no_state(state: Any, problem: str) -> None:
    class Odd(Numbers):
        def state_dict(self) -> Any:
            return state

    with pytest.raises(StateUnavailable) as refusal:
        StatefulSource(Odd(3)).state()
    assert refusal.value.what.startswith("state_dict() of ")
    assert "returned what JSON cannot hold: " in refusal.value.what
    assert problem in refusal.value.what
    assert "Odd" in refusal.value.where
    assert "dicts with str keys" in refusal.value.fix


def test_two_readers_of_one_stream_with_states_are_refused() -> None:
    source = StatefulSource(Numbers(6))
    passed = source.open(0)
    next(passed)
    for again in (lambda: source.open(0), lambda: source.open_at(0, {"index": 1})):
        with pytest.raises(SourceError) as refusal:
            again()
        assert refusal.value.what == "another feed is reading Numbers, and a stream with states has only one place"
        assert refusal.value.where == "from_stream(Numbers)"
        assert "close the other feed first" in refusal.value.fix
    assert list(passed) == [1, 2, 3, 4, 5]
    passed = source.open(0)
    next(passed)
    passed.close()  # type: ignore[attr-defined]
    passed = source.open(0)
    del passed  # never begun, and nobody holds it
    assert list(source.open(0)) == list(range(6))


@pytest.mark.parametrize("kind", [IterableSource, StatefulSource])
def test_a_stream_with_epochs_is_told_their_number(kind: Any) -> None:
    source = kind(Told(2))
    assert [list(source.open(number)) for number in (0, 3, 0)] == [[0, 1], [300, 301], [0, 1]]


def test_a_state_is_loaded_into_its_epoch() -> None:
    source = StatefulSource(Told(3))
    assert list(source.open_at(2, {"index": 1})) == [201, 202]
    assert list(source.open(3)) == [300, 301, 302]


def test_a_stream_that_goes_back_to_its_loaded_place_in_later_passes_is_found_out() -> None:
    source = StatefulSource(Sticky(6))
    assert list(source.open_at(0, {"index": 2})) == [2, 3, 4, 5]
    with pytest.raises(SourceError) as refusal:
        list(source.open(1))
    assert refusal.value.what == "a new pass over Sticky began where its loaded state was, not at the beginning"
    assert refusal.value.where == "from_stream(Sticky)"
    assert "on the next iter() only" in refusal.value.fix
    assert list(source.open_at(0, {"index": 6})) == []
    with pytest.raises(SourceError, match="gave no elements where an earlier one did"):
        list(source.open(1))


def test_a_stream_that_refuses_a_state_says_so_with_its_own_error() -> None:
    source = StatefulSource(Numbers(3))
    with pytest.raises(KeyError, match="index") as refusal:
        source.open_at(0, {})
    assert refusal.value.__notes__ == ["penstock: while from_stream(Numbers) was put back to its saved state"]


def test_closing_a_pass_closes_the_iterator_of_the_stream() -> None:
    closed = []

    class Closing(Numbers):
        def __iter__(self) -> Iterator[Any]:
            try:
                yield from super().__iter__()
            finally:
                closed.append(1)

    source = StatefulSource(Closing(5))
    for number in (1, 3):
        begun = source.open(0)
        for _ in range(number):
            next(begun)
        begun.close()  # type: ignore[attr-defined]
    passed = source.open_at(0, {"index": 2})
    assert next(passed) == 2
    passed.close()  # type: ignore[attr-defined]
    assert closed == [1, 1, 1]
