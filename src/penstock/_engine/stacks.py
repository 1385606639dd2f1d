"""Python stacks of threads and of coroutines, as far as they are the user's. Of another thread's: it may move on meanwhile."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from typing import Any

from penstock._contracts.frames import current_frames
from penstock._engine.stall import Frame

__all__ = ["awaits_of", "frames_of", "stack_of", "stacks_of", "waits_of"]

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def stacks_of(threads: set[int]) -> dict[int, tuple[Frame, ...]]:
    frames = current_frames()
    stacks = {thread: stack_of(frame) for thread, frame in frames.items() if thread in threads}
    frames.clear()  # this function's own frame is among them: a cycle that would keep the feed alive
    return stacks


def stack_of(frame: Any) -> tuple[Frame, ...]:
    """Return the calls of a stack, innermost last, without those that lead from the thread's start to the user's function."""
    found = [_call(frame) for frame in frames_of(frame)]
    found.reverse()
    ours = [call.file.startswith(_OURS) for call in found]
    start = ours.index(True) if True in ours else 0
    while start < len(found) and ours[start]:
        start += 1
    return tuple(found[start:] or found[-2:])


def frames_of(frame: Any) -> Iterator[Any]:
    """Yield the frames of a stack, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def waits_of(thread: int | None) -> tuple[tuple[Frame, ...], list[Any]]:
    """Return the calls of an event loop's thread that a callback or task of the loop made, innermost last, and the frames of its stack.

    There are no such calls while the loop waits, or goes round. The frames keep alive what they hold: drop them soon.
    """
    every = current_frames()
    frames = list(frames_of(every.get(-1 if thread is None else thread)))
    every.clear()
    calls = [_call(frame) for frame in reversed(frames)]
    begins = [place for place, call in enumerate(calls) if call.function in _BEGINS]
    return tuple(calls[begins[-1] + 1 :] if begins else ()), frames


_BEGINS = ("AwaitedOp.outcome", "Handle._run")
_MOST_AWAITS = 100


def awaits_of(task: Any) -> tuple[Frame, ...]:
    """Return the chain of what a task of asyncio awaits, innermost last, without our own call: through coroutines and further tasks."""
    found: list[Frame] = []
    seen: set[int] = set()
    while task is not None and id(task) not in seen and len(found) < _MOST_AWAITS:
        seen.add(id(task))
        here = task.get_coro() if hasattr(task, "get_coro") else None
        while here is not None and len(found) < _MOST_AWAITS:
            frame, here = _step(here)
            if frame is None:
                break
            found.append(_call(frame))
            del frame
        task = _awaited_future(task)
    return tuple(call for call in found if not call.file.startswith(_OURS))


def _step(awaited: Any) -> tuple[Any, Any]:
    """Return the frame of something awaited and what it awaits itself; (None, None) where that is not Python code."""
    for kind, further in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
        frame = getattr(awaited, f"{kind}_frame", None)
        if frame is not None:
            return frame, getattr(awaited, further, None)
    return None, None


def _awaited_future(task: Any) -> Any:
    """Return the future that a task waits for, of a `gather` the first that is not done; None when asyncio does not tell."""
    waiter = getattr(task, "_fut_waiter", None)
    children = getattr(waiter, "_children", None) or ()
    return next((child for child in children if not child.done()), waiter)


def _call(frame: Any) -> Frame:
    code = frame.f_code
    line = frame.f_lineno or code.co_firstlineno
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return Frame(code.co_filename, line, code.co_qualname, text)
