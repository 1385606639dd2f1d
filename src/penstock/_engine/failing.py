"""What reaches the consumer when a user's function fails: its own exception, with where it happened."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

from penstock._engine.unit import Failure
from penstock.errors import StopRaised

__all__ = ["add_note", "attach_others", "is_interrupt", "prepare", "raisable", "words_of"]

_WOULD_END = (StopIteration, StopAsyncIteration, GeneratorExit, SystemExit, KeyboardInterrupt)


def prepare(failure: Failure, words: str, key: tuple[int, int]) -> Failure:
    """Return the failure with an exception fit for the consumer.

    The user's exception keeps its type and traceback and gets a note. One that a loop or the interpreter would take for a normal end
    (StopIteration, SystemExit, ...), or an async program for its own cancellation, becomes a StopRaised, with the original as its cause.
    """
    where = f"stage {failure.stage!r}, worker {failure.worker}, element epoch {key[0]} index {key[1]}" + (f" ({words})" if words else "")
    fix = "raise another exception for an error; filter() or take() end or thin a dataset"
    error = failure.error
    if not is_interrupt(error):
        error = raisable(error, f"the function of stage {failure.stage!r}", where, fix)
    if error is not failure.error:
        return failure._replace(error=error)
    note = f"penstock: {where}"
    if note not in getattr(error, "__notes__", ()):
        add_note(error, note)
    return failure


def raisable(error: BaseException, function: str, where: str, fix: str = "raise another exception for an error") -> BaseException:
    """Return the error, or a StopRaised in place of one that a loop, the interpreter or an async program would take for something else."""
    if not _would_end(error):
        return error
    stopped = StopRaised(f"{function} raised {type(error).__name__}{_argument(error)}", where=where, fix=fix)
    stopped.__cause__ = error
    return stopped


def add_note(error: BaseException, note: str) -> None:
    """Add a note to a user's error. One that takes none, as a frozen dataclass, stays without: it is what the user asked to see."""
    with suppress(AttributeError, TypeError):
        error.add_note(note)


def words_of(error: BaseException) -> str:
    """Return type and text of an error, also of one whose own `__str__` fails, and so would hide the error that is raised."""
    from traceback import TracebackException

    return f"{type(error).__name__}: {TracebackException(type(error), error, None)}"


def _would_end(error: BaseException) -> bool:
    asyncio = sys.modules.get("asyncio.exceptions")  # not imported: then nobody can have raised its error
    return isinstance(error, _WOULD_END) or (asyncio is not None and isinstance(error, asyncio.CancelledError))


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an error is the user's Ctrl-C: the main thread alone gets it, and it runs functions only for the inline executor."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def attach_others(first: Failure, failures: list[Failure]) -> BaseException:
    """Return the first error, with a note for each of the others (two workers may fail together)."""
    error = first.error
    for other in failures:
        if other.error is not error and other.error is not error.__cause__:
            add_note(error, f"penstock: also failed: {words_of(other.error)} (stage {other.stage!r})")
    return error


def _argument(error: BaseException) -> str:
    return f"({error.args[0]!r})" if error.args else ""
