"""Errors on their way from a child: as themselves where that is possible, in words where it is not."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

from penstock._contracts.process import reducers
from penstock._processes.failure import Failure, dump_with_errors, fit_to_raise
from penstock.errors import DecodeError, StopRaised, WorkerFailed


class TwoArguments(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Frozen(Exception):
    def add_note(self, note: str) -> None:
        raise AttributeError("frozen")


def caught(error: BaseException) -> Failure:
    try:
        raise error
    except BaseException as raised:
        return pickle.loads(pickle.dumps(Failure.of(raised)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError(3), OSError(2, "gone"), DecodeError("a", where="b", fix="c")])
def test_an_error_comes_as_itself_with_the_traceback_as_its_note(error: Exception) -> None:
    found = caught(error).error("worker 3")
    assert type(found) is type(error)
    assert found.args == error.args
    [note] = found.__notes__
    assert note.startswith("penstock: worker 3; there it was\nTraceback (most recent call last):")
    assert "in caught" in note


def test_notes_and_causes_of_the_original_are_in_the_traceback() -> None:
    error = ValueError("outer")
    error.add_note("element 7")
    error.__cause__ = KeyError("inner")
    found = caught(error).error("worker 3")
    assert found.__notes__[0] == "element 7"
    assert "KeyError: 'inner'" in found.__notes__[1]


def test_an_error_that_cannot_be_made_again_is_told_in_words() -> None:
    for error in (TwoArguments(1, 2), ValueError(lambda: 0)):
        found = caught(error).error("worker 3")
        assert isinstance(found, WorkerFailed)
        assert str(error) in found.what
        assert found.where.startswith("worker 3; there it was\nTraceback")


def test_an_error_without_words_is_told_by_its_type() -> None:
    found = caught(Unreadable()).error("worker 3")
    assert isinstance(found, Unreadable)


def test_an_error_that_takes_no_note_stays_without() -> None:
    assert type(caught(Frozen("x")).error("worker 3")) is Frozen


@pytest.mark.parametrize("error", [StopIteration(4), SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
def test_an_error_that_would_pass_for_an_end_is_an_error(error: BaseException) -> None:
    for found in (caught(error).error("worker 3"), fit_to_raise(error, "worker 3")):
        assert isinstance(found, StopRaised)
        assert found.what.startswith(f"{type(error).__name__} was raised")
        assert type(found.__cause__) is type(error)
        assert found.where.startswith("worker 3")


def test_a_cancellation_is_an_error() -> None:
    import asyncio

    assert isinstance(fit_to_raise(asyncio.CancelledError(), "worker 3"), StopRaised)


def test_an_error_whose_class_is_not_here_is_told_in_words() -> None:
    program = (
        "import pickle, sys\n"
        "from penstock._processes.failure import Failure\n"
        "class Local(Exception): pass\n"
        "try:\n    raise Local('hello')\nexcept Local as error:\n"
        "    sys.stdout.buffer.write(pickle.dumps(Failure.of(error)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    failure: Any = pickle.loads(done.stdout)
    found = failure.error("worker 3")
    assert isinstance(found, WorkerFailed)
    assert found.what == "__main__.Local: hello"


def test_a_reducer_is_used_between_processes_as_long_as_it_is_there() -> None:
    reducers()[slice] = lambda value: (range, (value.stop,))
    try:
        assert pickle.loads(dump_with_errors([slice(3)], None, where="a test")) == [range(3)]
        assert pickle.loads(pickle.dumps(slice(3))) == slice(3)
    finally:
        del reducers()[slice]
    assert pickle.loads(dump_with_errors(slice(3), None, where="a test")) == slice(3)
