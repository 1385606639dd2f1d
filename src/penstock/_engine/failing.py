"""Errors on their way to the consumer: the user's own exception with where it happened, also out of callbacks that no caller sees."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from penstock._contracts.failing import add_note, argument_of, cause_of, notes_of, traceback_of, words_of, would_end
from penstock._engine.chunk import Failure
from penstock.errors import StopRaised

__all__ = ["attach_others", "hear", "is_interrupt", "let_go", "prepare"]

_MACHINERY = ("penstock.", "asyncio.")


def prepare(failure: Failure, words: str, key: tuple[int, int]) -> Failure:
    """Return the failure with an exception fit for the consumer.

    The user's exception keeps its type and traceback and gets a note. One that a loop or the interpreter would take for a normal end
    (StopIteration, SystemExit, ...), or an async program for its own cancellation, becomes a StopRaised, with the original as its cause.
    """
    where = f"stage {failure.stage!r}, worker {failure.worker}, element epoch {key[0]} index {key[1]}" + (f" ({words})" if words else "")
    error = failure.error
    if would_end(error) and not is_interrupt(error):
        stopped = StopRaised(
            f"the function of stage {failure.stage!r} raised {type(error).__name__}{argument_of(error)}",
            where=where,
            fix="raise another exception for an error; filter() or take() end or thin a dataset",
        )
        stopped.__cause__ = error
        return failure._replace(error=stopped)
    note = f"penstock: {where}"
    if note not in notes_of(error):
        add_note(error, note)
    return failure


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an error is the user's Ctrl-C: the main thread alone gets it, and it runs functions only for the inline executor.

    In a worker process the main thread computes too, but Ctrl-C is ignored there: what is raised is the function's own.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def attach_others(first: Failure, failures: list[Failure]) -> BaseException:
    """Return the first error, with a note for each of the others (two workers may fail together)."""
    error = first.error
    for other in failures:
        if other.error is not error and other.error is not cause_of(error):
            add_note(error, f"penstock: also failed: {words_of(other.error)} (stage {other.stage!r})")
    return error


def let_go(failures: list[Failure]) -> None:
    """Empty the frames of the engine and its event loop that called those of the tracebacks, when the workers have ended.

    They hold a worker's elements and the error, which holds them: all would stay in memory until a garbage collection.
    A frame of the user's is left alone: it may be that of a generator which waits between two elements, and emptying it would end it.
    """
    for error in [one for failure in failures for one in (failure.error, cause_of(failure.error))]:
        traceback = None if error is None else traceback_of(error)
        frame = None if traceback is None else traceback.tb_frame.f_back
        while frame is not None and str(frame.f_globals.get("__name__")).startswith(_MACHINERY):
            before = frame.f_back
            try:
                frame.clear()
            except RuntimeError:  # it still runs, and so do all that called it
                break
            frame = before


def hear(on_error: Callable[[BaseException], Any], function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function; give what it raises to `on_error`, which sees to it that the consumer gets it."""
    try:
        function(*arguments)
    except BaseException as error:
        on_error(error)
