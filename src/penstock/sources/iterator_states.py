"""Iterables whose iterators, not they themselves, say where they are: those of Grain."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.errors import SourceError
from penstock.sources.generator import rest_of

__all__ = ["IteratorStates", "has_iterator_states"]

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
        return None if self._last is None else _encoded(self._last.get_state())

    def load_state_dict(self, state: Any) -> None:
        """Let the next `iter` begin where `state` was taken."""
        self._loaded = state


def _closed_at_end(elements: Any) -> Iterator[Any]:
    """Give what an iterator gives, and close it then or when this is closed: it may hold threads."""
    try:
        yield from rest_of(elements)
    finally:  # when this is closed it comes twice, as Python has it; an end or an error closes nothing by itself
        close = getattr(elements, "close", None)
        if callable(close):
            close()


def _encoded(state: Any) -> Any:
    return {_BYTES: base64.b64encode(state).decode()} if isinstance(state, bytes) else state


def _decoded(state: Any) -> Any:
    if not isinstance(state, dict) or list(state) != [_BYTES]:
        return state
    try:
        return base64.b64decode(state[_BYTES], validate=True)
    except (ValueError, TypeError) as error:
        raise SourceError(
            f"a state is no base64: {error}", where="from_stream", fix="load a state that was saved from this dataset"
        ) from error
