from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sources.streams import Numbers

from penstock._engine.chunk import Chunk, Completed, Failure, StreamState, Token
from penstock._engine.stream_reader import Reader
from penstock.sources.stream import GeneratorSource, StatefulSource


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
