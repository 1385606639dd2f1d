from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass

import pytest

from penstock.queues.failing import add_note, attach_others, tell_when_dropped, words_of, would_end


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


def test_others_are_notes_but_not_the_error_itself_nor_its_cause() -> None:
    first, cause = ValueError("first"), ValueError("cause")
    first.__cause__ = cause
    assert attach_others(first, [first, cause, OSError("other")]) is first
    assert first.__notes__ == ["penstock: also failed: OSError: other"]


class Owner:
    """Something that can be dropped."""


def test_an_error_that_nobody_raised_is_told_when_its_owner_goes_and_not_when_it_was_raised() -> None:
    kept, raised = Owner(), Owner()
    tell_when_dropped(kept, "a thing", OSError("disk"), "raise it")
    tell_when_dropped(raised, "another thing", OSError("net"), "raise it").detach()
    with pytest.warns(RuntimeWarning) as caught:  # noqa: PT031
        del kept, raised
        gc.collect()
    assert [str(warning.message) for warning in caught] == [
        "a thing was dropped with an error that nobody has raised: OSError: disk; raise it"
    ]
