"""Errors on their way from a child: as themselves where that is possible, in words where it is not."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import threading
from bdb import BdbQuit
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock._workers.failure import Failure, fit_to_raise
from penstock.errors import DecodeError, StopRaised, WorkerFailed


class TwoArguments(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


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
    for error in (ValueError(threading.Lock()), OSError(threading.Lock(), 2)):
        found = caught(error).error("worker 3")
        assert isinstance(found, WorkerFailed)
        assert str(error) in found.what
        assert found.where.startswith("worker 3; there it was\nTraceback")


def test_an_error_is_made_again_without_its_init_where_that_takes_something_else() -> None:
    error = TwoArguments(1, 2)
    error.place = "row 7"  # type: ignore[attr-defined]
    found = caught(error).error("worker 3")
    assert (type(found), found.args, found.place) == (TwoArguments, ("1 and 2",), "row 7")  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [StopIteration(4), SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
def test_an_error_that_would_pass_for_an_end_is_an_error(error: BaseException) -> None:
    for found in (caught(error).error("worker 3"), fit_to_raise(error, "worker 3")):
        assert isinstance(found, StopRaised)
        assert found.what.startswith(f"{type(error).__name__} was raised")
        assert type(found.__cause__) is type(error)
        assert found.where.startswith("worker 3")


@pytest.mark.parametrize("ask", [breakpoint, input, lambda: multiprocessing.Process(target=int).start()])
def test_the_error_of_a_function_that_needs_the_program_says_where_it_can_run(ask: Callable[[], object]) -> None:
    with pytest.raises((BdbQuit, EOFError, AssertionError)) as raised:
        list(ps.from_source(range(2)).map(lambda number: ask() or number).feed(num_workers=1))
    assert "num_workers=0" in raised.value.__notes__[1]


def test_an_error_whose_class_is_not_here_is_told_in_words() -> None:
    program = (
        "import pickle, sys, types\n"
        "from penstock._workers.failure import Failure\n"
        "sys.modules['only_there'] = module = types.ModuleType('only_there')\n"
        "exec('class Local(Exception): pass', vars(module))\nLocal = module.Local\n"
        "try:\n    raise Local('hello')\nexcept Local as error:\n"
        "    sys.stdout.buffer.write(pickle.dumps(Failure.of(error)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    failure: Any = pickle.loads(done.stdout)
    found = failure.error("worker 3")
    assert isinstance(found, WorkerFailed)
    assert found.what == "only_there.Local: hello"
