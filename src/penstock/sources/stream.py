"""A stream that an object gives: every pass is `iter` of it. One with states of its own is asked for them, and put back to them."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

from penstock._contracts.failing import add_note
from penstock.errors import PlanError, SourceError, StateUnavailable
from penstock.sources.generator import GeneratorSource, rest_of
from penstock.sources.iterator_states import IteratorStates, has_iterator_states

__all__ = ["IterableSource", "StatefulSource", "stream_source"]

_END = object()


def stream_source(stream: Any, fast_forward: bool = False, length: int | None = None) -> IterableSource:
    """Return a source over an iterable: one that keeps its states if it has any.

    Raises:
        PlanError: `stream` cannot be iterated, or `length` is not a count.
    """
    if has_iterator_states(stream):
        stream = IteratorStates(stream)
    has_states = all(callable(getattr(stream, name, None)) for name in ("state_dict", "load_state_dict"))
    return (StatefulSource if has_states else IterableSource)(stream, fast_forward, length)


class IterableSource(GeneratorSource):
    """Serve what an iterable gives. One with `set_epoch` is told the number of each pass before it begins.

    Args:
        stream: anything with `__iter__`.
        fast_forward: whether a resume may read and drop elements to get back to its place.
        length: the number of elements of every pass, checked by the engine; None promises nothing.

    Raises:
        PlanError: `stream` cannot be iterated, or `length` is not a count.
    """

    _CALL = "from_stream"
    _KIND = "stream"
    _ANEW = "give an object whose __iter__ returns a new iterator that begins anew, or use from_generator with a function that makes one"

    def __init__(self, stream: Iterable[Any], fast_forward: bool = False, length: int | None = None) -> None:
        if not hasattr(stream, "__iter__"):
            raise PlanError(
                f"{stream!r} cannot be iterated",
                where="from_stream()",
                fix="give an object with __iter__; for a function that yields elements use from_generator",
            )
        super().__init__(stream, fast_forward, length)
        self._stream: Any = stream

    def open(self, pass_number: int = 0) -> Iterator[Any]:
        """Start pass `pass_number`.

        Raises:
            SourceError: the stream cannot be read a second time.
        """
        self._tell(pass_number)
        return super().open(pass_number)

    def fingerprint(self) -> dict[str, Any]:
        """Return the type's name, the declared length and that it has no states; the stream is not read."""
        return {**super().fingerprint(), "stateful": False}

    def _iterable(self) -> Any:
        return self._stream

    def _tell(self, pass_number: int) -> None:
        set_epoch = getattr(self._stream, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(pass_number)


class StatefulSource(IterableSource):
    """Serve an iterable that has states.

    `state_dict()` says how far its last `iter` is, behind the element that it gave last; after `load_state_dict(state)` the next `iter`
    goes on there.

    One pass at a time: the state belongs to the object, so two readers would move each other.
    """

    def __init__(self, stream: Iterable[Any], fast_forward: bool = False, length: int | None = None) -> None:
        super().__init__(stream, fast_forward, length)
        self._open_pass: weakref.ref[Any] | None = None
        self._reader = 0
        self._behind_load: Any = None

    def fingerprint(self) -> dict[str, Any]:
        """Return the type's name, the declared length and that it has states; the stream is not read."""
        return {**super().fingerprint(), "stateful": True}

    def state(self) -> Any:
        """Return a copy of the stream's state.

        Raises:
            StateUnavailable: JSON cannot hold it.
        """
        state = self._stream.state_dict()
        try:
            copy = json.loads(json.dumps(state, allow_nan=False))
            if copy == state:
                return copy
            problem = "JSON gives tuples back as lists, and keys as str"
        except (TypeError, ValueError, RecursionError) as error:
            problem = str(error)
        raise StateUnavailable(
            f"state_dict() of {self._name} returned what JSON cannot hold: {problem}",
            where=self.label(),
            fix="let it return dicts with str keys, lists, str, numbers, bool and None; or use fast_forward=True to read and drop elements",
        )

    def open(self, pass_number: int = 0) -> Iterator[Any]:
        """Start pass `pass_number`.

        Raises:
            SourceError: another feed is reading the stream, or it cannot be read a second time.
        """
        self._refuse_two_readers()
        return self._watch(super().open(pass_number), loaded=False)

    def open_at(self, pass_number: int, state: Any) -> Iterator[Any]:
        """Start pass `pass_number` behind the place where `state` was taken.

        Raises:
            SourceError: another feed is reading the stream.
        """
        self._refuse_two_readers()
        self._tell(pass_number)
        try:
            self._stream.load_state_dict(state)
        except BaseException as error:
            add_note(error, f"penstock: while {self.label()} was put back to its saved state")
            raise
        self._gave_elements = True
        return self._watch(iter(self._stream), loaded=True)

    def _watch(self, elements: Iterator[Any], *, loaded: bool) -> Iterator[Any]:
        passed = self._pass(elements, loaded)
        self._open_pass, self._reader = weakref.ref(passed), os.getpid()
        return passed

    def _pass(self, elements: Iterator[Any], loaded: bool) -> Generator[Any, None, None]:
        """Yield a pass. After a load, one that begins where the loaded one did is not a pass but the rest of one."""
        rest = rest_of(elements)
        with closing(rest):
            first = next(rest, _END)
            if first is _END:
                return
            if loaded:
                self._behind_load = self._place()
            elif self._behind_load is not None and self._behind_load == self._place():
                raise SourceError(
                    f"a new pass over {self._name} began where its loaded state was, not at the beginning",
                    where=self.label(),
                    fix="let load_state_dict() act on the next iter() only, or give each feed a new stream object",
                )
            yield first
            yield from rest

    def _place(self) -> Any:
        try:
            return self.state()
        except StateUnavailable:
            return None

    def _refuse_two_readers(self) -> None:
        # A forked process has the stream for itself: who reads it in the parent reads another copy.
        other = self._open_pass() if self._open_pass is not None and self._reader == os.getpid() else None
        if other is not None and other.gi_frame is not None:
            raise SourceError(
                f"another feed is reading {self._name}, and a stream with states has only one place",
                where=self.label(),
                fix="close the other feed first, or give each feed a stream object of its own",
            )
