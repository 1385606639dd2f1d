"""Streams: what a generator function or an iterable gives, pass after pass; an iterable with states of its own is put back to them."""

from __future__ import annotations

import base64
import json
import os
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

from penstock._system.failing import add_note
from penstock.errors import PlanError, SourceError, StateUnavailable

_END = object()


class GeneratorSource:
    """Serve what a callable's iterable yields; every pass calls it again.

    Args:
        fn: a callable without arguments that returns a new iterable (a generator function, most of the time); or an iterable that
            can be iterated again; or an iterator, which serves one pass.
        fast_forward: whether a resume may read and drop elements to get back to its place.
        length: the number of elements of every pass, checked by the engine; None promises nothing.

    Raises:
        PlanError: `fn` is none of these, or `length` is not a count.
    """

    _CALL = "from_generator"
    _KIND = "generator"
    _ANEW = "give a function that makes a new iterator on every call, such as `def rows(): yield ...`, and pass `rows`, not `rows()`"

    def __init__(self, fn: Callable[[], Iterable[Any]] | Iterable[Any], fast_forward: bool = False, length: int | None = None) -> None:
        name = getattr(fn, "__qualname__", None)
        self._name = name if isinstance(name, str) else type(fn).__qualname__
        if not callable(fn) and not hasattr(fn, "__iter__"):
            raise PlanError(
                f"{self._name!r} is neither callable nor iterable",
                where="from_generator",
                fix="give a function without arguments that yields elements",
            )
        if length is not None and (type(length) is not int or length < 0):
            raise PlanError(f"length={length!r} is not a count", where=f"{self._CALL}({self._name})", fix="give an int >= 0 or None")
        self._fn = fn
        self._fast_forward = bool(fast_forward)
        self._length = length
        self._last: Callable[[], Any] | None = None
        self._num_passes = 0
        self._gave_elements = False

    def open(self, pass_number: int = 0) -> Iterator[Any]:
        """Start a new pass; the iterator may be closed at any time, which closes the user's generator.

        Raises:
            SourceError: the stream cannot be read a second time, or the callable did not return an iterable.
        """
        self._num_passes += 1
        iterable = self._iterable()
        iterator = self._as_iterator(iterable)
        if iterator is iterable:
            if self._last is not None and self._last() is iterator:
                raise self._one_shot(f"this pass got the {type(iterator).__name__} of the one before", self._num_passes)
            self._last = _reference(iterator)
        return self._one_pass(iterator, self._num_passes)

    def _iterable(self) -> Any:
        return self._fn() if callable(self._fn) else self._fn

    def _one_pass(self, iterator: Iterator[Any], number: int) -> Generator[Any, None, None]:
        """Yield a pass; a pass without elements after one that had some is a used-up iterator behind a new wrapper."""
        with closing(rest_of(iterator)) as rest:
            first = next(rest, _END)
            if first is _END:
                if self._gave_elements:
                    raise self._one_shot("this pass gave no elements where an earlier one did", number)
                return
            self._gave_elements = True
            yield first
            yield from rest

    def _as_iterator(self, iterable: Any) -> Iterator[Any]:
        if not hasattr(iterable, "__iter__"):
            hint = "an async generator cannot be read here; " if hasattr(iterable, "__aiter__") else ""
            raise SourceError(
                f"{self._name} returned a {type(iterable).__name__}, not an iterable",
                where=f"from_generator({self._name})",
                fix=f"{hint}let it yield elements, or return a list or an iterator",
            )
        return iter(iterable)

    def _one_shot(self, what: str, number: int) -> SourceError:
        return SourceError(
            f"{self._name} can be read only once: {what}",
            where=f"{self._CALL}({self._name}), pass {number}",
            fix=self._ANEW,
        )

    def held(self) -> Any:
        """Return the function, or the iterable, that it was made of."""
        return self._fn

    users_object = property(held)
    """The same: what a read of it runs."""

    def declared_length(self) -> int | None:
        """Return `length` as given."""
        return self._length

    def can_fast_forward(self) -> bool:
        """Return `fast_forward` as given."""
        return self._fast_forward

    def describe(self, index: int) -> str:
        """Name the element."""
        return f"element {index} of {self._KIND} {self._name}"

    def fingerprint(self) -> dict[str, Any]:
        """Return the name and the declared length; the stream is not read."""
        return {"kind": self._KIND, "name": self._name, "length": self._length}

    def label(self) -> str:
        """Return the call with the name and, where declared, the number of elements."""
        return f"{self._CALL}({self._name}{'' if self._length is None else f', {self._length} elements'})"


def rest_of(iterator: Iterator[Any]) -> Generator[Any, None, None]:
    """Give what an iterator still has; closing this closes it, if it can be closed.

    As `yield from`, without its `iter`: an iterator may begin again when it is asked for one.
    """
    try:
        while (element := next(iterator, _END)) is not _END:
            yield element
    except GeneratorExit:
        getattr(iterator, "close", int)()
        raise


def _reference(iterator: Any) -> Callable[[], Any]:
    """Refer to an iterator without keeping an abandoned one (and its open files) alive, where it allows that."""
    try:
        return weakref.ref(iterator)
    except TypeError:
        return lambda: iterator


# -- iterables: every pass is `iter` of one ---------------------------------------------------------------------------------------


def stream_source(stream: Any, fast_forward: bool = False, length: int | None = None) -> IterableSource:
    """Return a source over an iterable: one that keeps its states if it has any.

    Raises:
        PlanError: `stream` cannot be iterated, or `length` is not a count.
    """
    if has_iterator_states(stream):
        stream = IteratorStates(stream)
    has_states = _takes(stream, "state_dict") and _takes(stream, "load_state_dict", {})
    return (StatefulSource if has_states else IterableSource)(stream, fast_forward, length)


def _takes(stream: Any, name: str, *arguments: Any) -> bool:
    """Tell whether it has a method of this name that can be called like that: MosaicML Streaming's state_dict wants other arguments."""
    from inspect import signature  # 5 ms to import

    method = getattr(stream, name, None)
    try:
        return callable(method) and signature(method).bind(*arguments) is not None
    except TypeError:
        return False
    except ValueError:  # one in C that does not say
        return True


class IterableSource(GeneratorSource):
    """Serve what an iterable gives. One with `set_epoch` is given the number of each pass before the pass begins.

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
        if _takes(self._stream, "set_epoch", pass_number):
            self._stream.set_epoch(pass_number)


class StatefulSource(IterableSource):
    """Serve an iterable that has states.

    `state_dict()` says how far its last `iter` is, behind the element that it gave last; after `load_state_dict(state)` the next `iter`
    goes on there.

    One pass at a time: the state belongs to the object, so two readers would move each other.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
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


# -- iterables whose iterators have the states ------------------------------------------------------------------------------------

_BYTES = "base64"


def has_iterator_states(stream: Any) -> bool:
    """Tell whether `iter(stream)` has get_state() and set_state(), without calling it: it may start workers.

    Known by name: a grain.IterDataset or grain.DataLoader.
    """
    return any(
        kind.__name__ in ("IterDataset", "DataLoader") and kind.__module__.partition(".")[0] == "grain" for kind in type(stream).__mro__
    )


class IteratorStates:
    """Give an iterable the states of its iterators: state_dict() of the last one, load_state_dict() for the next.

    Iterating, saving and loading must happen in one thread at a time.
    """

    def __init__(self, stream: Iterable[Any]) -> None:
        self._stream = stream
        self._last: Any = None
        self._loaded: Any = None
        self.__qualname__ = type(stream).__qualname__  # what labels and saved states name

    def __iter__(self) -> Iterator[Any]:
        state, self._loaded = self._loaded, None
        self._last = iter(self._stream)
        if state is not None:
            self._last.set_state(_decoded(state))
        return _closed_at_end(self._last)

    def state_dict(self) -> Any:
        """Return where the last iterator is: behind the element that it gave last."""
        state = None if self._last is None else self._last.get_state()
        return {_BYTES: base64.b64encode(state).decode()} if isinstance(state, bytes) else state

    def load_state_dict(self, state: Any) -> None:
        """Let the next `iter` begin where `state` was taken."""
        self._loaded = state


def _closed_at_end(elements: Any) -> Iterator[Any]:
    """Give what an iterator gives, and close it then or when this is closed: it may hold threads."""
    try:
        yield from rest_of(elements)
    finally:  # when this is closed it comes twice, as Python has it; an end or an error closes nothing by itself
        getattr(elements, "close", int)()


def _decoded(state: Any) -> Any:
    if not isinstance(state, dict) or list(state) != [_BYTES]:
        return state
    try:
        return base64.b64decode(state[_BYTES], validate=True)
    except (ValueError, TypeError) as error:
        raise SourceError(
            f"a state is no base64: {error}", where="from_stream", fix="load a state that was saved from this dataset"
        ) from error
