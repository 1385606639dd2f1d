from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from penstock._contracts.failing import add_note, words_of, would_end


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


def test_an_error_without_words_has_a_type_all_the_same() -> None:
    assert words_of(ValueError("x")) == "ValueError: x"
    assert words_of(Speechless()).startswith("Speechless: ")


def test_an_error_that_takes_no_note_stays_without() -> None:
    error = Frozen(3)
    add_note(error, "note")
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, GeneratorExit, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_what_a_loop_or_the_interpreter_takes_for_an_end(kind: type[BaseException]) -> None:
    assert would_end(kind())


@pytest.mark.parametrize("kind", [ValueError, MemoryError, BaseException])
def test_what_is_an_error_everywhere(kind: type[BaseException]) -> None:
    assert not would_end(kind())
