from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources.streams import Numbers

from penstock._engine.chunk import Chunk, Completed, Failure, StreamState, Token
from penstock._engine.stream_reader import Reader
from penstock._order.runs import Runs
from penstock.errors import LengthMismatch
from penstock.sources import GeneratorSource, StatefulSource


def source(count: int, **options: Any) -> GeneratorSource:
    return GeneratorSource(lambda: iter(list(range(count))), **options)


def values(chunks: list[Chunk]) -> list[tuple[int, Any]]:
    return [(chunk.pass_number, row) for chunk in chunks if chunk.given is not None for row in chunk.given.rows()]


def read_all(reader: Reader, sizes: list[int], most: int = 1000) -> tuple[list[Chunk], Failure | None]:
    chunks: list[Chunk] = []
    while not reader.done and len(chunks) < most:
        chunk, failure = reader.read(sizes[len(chunks) % len(sizes)])
        chunks.append(chunk)
        if failure is not None:
            return chunks, failure
    return chunks, None


@given(st.integers(0, 12), st.integers(1, 3), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_stream_with_states_is_asked_once_per_block_and_its_note_is_never_behind_a_token(
    count: int, passes: int, sizes: list[int]
) -> None:
    stream = Counted(count)
    chunks, failure = read_all(Reader(StatefulSource(stream), Token((0, 0)), passes), sizes)
    assert failure is None
    assert stream.asked == sum(chunk.num_items > 0 for chunk in chunks)
    latest = None
    for chunk in chunks:
        if chunk.num_items:
            latest = StreamState(chunk.pass_number, chunk.first + 1, {"index": chunk.first + 1})
        assert chunk.tokens is not None
        assert chunk.tokens == [Token((chunk.pass_number, chunk.first + place + 1), note=latest) for place in range(chunk.num_items)]
        assert chunk.pass_token == Token((chunk.pass_number + 1, 0), note=latest)


@given(st.integers(1, 12), st.data())
def test_a_resume_goes_to_the_note_and_drops_what_was_delivered_behind_it(count: int, data: st.DataObject) -> None:
    number, position = data.draw(st.integers(0, 2)), data.draw(st.integers(1, count))
    noted = data.draw(st.integers(1, position))
    stream = Counted(count)
    note = StreamState(number, noted, {"index": noted})
    chunks, failure = read_all(Reader(StatefulSource(stream), Token((number, position), note=note), 3), [4])
    assert failure is None
    assert values(chunks) == [(n, x) for n in range(number, 3) for x in range(position if n == number else 0, count)]
    assert stream.loaded == [{"index": noted}]
    assert stream.given == count - noted + (2 - number) * count


@pytest.mark.parametrize("cut", [False, True])
def test_a_note_of_the_pass_before_is_gone_to_and_that_pass_read_to_its_end_unless_it_was_cut(cut: bool) -> None:
    stream = Counted(9)
    chunks, _ = read_all(Reader(StatefulSource(stream), Token((1, 2), note=StreamState(0, 4, {"index": 4}, cut)), 2), [20])
    assert values(chunks) == [(1, x) for x in range(2, 9)]
    assert stream.given == (1 if cut else 5) + 9


class Counted(Numbers):
    asked = 0

    def state_dict(self) -> Any:
        self.asked += 1
        return super().state_dict()


def test_a_resume_behind_the_end_of_the_generator_is_an_error() -> None:
    _, failure = read_all(Reader(source(3), Token((0, 5)), 1), [4])
    assert failure is not None
    error = failure.error
    assert isinstance(error, LengthMismatch)
    assert error.what == "the generator ended after 3 elements, but the state was saved behind 5"
    assert "from_generator" in error.where
    assert "the data that the state was saved with" in error.fix


@pytest.mark.parametrize(("declared", "found"), [(2, "more than 2"), (4, "3")])
def test_another_number_of_elements_than_declared_is_an_error_behind_them(declared: int, found: str) -> None:
    chunks, failure = read_all(Reader(source(3, length=declared), Token((0, 0)), 1), [10])
    assert values(chunks) == [(0, 0), (0, 1), (0, 2)][:declared]
    assert not chunks[-1].ends_pass
    assert failure is not None
    assert isinstance(failure.error, LengthMismatch)
    assert failure.error.what == f"the generator declared {declared} elements and gave {found}"
    assert "correct length=" in failure.error.fix


def test_a_cut_ends_the_pass_closes_the_generator_and_the_next_pass_begins() -> None:
    closed: list[int] = []

    def rows() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.append(1)

    reader = Reader(GeneratorSource(rows), Token((0, 0)), 2)
    reader.read(3)
    reader.cut(0)
    chunk, _ = reader.read(3)
    assert (chunk.num_items, chunk.ends_pass, closed) == (0, True, [1])
    following, _ = reader.read(2)
    assert values([following]) == [(1, 0), (1, 1)]
    reader.cut(0)  # an old cut changes nothing
    assert values([reader.read(1)[0]]) == [(1, 2)]
    reader.close()
    reader.close()
    assert closed == [1, 1]


@given(st.integers(0, 20), st.lists(st.integers(0, 19)), st.integers(0, 20), st.integers(1, 6))
def test_what_an_earlier_run_delivered_is_read_and_dropped_and_no_chunk_has_a_gap(
    count: int, taken: list[int], position: int, most: int
) -> None:
    position = min(position, count)
    delivered = {place for place in taken if position <= place < count}
    done = Completed(Runs((place, place + 1) for place in delivered).without(()))
    chunks, failure = read_all(Reader(source(count), Token((0, position), done=done), 2), [most])
    assert failure is None
    left = [place for place in range(position, count) if place not in delivered]
    assert values(chunks) == [(0, place) for place in left] + [(1, place) for place in range(count)]
    for chunk in chunks:
        assert chunk.given is not None
        assert chunk.given.rows() == list(range(chunk.first, chunk.first + chunk.num_items))


def test_up_to_what_is_taken_again_each_element_is_a_chunk_of_its_own() -> None:
    reader = Reader(source(9), Token((0, 2), done=Completed(((4, 5),), ((0, 6, 7), (0, 2, 3), (1, 1, 2)))), 3)
    chunks, failure = read_all(reader, [4])
    assert failure is None
    assert [(chunk.pass_number, chunk.first, chunk.num_items) for chunk in chunks if chunk.num_items] == [
        (0, 2, 1),
        (0, 3, 1),
        (0, 5, 1),
        (0, 6, 1),
        (0, 7, 2),
        (1, 0, 1),
        (1, 1, 1),
        (1, 2, 4),
        (1, 6, 3),
        (2, 0, 4),
        (2, 4, 4),
        (2, 8, 1),
    ]


@pytest.mark.parametrize("first", [True, False])
def test_a_pass_that_is_cut_is_noted_so_also_when_it_is_not_opened_again(first: bool) -> None:
    stream = Counted(9)
    reader = Reader(StatefulSource(stream), Token((0, 3), note=StreamState(0, 2, {"index": 2})), 2)
    if not first:
        reader.read(1)
    reader.cut(0)
    ended, _ = reader.read(3)
    assert ended.ends_pass
    assert ended.pass_token is not None
    assert ended.pass_token.note is not None
    assert ended.pass_token.note.cut
    reader.close()
