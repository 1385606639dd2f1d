"""What each operator of a Dataset means, in plain Python: written from docs/operators.md, policies.md, guide.md and errors.md alone.

An element is a `Cell` that is computed when its value is asked for: so an element that is never delivered never fails. A node either has
positions (`size`, `cell`), or gives its cells one after the other (`stream`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import numpy as np
from _order.references import bucketing, concatenating, drawing, first_fitting, group_shuffled, resampling
from laws.joined import Unfit, padded
from laws.turns import Weights, interleaved_turns, mix_turns

import penstock as ps
from penstock._order.arithmetic import shuffled, window_shuffled

INFINITE = math.inf
MOST_REPLACEMENTS = 100
NO_ELEMENT = "a whole pass of an endless repeat() gave no element"
_BUDGET = 6000  # elements that one plan may read: what needs more searches for ever
_MOST_GONE = 300  # in a row: longer than nearly all passes of these plans


class Lost(Exception):
    """An element that has no value."""

    def __init__(self, *errors: BaseException) -> None:
        super().__init__(*errors)
        self.errors = errors


class Failing(Lost):
    """Its error is raised. Where several parts of an element fail, it may be the error of each."""


class Left(Lost):
    """It is left out."""


class Wanted(Lost):
    """Another one must come in its place."""


class Undetermined(Exception):
    """The docs do not say what this plan delivers."""


class Endless(Exception):
    """The plan searches for ever, as plain Python would."""


class Cell:
    """An element, computed when its value is asked for, once."""

    __slots__ = ("_compute", "_found", "_present")

    def __init__(self, compute: Callable[[], Any], present: Callable[[], bool] | bool = True) -> None:
        self._compute, self._present = compute, present  # True: always there; False: known when it is computed
        self._found: tuple[Any, Lost | None] | None = None

    def get(self) -> Any:
        if self._found is None:
            try:
                self._found = self._compute(), None
            except Lost as lost:
                self._found = None, lost
        value, lost = self._found
        if lost is not None:
            raise lost.with_traceback(None)
        return value

    def present(self) -> bool:
        """Tell whether it is there; computes no more than that takes."""
        return self._present() if callable(self._present) else self._present or self.there()

    def there(self) -> bool:
        """Tell whether it is there once it is computed: one that fails is, until its value is asked for."""
        try:
            self.get()
        except Left:
            return False
        except Failing:
            pass
        return True


def constant(value: Any) -> Cell:
    return Cell(lambda: value)


@dataclass
class Run:
    """A feed's policies, and what it counts."""

    on_error: Any = field(default_factory=ps.Raise)
    steps: bool = False
    num_skipped: int = 0
    num_replaced: int = 0
    num_read: int = 0
    stood_in: bool = False
    trying: bool = False  # one that may stand in for another
    passes: dict[int, int] = field(default_factory=dict)  # that an endless repeat of a stream has begun

    def spend(self) -> None:
        self.num_read += 1
        if self.num_read > _BUDGET:
            raise Endless


@dataclass(frozen=True)
class Where:
    """Whose run it is."""

    run: Run


def may(policy: Any, what: type) -> bool:
    while isinstance(policy, ps.Retry):
        policy = policy.then
    return isinstance(policy, what)


def verdict(policy: Any, error: Exception) -> str:
    """Say what becomes of an element that fails however often it is tried."""
    while isinstance(policy, ps.Retry):
        policy = policy.then
    if isinstance(policy, (ps.Skip, ps.Replace)) and isinstance(error, policy.errors):
        return "skip" if isinstance(policy, ps.Skip) else "replace"
    return "raise"


class Node:
    """A dataset."""

    indexable = True  # as the library sees it: no fold stands below
    batched = False  # a batch or window stands below

    def __init__(self, *kids: Node) -> None:
        self.kids = kids
        self.indexable = all(kid.indexable for kid in kids)
        self.batched = any(kid.batched for kid in kids)

    @property
    def kid(self) -> Node:
        return self.kids[0]

    def size(self) -> Any:
        return self.kid.size()

    def holes(self, where: Where) -> bool:
        """Tell whether elements may be missing at their positions."""
        return any(kid.holes(where) for kid in self.kids)

    def positional(self, where: Where) -> bool:
        return self.kid.positional(where)

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        raise NotImplementedError

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        """Give the cells of one pass where they have no positions."""
        raise NotImplementedError

    def stream(self, where: Where, epoch: int) -> Iterator[Cell]:
        if not self.positional(where):
            yield from self.flow(where, epoch)
            return
        size, place, gone, holes = self.size(), 0, 0, self.holes(where)
        while place < size:
            where.run.spend()
            cell = standing(self, where, epoch, place)
            place += 1
            if holes and not cell.present():
                if where.run.steps:
                    raise Failing(ps.errors.TooManySkipped("", where="", fix=""))
                gone += 1
                if size == INFINITE and gone > _MOST_GONE:
                    raise nothing_left()
                continue
            gone = 0
            cell.get()  # what fails is raised where it stands, whatever stands behind it
            yield cell

    def walk(self) -> Iterator[Node]:
        yield self
        for kid in self.kids:
            yield from kid.walk()


def nothing_left() -> Failing:
    return Failing(ps.errors.SourceError(NO_ELEMENT, where="", fix=""))


def goes_on_for_ever(node: Node) -> bool:
    """Tell whether an endless repeat stands below, with no take above it."""
    if isinstance(node, Take):
        return False
    return (isinstance(node, Repeat) and node.count is None) or any(map(goes_on_for_ever, node.kids))


def standing(node: Node, where: Where, epoch: int, place: int, *, inside: bool = False) -> Cell:
    """Return the element at a place of this order, or the next one that can be computed where one is wanted in its place."""
    own = node.cell(where, epoch, place)

    def compute() -> Any:
        try:
            return own.get()
        except Wanted as lost:
            size, errors = node.size(), list(lost.errors)
            for distance in range(1, 1 + int(min(MOST_REPLACEMENTS, size - 1))):
                where.run.spend()
                other = place + distance
                tried, where.run.trying = where.run.trying, True
                try:
                    value = node.cell(where, epoch, other if size == INFINITE else other % size).get()
                except Lost as also:
                    errors += also.errors
                    continue
                finally:
                    where.run.trying = tried
                where.run.num_replaced += 1
                where.run.stood_in = where.run.stood_in or not inside
                return value
            raise Failing(*errors) from None

    def present() -> bool:
        try:
            return own.present()
        except Wanted:
            return cell.there()

    cell = Cell(compute, present if node.holes(where) else True)
    return cell


# -- sources ----------------------------------------------------------------------------------------------------------------------


class Source(Node):
    """Rows at positions, some of which cannot be read."""

    def __init__(self, rows: list[Any], bad: frozenset[int] = frozenset()) -> None:
        super().__init__()
        self.rows, self.bad = rows, bad

    def size(self) -> Any:
        return len(self.rows)

    def holes(self, where: Where) -> bool:
        return bool(self.bad) and may(where.run.on_error, ps.Skip)

    def positional(self, where: Where) -> bool:
        return True

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        def read() -> Any:
            if place not in self.bad:
                return self.rows[place]
            error = OSError(f"row {place}")
            raise outcome(verdict(where.run.on_error, error), where, error)

        return Cell(read, present=False)


def outcome(action: str, where: Where, error: BaseException) -> Lost:
    if action == "raise":
        return Failing(error)
    if action == "skip":
        where.run.num_skipped += not where.run.trying
        return Left(error)
    return Wanted(error)


class Generator(Node):
    """Rows one after the other; `fails` instead of giving the row of that number."""

    def __init__(self, rows: list[Any], fails: int | None = None) -> None:
        super().__init__()
        self.rows, self.fails, self.indexable = rows, fails, False

    def positional(self, where: Where) -> bool:
        return False

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        for place, row in enumerate(self.rows):
            where.run.spend()
            if place == self.fails:
                raise Failing(OSError(f"row {place}"))
            yield constant(row)


# -- one element of one -----------------------------------------------------------------------------------------------------------


class Map(Node):
    """A function of each element, with its policy."""

    def __init__(
        self, kid: Node, fn: Callable[[Any], Any], policy: Any = None, *, fails: bool = False, apart: bool = False, draws: bool = False
    ) -> None:
        super().__init__(kid)
        self.fn, self.policy, self.fails, self.draws = fn, policy, fails, draws  # `draws` random numbers, that no other function sees
        self.apart = apart or any(isinstance(one, Map) and one.apart for one in kid.walk())  # in another stage than what is below

    def _policy(self, where: Where) -> Any:
        return where.run.on_error if self.policy is None else self.policy

    def _skips(self, where: Where) -> bool:
        return self.fails and may(self._policy(where), ps.Skip)

    def holes(self, where: Where) -> bool:
        return self._skips(where) or self.kid.holes(where)

    def positional(self, where: Where) -> bool:
        return self.kid.positional(where)

    def _run(self, where: Where, child: Cell, *, placed: bool) -> Cell:
        def compute() -> Any:
            value = child.get()
            try:
                return self.fn(value)
            except Exception as error:
                action = verdict(self._policy(where), error)
                if self.apart and where.run.trying:  # policies.md: it is an element like others there, however it came to its place
                    raise Undetermined("what becomes of one that stands in and fails in a later stage") from None
                if not placed and where.run.stood_in:
                    raise Undetermined("whether what stands in for another one must get through the folds as well") from None
                if action == "replace" and placed and self.kid.batched and self.policy is None:
                    action = "raise"  # a feed's Replace behind a batch
                if action == "replace" and not (placed and not self.kid.batched):
                    raise Undetermined("another element where none has a position") from None
                raise outcome(action, where, error) from None

        return Cell(compute, False if self._skips(where) else child.present)

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        return self._run(where, self.kid.cell(where, epoch, place), placed=True)

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        gone = 0
        for child in self.kid.stream(where, epoch):
            where.run.spend()
            cell = self._run(where, child, placed=False)
            if self._skips(where) and not cell.present():
                gone += 1
                if gone > _MOST_GONE and goes_on_for_ever(self.kid):
                    if any(isinstance(node, Map) and node.draws for node in self.walk()):
                        raise Endless  # in the next pass another function may leave something
                    raise nothing_left()
                continue
            gone = 0
            cell.get()
            yield cell


class Enumerate(Node):
    def __init__(self, kid: Node, start: int) -> None:
        super().__init__(kid)
        self.start = start

    def _numbered(self, number: int, child: Cell) -> Cell:
        return Cell(lambda: (number, child.get()), child.present)

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        return self._numbered(self.start + place, self.kid.cell(where, epoch, place))

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        for number, child in enumerate(self.kid.stream(where, epoch), self.start):
            child.get()
            yield self._numbered(number, child)


class Cache(Node):
    def __init__(self, kid: Node) -> None:
        super().__init__(kid)
        self.batched = False

    def positional(self, where: Where) -> bool:
        return True

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        return self.kid.cell(where, 0, place)


class Prefetch(Node):
    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        return self.kid.cell(where, epoch, place)

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        yield from self.kid.stream(where, epoch)


# -- which one comes when ---------------------------------------------------------------------------------------------------------


class Take(Node):
    def __init__(self, kid: Node, count: int) -> None:
        super().__init__(kid)
        self.count = count

    def size(self) -> Any:
        return min(self.count, self.kid.size())

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        return self.kid.cell(where, epoch, place)

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        yield from islice(self.kid.stream(where, epoch), self.count)


class Skip(Node):
    def __init__(self, kid: Node, count: int) -> None:
        super().__init__(kid)
        self.count = count

    def size(self) -> Any:
        return max(0, self.kid.size() - self.count)

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        return self.kid.cell(where, epoch, place + self.count)

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        yield from islice(self.kid.stream(where, epoch), self.count, None)


class Shard(Node):
    def __init__(self, kid: Node, num_shards: int, index: int) -> None:
        super().__init__(kid)
        self.num_shards, self.index = num_shards, index

    def size(self) -> Any:
        size = self.kid.size()
        return size if size == INFINITE else len(range(self.index, size, self.num_shards))

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        return self.kid.cell(where, epoch, place * self.num_shards + self.index)

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        yield from islice(self.kid.stream(where, epoch), self.index, None, self.num_shards)


class Repeat(Node):
    def __init__(self, kid: Node, count: int | None) -> None:
        super().__init__(kid)
        self.count = count

    def size(self) -> Any:
        size = self.kid.size()
        return size if size in (0, INFINITE) else INFINITE if self.count is None else size * self.count

    def _epoch(self, epoch: int, number: int) -> int:
        return epoch + number if self.count is None else epoch * self.count + number

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        size = self.kid.size()
        number, inner = (0, place) if size == INFINITE else divmod(place, size)
        return self.kid.cell(where, self._epoch(epoch, number), inner)

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        if self.kid.indexable and self.kid.size() == 0:  # known without reading: it stays empty
            return
        for number in count() if self.count is None else range(self.count):
            below = self._epoch(epoch, number)
            if self.count is None:  # one that begins again goes on counting
                below = where.run.passes.get(id(self), 0)
                where.run.passes[id(self)] = below + 1
            empty = True
            where.run.spend()
            for cell in self.kid.stream(where, below):
                empty = False
                yield cell
            if empty and self.count is None:
                raise nothing_left()


class Shuffle(Node):
    """A permutation of positions; `groups` are those of the source, where the window is of groups."""

    def __init__(self, kid: Node, window: int | None, seed: int, again: bool = True, groups: list[int] | None = None) -> None:
        super().__init__(kid)
        self.window, self.seed, self.again, self.groups = window, seed, again, groups
        self._orders: dict[int, list[int]] = {}

    def _order(self, epoch: int) -> list[int]:
        size = self.size()
        if self.groups is not None:
            rows = [[row for row in range(size) if self.groups[row] == group] for group in sorted(set(self.groups))]
            return group_shuffled(rows, self.window or 1, self.seed, epoch if self.again else 0)
        epochs, places = np.full(size, epoch, np.int64), np.arange(size, dtype=np.int64)
        if self.window is None:
            return list(shuffled(epochs, places, size, seed=self.seed, reshuffle=self.again).tolist())
        return list(window_shuffled(epochs, places, size, self.window, seed=self.seed, reshuffle=self.again).tolist())

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        if epoch not in self._orders:
            self._orders[epoch] = self._order(epoch)
        return self.kid.cell(where, epoch, self._orders[epoch][place])

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        raise Undetermined("a shuffle of batches that depend on what is skipped")
        yield


class Buffer(Node):
    """A shuffle of what has no positions."""

    def __init__(self, kid: Node, size: int, seed: int, again: bool = True) -> None:
        super().__init__(kid)
        self.held, self.seed, self.again = size, seed, again

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        # Bytes count in the buffer: so an element is computed when it is read, and fails there.
        values = ((cell.get(), 0) for cell in self.kid.stream(where, epoch))
        for value in drawing(values, epoch if self.again else 0, self.held, 1, self.seed):
            yield constant(value)


# -- several datasets -------------------------------------------------------------------------------------------------------------


class Several(Node):
    """Takes elements of several datasets by their positions. What comes out has positions too, batch or not."""

    def __init__(self, *kids: Node) -> None:
        super().__init__(*kids)
        self.batched = False

    def positional(self, where: Where) -> bool:
        return True


class Concatenate(Several):
    def size(self) -> Any:
        return sum(kid.size() for kid in self.kids)

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        for kid in self.kids:
            if place < kid.size():
                return kid.cell(where, epoch, place)
            place -= kid.size()
        raise IndexError(place)


class Zip(Several):
    def size(self) -> Any:
        return min(kid.size() for kid in self.kids)

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        parts = [kid.cell(where, epoch, place) for kid in self.kids]

        def compute() -> Any:
            values, lost = [], []
            for part in parts:
                try:
                    values.append(part.get())
                except Lost as one:
                    lost.append(one)
            if len({type(one) for one in lost}) > 1:
                raise Undetermined("parts of one element fail in several ways")
            if lost:
                raise type(lost[0])(*[error for one in lost for error in one.errors])
            return tuple(values)

        return Cell(compute, not self.holes(where))


class Members(Several):
    """Elements of several datasets in turn: `turns` lists (member, its epoch in pass e, place)."""

    def __init__(self, kids: list[Node], turns: list[tuple[int, Callable[[int], int], int]]) -> None:
        super().__init__(*kids)
        self.turns = turns

    def size(self) -> Any:
        return len(self.turns)

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        member, below, inner = self.turns[place]
        return self.kids[member].cell(where, below(epoch), inner)


def mixed(kids: list[Node], weights: Weights, stop: str) -> Members:
    return Members(kids, [(turn.child, turn.epoch, turn.place) for turn in mix_turns(weights, [kid.size() for kid in kids], stop)])


def interleaved(kids: list[Node], cycle: int, block: int) -> Members:
    return Members(kids, [(child, lambda e: e, place) for child, place in interleaved_turns([kid.size() for kid in kids], cycle, block)])


# -- one element of several -------------------------------------------------------------------------------------------------------


class Batch(Node):
    """Groups of `count` at every `shift`, `stride` apart: batches of all kinds, and windows."""

    batched = True

    def __init__(
        self, kid: Node, make: Callable[[list[Any]], Any], count: int, drop: bool, shift: int | None = None, stride: int = 1
    ) -> None:
        super().__init__(kid)
        self.make, self.count, self.drop, self.shift, self.stride = make, count, drop, shift or count, stride
        self.gathers = shift is not None  # a window is made where it stands; a batch when the next operator asks for it
        self.batched = True

    def _places(self, number: int, size: Any) -> list[int]:
        places = [number * self.shift + self.stride * one for one in range(self.count)]
        return [place for place in places if place < size]

    def size(self) -> Any:
        size = self.kid.size()
        if size == INFINITE:
            return size
        number = 0
        while number * self.shift < size and not (self.drop and len(self._places(number, size)) < self.count):
            number += 1
        return number

    def _made(self, rows: list[Cell]) -> Cell:
        def compute() -> Any:
            values, errors, left = [], [], []
            for row in rows:
                try:
                    values.append(row.get())
                except Failing as failing:
                    errors += failing.errors
                except Left as one:
                    left += one.errors
            if errors:
                raise Failing(*errors)
            if rows and not values:
                raise Left(*left)
            try:
                return self.make(values)
            except Unfit:
                raise Failing(ps.errors.SpecError("", where="", fix="")) from None

        return Cell(compute, present=False)

    def cell(self, where: Where, epoch: int, place: int) -> Cell:
        places = self._places(place, self.kid.size())
        return self._made([standing(self.kid, where, epoch, one, inside=True) for one in places])

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        cells: dict[int, Cell] = {}
        number = size = 0
        last = (self.count - 1) * self.stride
        below = self.kid.stream(where, epoch)
        while True:
            cell = next(below, None)
            if cell is None:
                break
            cell.get()
            cells[size] = cell
            size += 1
            if number * self.shift + last < size:
                yield self._group(cells, number, size)
                number += 1
        while number * self.shift < size and not self.drop:
            yield self._group(cells, number, size)
            number += 1

    def _group(self, cells: dict[int, Cell], number: int, size: int) -> Cell:
        cell = self._made([cells[place] for place in self._places(number, size)])
        if self.gathers:
            cell.get()
        return cell


# -- folds ------------------------------------------------------------------------------------------------------------------------


class Fold(Node):
    """Asks a function about each element, and looks at all of them in their order."""

    def __init__(self, kid: Node, fn: Callable[[Any], Any], policy: Any = None, *, fails: bool = False) -> None:
        super().__init__(kid)
        self.indexable = False
        self.asked = Map(kid, lambda value: (value, fn(value)), policy, fails=fails)

    def positional(self, where: Where) -> bool:
        return False

    def holes(self, where: Where) -> bool:
        return False

    def pairs(self, where: Where, epoch: int) -> Iterator[tuple[Any, Any]]:
        for cell in self.asked.stream(where, epoch):
            yield cell.get()

    def values(self, pairs: Iterable[tuple[Any, Any]], epoch: int) -> Iterator[Any]:
        raise NotImplementedError

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        yield from map(constant, self.values(self.pairs(where, epoch), epoch))


class Filter(Fold):
    def values(self, pairs: Iterable[tuple[Any, Any]], epoch: int) -> Iterator[Any]:
        return (value for value, keep in pairs if keep)


class FlatMap(Fold):
    def values(self, pairs: Iterable[tuple[Any, Any]], epoch: int) -> Iterator[Any]:
        return (one for _, several in pairs for one in several)


class Bucket(Fold):
    def __init__(self, kid: Node, fn: Callable[[Any], int], bounds: tuple[int, ...], sizes: tuple[int, ...], drop: bool) -> None:
        super().__init__(kid, fn)
        self.bounds, self.sizes, self.drop, self.batched = bounds, sizes, drop, True

    def flow(self, where: Where, epoch: int) -> Iterator[Cell]:
        for group in bucketing(self.pairs(where, epoch), self.bounds, self.sizes, self.drop):
            yield Batch(self.kid, padded(0), 1, False)._made([constant(value) for value in group])


class Resample(Fold):
    def __init__(self, kid: Node, fn: Callable[[Any], int], target: list[float], initial: list[float] | None, seed: int) -> None:
        super().__init__(kid, fn)
        self.target, self.initial, self.seed = target, initial, seed

    def values(self, pairs: Iterable[tuple[Any, Any]], epoch: int) -> Iterator[Any]:
        return resampling(pairs, self.target, self.initial, self.seed, epoch)


class Pack(Fold):
    """Rows of sequences: arrays of one dimension."""

    def __init__(self, kid: Node, length: int, num_bins: int | None) -> None:
        super().__init__(kid, len)
        self.length, self.num_bins = length, num_bins

    def values(self, pairs: Iterable[tuple[Any, Any]], epoch: int) -> Iterator[Any]:
        sequences: list[Any] = []

        def numbered() -> Iterator[tuple[int, int]]:
            for value, size in pairs:
                sequences.append(value)
                yield len(sequences) - 1, size

        if self.num_bins is None:
            yield from (self._row(sequences, group) for group in concatenating(numbered(), self.length))
            return
        for numbers in first_fitting(numbered(), self.length, self.num_bins):
            yield self._row(sequences, [(number, 0, len(sequences[number])) for number in numbers])

    def _row(self, sequences: list[Any], group: list[tuple[int, int, int]]) -> dict[str, Any]:
        row = {name: np.zeros(self.length, np.int32) for name in ("tokens", "segment_ids", "positions")}
        start = 0
        for segment, (number, begin, end) in enumerate(group, 1):
            part = slice(start, start + end - begin)
            row["tokens"][part], row["segment_ids"][part] = sequences[number][begin:end], segment
            row["positions"][part] = np.arange(end - begin)
            start += end - begin
        return row


# -- a whole run ------------------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run delivers, what it raises behind that (each of `errors` will do), and what it counts."""

    items: list[Any]
    errors: tuple[BaseException, ...] = ()
    num_skipped: int = 0
    num_replaced: int = 0
    ended: bool = True


def outcome_of(root: Node, on_error: Any, most: int) -> Outcome:
    """Run a plan up to `most` elements.

    Raises:
        Undetermined, Endless: there is nothing to compare with.
    """
    run = Run(on_error)
    run.steps = root.indexable and any(isinstance(node, Shard) for node in root.walk())
    where = Where(run)
    out = Outcome([])
    cells = root.stream(where, 0)
    try:
        while len(out.items) < most:
            cell = next(cells, None)
            if cell is None:
                break
            out.items.append(cell.get())
        else:
            out.ended = False
    except Failing as failing:
        out.errors = failing.errors
    out.num_skipped, out.num_replaced = run.num_skipped, run.num_replaced
    return out
