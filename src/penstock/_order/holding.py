"""Folds that hold items between inputs: buckets, packs, shuffle buffers, windows. Their saved states hold numbers of items, never items."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from reprlib import repr as short
from typing import Any, NamedTuple

from penstock import kernels
from penstock._order.chain import BufferedElement, HoldingFold
from penstock._system.lazy import dataclass
from penstock.errors import StateDamaged

__all__ = [
    "BucketFold",
    "BudgetFold",
    "ConcatenateFold",
    "Group",
    "PackFold",
    "ShuffleBufferFold",
    "WindowFold",
    "budget_batches",
    "damaged",
]

Weight = Callable[[BufferedElement], Any]
Items = list[BufferedElement]
Find = Callable[[int], BufferedElement]
Numbers = Mapping[int, int]


class Group(NamedTuple):
    """Items that become one element, and how they lie in it."""

    items: Items
    layout: Any


@dataclass(frozen=True, slots=True)
class BucketFold(HoldingFold):
    """Lists of `batch_sizes[b]` items of bucket b: the number of `boundaries` that an item's length has reached. State: the buckets.

    At the end of a pass what is left comes out bucket by bucket.
    """

    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    drop_remainder: bool
    weight: Weight

    def initial(self, pass_number: int = 0) -> list[Items]:
        return [[] for _ in self.batch_sizes]

    def push(self, state: list[Items], item: BufferedElement) -> tuple[list[Items], Sequence[Items]]:
        number = bisect_right(self.boundaries, self.weight(item))
        bucket = state[number]
        bucket.append(item)
        if len(bucket) < self.batch_sizes[number]:
            return state, ()
        state[number] = []
        return state, (bucket,)

    def end(self, state: list[Items]) -> tuple[list[Items], Sequence[Items], bool]:
        return self.initial(), [] if self.drop_remainder else [bucket for bucket in state if bucket], True

    def held(self, state: list[Items]) -> Sequence[BufferedElement]:
        return [item for bucket in state for item in bucket]

    def save(self, state: list[Items], numbers: Numbers) -> list[list[int]]:
        return [_numbers(bucket, numbers) for bucket in state]

    def numbers(self, saved: list[list[int]]) -> Sequence[int]:
        if len(saved) != len(self.batch_sizes):
            raise damaged(f"fold state has {len(saved)} buckets instead of {len(self.batch_sizes)}")
        return _whole(chain.from_iterable(saved))

    def load(self, saved: list[list[int]], found: Find) -> list[Items]:
        return [[found(number) for number in bucket] for bucket in saved]


@dataclass(frozen=True, slots=True)
class BudgetFold(HoldingFold):
    """Lists of the items of a pool of `pool`, as `budget_batches` has them. State: the items of the open pool."""

    most: int
    pool: int
    multiple: int
    weight: Weight

    def initial(self, pass_number: int = 0) -> Items:
        return []

    def push(self, state: Items, item: BufferedElement) -> tuple[Items, Sequence[Items]]:
        state.append(item)
        return (state, ()) if len(state) < self.pool else ([], self._batches(state))

    def end(self, state: Items) -> tuple[Items, Sequence[Items], bool]:
        return [], self._batches(state), True

    def _batches(self, state: Items) -> list[Items]:
        return [[state[place] for place in batch] for batch in budget_batches(list(map(self.weight, state)), self.most, self.multiple)]

    def held(self, state: Items) -> Sequence[BufferedElement]:
        return state

    def save(self, state: Items, numbers: Numbers) -> list[int]:
        return _numbers(state, numbers)

    def numbers(self, saved: list[int]) -> Sequence[int]:
        return _whole(saved)

    def load(self, saved: list[int], found: Find) -> Items:
        return [found(number) for number in saved]


def budget_batches(costs: Sequence[int], most: int, multiple: int) -> list[list[int]]:
    """Put places of `costs` together whose largest cost, rounded up to `multiple`, for each of them is at most `most` in all.

    Costs are sorted, and cut where a batch is full. Batches come in the order of their first places, and so do the places of each.
    """
    batches = [list[int]()]
    for place in sorted(range(len(costs)), key=costs.__getitem__):
        if batches[-1] and (len(batches[-1]) + 1) * (-(-costs[place] // multiple) * multiple) > most:
            batches.append([])
        batches[-1].append(place)
    return sorted(sorted(batch) for batch in batches if batch)


@dataclass(slots=True, eq=False)
class _Bin:
    """What fills up: items, or for a fold that cuts them each with where it begins; and how much of them in all."""

    items: list[Any] = field(default_factory=list)
    used: int = 0


@dataclass(frozen=True, slots=True)
class PackFold(HoldingFold):
    """Groups of whole items of at most `capacity` in all: each item goes into the first of up to `num_bins` open bins that has room.

    When none has, the fullest is closed and a new one opened. A bin that is full is closed at once. An item of no size takes no place
    and is left out. State: the bins, oldest first.
    """

    capacity: int
    num_bins: int
    weight: Weight

    def initial(self, pass_number: int = 0) -> list[_Bin]:
        return []

    def push(self, state: list[_Bin], item: BufferedElement) -> tuple[list[_Bin], Sequence[Group]]:
        size, capacity = self.weight(item), self.capacity
        outs: list[Group] = []
        if not size:
            return state, outs
        one = next((one for one in state if one.used + size <= capacity), None)
        if one is None:
            if len(state) == self.num_bins:
                fullest = max(range(len(state)), key=lambda place: state[place].used)
                outs.append(_group(state.pop(fullest)))
            one = _Bin()
            state.append(one)
        one.items.append(item)
        one.used += size
        if one.used == capacity:
            state.remove(one)
            outs.append(_group(one))
        return state, outs

    def end(self, state: list[_Bin]) -> tuple[list[_Bin], Sequence[Group], bool]:
        return [], [_group(one) for one in state], True

    def held(self, state: list[_Bin]) -> Sequence[BufferedElement]:
        return [item for one in state for item in one.items]

    def save(self, state: list[_Bin], numbers: Numbers) -> list[list[int]]:
        return [_numbers(one.items, numbers) for one in state]

    def numbers(self, saved: list[list[int]]) -> Sequence[int]:
        return _whole(chain.from_iterable(saved))

    def load(self, saved: list[list[int]], found: Find) -> list[_Bin]:
        bins = []
        for numbers in saved:
            items = [found(number) for number in numbers]
            bins.append(_Bin(items, sum(self.weight(item) for item in items)))
        return bins


def _group(one: _Bin) -> Group:
    return Group(one.items, None)


@dataclass(frozen=True, slots=True)
class ConcatenateFold(HoldingFold):
    """Groups of exactly `capacity`: items one after the other, cut where a group is full. State: the items of the open group.

    The layout says for each item which part of it, (begin, end), stands in the group. The last group of a pass may be short. An item of
    no size is left out.
    """

    capacity: int
    weight: Weight

    def initial(self, pass_number: int = 0) -> _Bin:
        return _Bin()

    def push(self, state: _Bin, item: BufferedElement) -> tuple[_Bin, Sequence[Group]]:
        outs: list[Group] = []
        begin, size = 0, self.weight(item)
        while begin < size and state.used + size - begin >= self.capacity:
            end = begin + self.capacity - state.used
            outs.append(self._cut([*state.items, (item, begin)], end))
            state, begin = _Bin(), end
        if begin < size:
            state.items.append((item, begin))
            state.used += size - begin
        return state, outs

    def end(self, state: _Bin) -> tuple[_Bin, Sequence[Group], bool]:
        parts = state.items
        return _Bin(), [self._cut(parts, self.weight(parts[-1][0]))] if parts else [], True

    def _cut(self, parts: list[tuple[BufferedElement, int]], end: int) -> Group:
        """Make a group whose last item ends at `end`."""
        ends = [*(self.weight(held) for held, _ in parts[:-1]), end]
        return Group([held for held, _ in parts], [(start, stop) for (_, start), stop in zip(parts, ends, strict=True)])

    def held(self, state: _Bin) -> Sequence[BufferedElement]:
        return [held for held, _ in state.items]

    def save(self, state: _Bin, numbers: Numbers) -> list[list[int]]:
        return [[numbers[held.number], start] for held, start in state.items]

    def numbers(self, saved: list[list[int]]) -> Sequence[int]:
        _whole(start for _, start in saved)
        return _whole(number for number, _ in saved)

    def load(self, saved: list[list[int]], found: Find) -> _Bin:
        parts = [(found(number), start) for number, start in saved]
        return _Bin(parts, sum(self.weight(held) - start for held, start in parts))


@dataclass(slots=True)
class _Buffer:
    number: int
    draws: int
    items: Items
    used: int


@dataclass(frozen=True, slots=True)
class ShuffleBufferFold(HoldingFold):
    """A random one of the last items: whenever `buffer_size` are held, or more than `buffer_bytes` in all, one of them comes out.

    State: the number of the pass and of the draws in it, and the buffer.
    """

    buffer_size: int
    buffer_bytes: int
    seed: int
    reshuffle: bool
    weight: Weight

    def initial(self, pass_number: int = 0) -> _Buffer:
        return _Buffer(pass_number, 0, [], 0)

    def restart(self, state: _Buffer) -> _Buffer:
        return self.initial(state.number + 1)

    def push(self, state: _Buffer, item: BufferedElement) -> tuple[_Buffer, Sequence[BufferedElement]]:
        state.items.append(item)
        state.used += self.weight(item)
        outs = []
        while len(state.items) >= self.buffer_size or (state.used > self.buffer_bytes and len(state.items) > 1):
            outs.append(self._draw(state))
        return state, outs

    def end(self, state: _Buffer) -> tuple[_Buffer, Sequence[BufferedElement], bool]:
        outs = []
        while state.items:
            outs.append(self._draw(state))
        return self.restart(state), outs, True

    def _draw(self, state: _Buffer) -> BufferedElement:
        key = kernels.mix(self.seed, state.number if self.reshuffle else 0, state.draws)
        place = key * len(state.items) >> 64
        state.draws += 1
        items = state.items
        items[place], items[-1] = items[-1], items[place]
        out = items.pop()
        state.used -= self.weight(out)
        return out

    def held(self, state: _Buffer) -> Sequence[BufferedElement]:
        return state.items

    def save(self, state: _Buffer, numbers: Numbers) -> dict[str, Any]:
        return {"pass": state.number, "draws": state.draws, "held": _numbers(state.items, numbers)}

    def numbers(self, saved: dict[str, Any]) -> Sequence[int]:
        _whole((saved["pass"], saved["draws"]))
        return _whole(saved["held"])

    def load(self, saved: dict[str, Any], found: Find) -> _Buffer:
        items = [found(number) for number in saved["held"]]
        return _Buffer(saved["pass"], saved["draws"], items, sum(map(self.weight, items)))


@dataclass(slots=True)
class _Window:
    gap: int
    items: Items


@dataclass(frozen=True, slots=True)
class WindowFold(HoldingFold):
    """Groups of `size` items, every `stride`-th one, a new group beginning every `shift` items.

    State: how many items to leave out before the next group begins, and the items from its beginning on.
    """

    size: int
    shift: int
    stride: int
    drop_remainder: bool

    def initial(self, pass_number: int = 0) -> _Window:
        return _Window(0, [])

    def push(self, state: _Window, item: BufferedElement) -> tuple[_Window, Sequence[Group]]:
        if state.gap:
            state.gap -= 1
            return state, ()
        state.items.append(item)
        if len(state.items) <= (self.size - 1) * self.stride:
            return state, ()
        out = Group(state.items[:: self.stride], None)
        state.gap = max(0, self.shift - len(state.items))
        state.items = state.items[self.shift :]
        return state, (out,)

    def end(self, state: _Window) -> tuple[_Window, Sequence[Group], bool]:
        outs = []
        items = [] if self.drop_remainder else state.items
        while items:
            outs.append(Group(items[:: self.stride], None))
            items = items[self.shift :]
        return self.initial(), outs, True

    def held(self, state: _Window) -> Sequence[BufferedElement]:
        return state.items

    def save(self, state: _Window, numbers: Numbers) -> dict[str, Any]:
        return {"gap": state.gap, "held": _numbers(state.items, numbers)}

    def numbers(self, saved: dict[str, Any]) -> Sequence[int]:
        _whole((saved["gap"],))
        return _whole(saved["held"])

    def load(self, saved: dict[str, Any], found: Find) -> _Window:
        return _Window(saved["gap"], [found(number) for number in saved["held"]])


def _numbers(items: Iterable[BufferedElement], numbers: Numbers) -> list[int]:
    return [numbers[item.number] for item in items]


def _whole(numbers: Iterable[Any]) -> list[int]:
    """Check numbers of a saved state."""
    out = list(numbers)
    for number in out:
        if type(number) is not int or number < 0:
            raise damaged(f"fold state has {short(number)} for a number")
    return out


def damaged(words: str) -> StateDamaged:
    """Return the error of a saved state that no run can have saved."""
    return StateDamaged(
        f"the state's {words}",
        where="load_state_dict()",
        fix="use an older checkpoint; this one would skip or repeat elements",
    )
