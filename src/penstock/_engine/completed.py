"""Positions that go on in the order in which they are finished: the place behind each. Pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import overload

from penstock._engine.chunk import IN_ORDER, Chunk, Completed, Place, Step, StreamState, Token
from penstock._order.runs import Run, Runs

__all__ = ["CompletionOrder"]


class CompletionOrder:
    """Gives the items of chunks of the first segment their tokens, in whatever order the chunks come inside a pass."""

    def __init__(self, start: Token) -> None:
        """Begin at a place, and at the beginning of the order."""
        self._pass, position = start.source
        self._done = Runs([(0, position), *start.done.runs])
        self._notes = [] if start.note is None else [start.note]
        self._last = Step(self._pass)
        self.start = start._replace(done=start.done._replace(at=Place(self._last, 0)))

    def put(self, chunk: Chunk) -> None:
        """Take the next chunk, and give it its tokens."""
        if chunk.pass_number != self._pass:
            self._pass, self._done = chunk.pass_number, Runs()
        note = chunk.tokens[0].note if isinstance(chunk.tokens, Sequence) and chunk.num_items and chunk.tokens else None
        if isinstance(note, StreamState):
            insort(self._notes, note, key=_place_of)
        count = chunk.num_items
        if count:
            step = Step(chunk.pass_number, chunk.first, chunk.first + count)
            self._last.following = self._last = step
        chunk.tokens = Tokens(chunk.pass_number, self._done.without(()), self._last, count, tuple(self._notes))
        self._done.add(chunk.first, chunk.first + count)
        while len(self._notes) > 1 and _place_of(self._notes[1]) <= (self._pass, self._done.gap(0, 2**63 - 1)[0]):
            del self._notes[0]
        if chunk.ends_pass:
            after = None if chunk.pass_token is None else chunk.pass_token.note
            at = Place(self._last, self._last.end - self._last.begin)
            chunk.pass_token = Token((chunk.pass_number + 1, 0), done=Completed(at=at), note=after)


class Tokens(Sequence[Token]):
    """The places behind items that went on one after the other, each made when it is asked for."""

    __slots__ = ("_before", "_notes", "_num_items", "_pass", "_step")

    def __init__(self, pass_number: int, before: tuple[Run, ...], step: Step, num_items: int, notes: tuple[StreamState, ...]) -> None:
        """Prepare for so many items of a step; `before` was done before."""
        self._pass, self._before, self._step, self._num_items, self._notes = pass_number, before, step, num_items, notes

    def __len__(self) -> int:
        """Return how many items there are."""
        return self._num_items

    @overload
    def __getitem__(self, number: int) -> Token: ...
    @overload
    def __getitem__(self, number: slice) -> list[Token]: ...
    def __getitem__(self, number: int | slice) -> Token | list[Token]:
        """Return the place behind an item."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if not -self._num_items <= number < self._num_items:
            raise IndexError(number)
        count = number % self._num_items + 1
        done = Runs(self._before)
        done.add(self._step.begin, self._step.begin + count)
        runs = done.without(())
        watermark = runs[0][1] if runs[0][0] == 0 else 0
        source = self._pass, watermark
        note = next((note for note in reversed(self._notes) if _place_of(note) <= source), None)
        at = Place(self._step, count)
        return Token(source, done=IN_ORDER._replace(runs=runs[1:] if watermark else runs, at=at), note=note)


def _place_of(note: StreamState) -> tuple[int, int]:
    return note.pass_number, note.position
