"""Orders that known numbers decide: which elements are kept, and which of them become one row or batch. Pure.

An order is worked out window by window: a sum for each window says where its rows begin, and the window says which elements they have.
That is done when a window is asked for, and as many are kept as a fixed number of bytes holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._order.arithmetic import grouped
from penstock._order.holding import budget_batches
from penstock.errors import SpecError

__all__ = [
    "WIDE_WINDOW",
    "BalancedOrder",
    "BucketedOrder",
    "BudgetOrder",
    "CutOrder",
    "DistinctOrder",
    "FilteredOrder",
    "PackedOrder",
    "PlannedOrder",
    "PlannedRows",
    "SampledOrder",
    "SortedOrder",
]

Ints = NDArray[np.int64]


class Numbers(Protocol):
    """The known number of each element, by position."""

    def __call__(self, positions: Ints, epoch: int = 0) -> Ints:
        """Return the numbers of the elements at some positions of a pass."""

    def describe(self, position: int) -> str:
        """Say which element stands at a position."""


_WINDOW = 65_536
WIDE_WINDOW = 1 << 20
_BLOCK = 256
_SAMPLING = 0x73616D706C65  # the key of the draws of `sample`, beside its seed
_MOST_BYTES = 64 << 20
_MOST_IN_ALL = 1 << 62


class PlannedRows(NamedTuple):
    """Rows: the positions of their elements, one row behind the other, and how many each has.

    Attributes:
        parts: int64 [elements, 3]: the number of each, and the part of it, (begin, end), that stands in its row, or (0, -1) for all of
            it. None where the elements need not agree with their numbers.
    """

    positions: Ints
    sizes: Sequence[int]
    parts: Ints | None = None


class _Window(NamedTuple):
    """One window: the elements of its rows, counted from `first`, and where each row ends among them; `ends` is None for rows of one."""

    first: int
    members: NDArray[Any]
    ends: NDArray[Any] | None

    @property
    def num_rows(self) -> int:
        return len(self.members if self.ends is None else self.ends)

    @property
    def num_bytes(self) -> int:
        return self.members.nbytes + (0 if self.ends is None else self.ends.nbytes)


class PlannedOrder(ABC):
    """Rows by their number. Thread-safe. Pickled with its sums, and without its windows.

    All passes have the same number of rows. They have the same rows too, unless `varies`. Windows are numbered through all passes.

    Args:
        numbers: of the elements below.
        num_elements: how many there are below.
        window: elements of a window; 65,536 by default.
        varies: whether each pass has a plan of its own.
    """

    _by_window: ClassVar[bool] = True
    """Whether a row depends on all elements of its window; else on none behind its last one."""

    def __init__(self, numbers: Numbers, num_elements: int, window: int | None = None, *, varies: bool = False) -> None:
        self._numbers, self._num_elements, self._window = numbers, num_elements, window or _WINDOW
        self.varies = varies
        self._sums: Ints | None = None
        self._kept = dict[int, _Window]()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: it does not go through all windows again."""
        _ = self.starts
        return {**vars(self), "_kept": {}}

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def starts(self) -> Ints:
        """The first row of each window, then the number of rows: int64 [windows + 1]. Found by going through all numbers, once."""
        if self._sums is None:
            sums = np.zeros(self._num_windows + 1, np.int64)
            np.cumsum([self._count(window) for window in range(self._num_windows)], out=sums[1:])
            self._sums = sums
        return self._sums

    def rows(self, positions: Ints) -> PlannedRows:
        """Return the elements of some rows; each position is in 0..len-1."""
        windows = np.searchsorted(self.starts, positions, side="right") - 1
        parts: list[Ints] = [np.empty(0, np.int64)] * len(positions)
        for number, offsets in grouped(windows):
            window, first = self._of(number), int(self.starts[number])
            for offset, row in zip(offsets.tolist(), (positions[offsets] - first).tolist(), strict=True):
                begin, end = (row, row + 1) if window.ends is None else (int(window.ends[row - 1]) if row else 0, int(window.ends[row]))
                parts[offset] = window.members[begin:end].astype(np.int64) + window.first
        members = np.concatenate([*parts, np.empty(0, np.int64)])
        return PlannedRows(members, list(map(len, parts)))

    def below(self, epochs: Ints, positions: Ints) -> Ints:
        """Return where the elements of rows of one stand below."""
        windows = np.searchsorted(self.starts, positions, side="right") - 1
        passes = epochs * self._num_windows if self.varies else 0
        out = np.empty(len(positions), np.int64)
        for number, offsets in grouped(windows + passes):
            window = self._of(number)
            out[offsets] = window.members[positions[offsets] - self.starts[windows[offsets]]].astype(np.int64) + window.first
        return out

    def given(self, position: int) -> int:
        """Return how many elements below decide the rows of a pass before `position`."""
        if not position:
            return 0
        begin, end = self._borders(int(np.searchsorted(self.starts, position - 1, side="right")) - 1)
        return end if self._by_window or begin >= end else int(self.rows(np.array([position - 1])).positions.max()) + 1

    @property
    def _num_windows(self) -> int:
        return -(-self._num_elements // self._window)

    def _borders(self, window: int) -> tuple[int, int]:
        window %= self._num_windows
        return window * self._window, min((window + 1) * self._window, self._num_elements)

    def _in_window(self, window: int) -> Ints:
        """Return the numbers of the elements of a window."""
        return self._numbers(np.arange(*self._borders(window), dtype=np.int64), window // self._num_windows)

    def _count(self, window: int) -> int:
        """Return how many rows a window has."""
        return self._of(window).num_rows

    def _of(self, window: int) -> _Window:
        # Threads share `_kept` without a lock: two that miss a window plan it twice, and plan the same.
        kept = self._kept
        if (found := kept.get(window)) is None:
            found = kept[window] = self._planned(window)
            if len(kept) > max(1, _MOST_BYTES // max(1, found.num_bytes)):
                for oldest in list(kept)[: -(-len(kept) // 2)]:
                    kept.pop(oldest, None)
        return found

    def _check_most(self, window: int, numbers: Ints, most: int, where: str, fix: str) -> None:
        over = np.flatnonzero(numbers > most)
        if len(over):
            what = self._numbers.describe(self._borders(window)[0] + int(over[0]))
            raise SpecError(f"{what} is {int(numbers[over[0]])}, and {most} is the most", where=where, fix=fix)

    @abstractmethod
    def _planned(self, window: int) -> _Window:
        """Plan a window."""


class FilteredOrder(PlannedOrder):
    """The elements whose number is not 0, in their order."""

    _by_window = False

    def _count(self, window: int) -> int:
        return int(np.count_nonzero(self._in_window(window)))

    def _planned(self, window: int) -> _Window:
        return _Window(self._borders(window)[0], np.flatnonzero(self._in_window(window)).astype(np.uint16), None)


class _Reordered(PlannedOrder):
    """All elements, each `size` of them in another order.

    Args:
        size: of what is put in order at a time; a window has a whole number of them.
        window: elements of a window, about.
    """

    def __init__(self, numbers: Numbers, num_elements: int, size: int, *, window: int | None = None, varies: bool) -> None:
        super().__init__(numbers, num_elements, size * max(1, (window or _WINDOW) // size), varies=varies)
        self.size = size

    def _count(self, window: int) -> int:
        begin, end = self._borders(window)
        return end - begin


class SortedOrder(_Reordered):
    """All elements; each `size` of them by their numbers, equal ones in their order."""

    def _planned(self, window: int) -> _Window:
        numbers = self._in_window(window)
        return _Window(self._borders(window)[0], np.lexsort((numbers, np.arange(len(numbers)) // self.size)).astype(np.uint32), None)


class BalancedOrder(_Reordered):
    """All elements, in rounds of `size` that have nearly equal numbers.

    A window of about 2**20 elements is sorted and cut into rounds, which come in the order of their first elements, as the elements of
    each do. The last elements, which make no whole round, stay where they are.
    """

    def _planned(self, window: int) -> _Window:
        numbers = self._in_window(window)
        whole = len(numbers) - len(numbers) % self.size
        rounds = np.sort(np.argsort(numbers[:whole], kind="stable").reshape(-1, self.size), axis=1)
        members = np.concatenate([rounds[np.argsort(rounds[:, 0])].ravel(), np.arange(whole, len(numbers))])
        return _Window(self._borders(window)[0], members.astype(np.uint32), None)


class SampledOrder:
    """`num_samples` elements, each drawn from all of them: how often one comes is in proportion to its number. Thread-safe.

    A draw is a point in the sum of all numbers. The sum before each block of 256 elements is kept, so a draw looks at the numbers of one
    block. Making the order goes through all numbers, once.

    Args:
        seed: of the draws.
        varies: whether each pass has draws of its own.
    """

    def __init__(self, numbers: Numbers, num_elements: int, num_samples: int, seed: int, *, varies: bool) -> None:
        self._numbers, self._num_elements, self._num_samples = numbers, num_elements, num_samples
        self._seed, self.varies = seed, varies
        sums = [np.zeros(1, np.int64)]
        for begin in range(0, num_elements, 256 * _BLOCK):
            window = numbers(np.arange(begin, min(begin + 256 * _BLOCK, num_elements), dtype=np.int64))
            sums.append(np.add.reduceat(window, np.arange(0, len(window), _BLOCK)))
        _check_sum(sum(int(some.sum()) for some in sums), "sample()", "give smaller weights")
        self._totals = np.cumsum(np.concatenate(sums))

    def __len__(self) -> int:
        return self._num_samples

    @property
    def total(self) -> int:
        """The sum of all numbers."""
        return int(self._totals[-1])

    def below(self, epochs: Ints, positions: Ints) -> Ints:
        """Return the elements that are drawn."""
        totals = self._totals
        drawn = _uniform(self._seed, epochs if self.varies else np.zeros_like(epochs), positions)
        points = np.minimum((drawn * float(totals[-1])).astype(np.int64), totals[-1] - 1)
        blocks = np.searchsorted(totals, points, side="right") - 1
        members = blocks[:, None] * _BLOCK + np.arange(_BLOCK)
        numbers = self._numbers(np.minimum(members, self._num_elements - 1).ravel()).reshape(members.shape) * (members < self._num_elements)
        places = np.count_nonzero(np.cumsum(numbers, axis=1) <= (points - totals[blocks])[:, None], axis=1)
        found: Ints = blocks * _BLOCK + places
        return found


class DistinctOrder(PlannedOrder):
    """`num_samples` elements, each drawn from those that are left, in proportion to its number, and in the order of the draws.

    Element i gets the key -log(u) / number, with u uniform, and those of the smallest keys come in their order (Efraimidis and Spirakis,
    Weighted random sampling with a reservoir, 2006).
    """

    def __init__(self, numbers: Numbers, num_elements: int, num_samples: int, seed: int, *, varies: bool) -> None:
        super().__init__(numbers, num_elements, max(1, num_elements), varies=varies)
        self._num_samples, self._seed = num_samples, seed

    def _count(self, window: int) -> int:
        return self._num_samples

    def _planned(self, window: int) -> _Window:
        keys, members = np.empty(0), np.empty(0, np.int64)
        size = max(_WINDOW, self._num_samples)  # so each sample is looked at a few times only
        for begin in range(0, self._num_elements, size):
            positions = np.arange(begin, min(begin + size, self._num_elements), dtype=np.int64)
            numbers = self._numbers(positions)
            drawn = _uniform(self._seed, np.full(len(positions), window, np.int64), positions)
            chosen = np.flatnonzero(numbers)
            keys = np.append(keys, -np.log1p(-drawn[chosen]) / numbers[chosen])
            members = np.append(members, positions[chosen])
            best = np.lexsort((members, keys))[: self._num_samples]
            keys, members = keys[best], members[best]
        return _Window(0, members.astype(np.min_scalar_type(self._num_elements)), None)


class PackedOrder(PlannedOrder):
    """Rows of whole elements of at most `capacity` in all, by best fit, the largest element of a window first.

    The rows of a window come in the order of their first elements, and the elements of a row in their order. An element of no size is left
    out.
    """

    def __init__(self, numbers: Numbers, num_elements: int, capacity: int) -> None:
        super().__init__(numbers, num_elements)
        self._capacity = capacity

    def rows(self, positions: Ints) -> PlannedRows:
        found = super().rows(positions)
        numbers = self._numbers(found.positions)
        return found._replace(parts=np.stack([numbers, np.zeros_like(numbers), np.full_like(numbers, -1)], axis=1))

    def _count(self, window: int) -> int:
        return int(self._fitted(window)[1].max(initial=-1)) + 1  # where they stand in their order takes longer

    def _fitted(self, window: int) -> tuple[Ints, Ints]:
        """Return the elements of a window that have a size, and the row of each."""
        sizes = self._in_window(window)
        self._check_most(window, sizes, self._capacity, "pack_sequences(by=...)", "give longer rows, or split=True")
        places = np.flatnonzero(sizes)
        return places, kernels.best_fit(sizes[places], self._capacity)

    def _planned(self, window: int) -> _Window:
        return _by_row(self._borders(window)[0], *self._fitted(window))


class BudgetOrder(PlannedOrder):
    """Batches that cost at most `most` when they are padded: `budget_batches` of each `pool` of elements."""

    def __init__(self, numbers: Numbers, num_elements: int, most: int, pool: int, multiple: int) -> None:
        super().__init__(numbers, num_elements, pool * max(1, _WINDOW // pool))
        self._most, self._pool, self._multiple = most, pool, multiple

    def _planned(self, window: int) -> _Window:
        first, costs = self._borders(window)[0], self._in_window(window)
        rounded = -(-costs // self._multiple) * self._multiple
        self._check_most(window, rounded, self._most, "batch_by_cost()", "raise max_cost, or filter it out")
        members, sizes = list[int](), list[int]()
        for begin in range(0, len(costs), self._pool):
            for batch in budget_batches(costs[begin : begin + self._pool].tolist(), self._most, self._multiple):
                members += [begin + place for place in batch]
                sizes.append(len(batch))
        return _Window(first, np.array(members, np.uint32), np.cumsum(sizes, dtype=np.int64))


class BucketedOrder(PlannedOrder):
    """Batches of `batch_sizes[b]` elements of bucket b, each where its last element stands: the order of `BucketFold`.

    The bucket is the number of `boundaries` that an element's number has reached. What is left at the end comes bucket by bucket.
    """

    _by_window = False

    def __init__(self, numbers: Numbers, num_elements: int, boundaries: Sequence[int], batch_sizes: Sequence[int], *, drops: bool) -> None:
        super().__init__(numbers, num_elements)
        self._boundaries, self._batch_sizes = np.array(boundaries, np.int64), np.array(batch_sizes, np.int64)
        self._drops = drops
        self._counts: Ints | None = None

    @property
    def _num_windows(self) -> int:
        return super()._num_windows + 1  # the last one has what is left

    def _bucket_counts(self) -> Ints:
        """Return how many elements of each bucket stand before each window: int64 [windows, buckets]."""
        if self._counts is None:
            counts = np.zeros((self._num_windows, len(self._batch_sizes)), np.int64)
            for window in range(self._num_windows - 1):
                counts[window + 1] = np.bincount(self._buckets(window), minlength=len(self._batch_sizes))
            self._counts = np.cumsum(counts, axis=0)
        return self._counts

    def _buckets(self, window: int) -> Ints:
        return np.searchsorted(self._boundaries, self._in_window(window), side="right")

    def _count(self, window: int) -> int:
        counts = self._bucket_counts()
        if window == self._num_windows - 1:
            return 0 if self._drops else int(np.count_nonzero(counts[-1] % self._batch_sizes))
        return int((counts[window + 1] // self._batch_sizes - counts[window] // self._batch_sizes).sum())

    def _planned(self, window: int) -> _Window:
        counts, sizes, batches = self._bucket_counts(), self._batch_sizes.tolist(), list[tuple[int, Ints]]()
        here = counts[min(window, len(counts) - 1)]
        if window == self._num_windows - 1:
            for bucket, (count, size) in enumerate(zip(here.tolist(), sizes, strict=True)):
                if count % size and not self._drops:
                    batches.append((bucket, self._members(bucket, count - count % size, count)))
        else:
            for bucket, size in enumerate(sizes):
                begin, end = int(here[bucket]) // size, int(counts[window + 1, bucket]) // size
                found = self._members(bucket, begin * size, end * size) if begin < end else np.empty(0, np.int64)
                batches += [(int(batch[-1]), batch) for batch in found.reshape(-1, size)]
            batches.sort(key=lambda batch: batch[0])
        members = np.concatenate([*(batch for _, batch in batches), np.empty(0, np.int64)])
        return _Window(0, members, np.cumsum([len(batch) for _, batch in batches], dtype=np.int64))

    def _members(self, bucket: int, begin: int, end: int) -> Ints:
        """Return the positions of the elements number `begin` to `end` - 1 of a bucket."""
        counts = self._bucket_counts()[:, bucket]
        first, last = (int(place) for place in np.searchsorted(counts, (begin, end - 1), side="right") - 1)
        windows = [window * self._window + np.flatnonzero(self._buckets(window) == bucket) for window in range(first, last + 1)]
        return np.concatenate(windows)[begin - int(counts[first]) : end - int(counts[first])]


class CutOrder(PlannedOrder):
    """Rows of exactly `capacity`: elements one after the other, cut where a row is full, as `ConcatenateFold` has them."""

    _by_window = False

    def __init__(self, numbers: Numbers, num_elements: int, capacity: int) -> None:
        super().__init__(numbers, num_elements)
        self._capacity = capacity
        self._totals: Ints | None = None

    def _planned(self, window: int) -> _Window:
        """Return the elements that have a size, with the sum of sizes up to each."""
        sizes = self._in_window(window)
        places = np.flatnonzero(sizes)
        return _Window(self._borders(window)[0], places.astype(np.uint16), np.cumsum(sizes[places]))

    def _sizes(self) -> Ints:
        """Return the sum of all sizes before each window, and of all."""
        if self._totals is None:
            sums = [int(self._in_window(window).sum()) for window in range(self._num_windows)]
            _check_sum(sum(sums), "pack_sequences(by=...)", "measure numbers of tokens")
            self._totals = np.cumsum([0, *sums], dtype=np.int64)
        return self._totals

    @property
    def starts(self) -> Ints:
        return -(-self._sizes() // self._capacity)

    def rows(self, positions: Ints) -> PlannedRows:
        places, parts, counts = list[Ints](), list[Ints](), list[int]()
        totals = self._sizes()
        for row in positions.tolist():
            begin, end, count = row * self._capacity, min((row + 1) * self._capacity, int(totals[-1])), 0
            first, last = (int(window) for window in np.searchsorted(totals, (begin, end - 1), side="right") - 1)
            for number in range(first, last + 1):
                window, low, high = self._of(number), begin - int(totals[number]), end - int(totals[number])
                assert window.ends is not None
                begins, stops = np.searchsorted(window.ends, (max(0, low), high - 1), side="right").tolist()
                chosen = slice(begins, stops + 1)
                ends = window.ends[chosen]
                starts = np.concatenate([window.ends[chosen.start - 1 : chosen.start] if chosen.start else [0], ends[:-1]])
                places.append(window.members[chosen].astype(np.int64) + window.first)
                parts.append(np.stack([ends - starts, np.maximum(low - starts, 0), np.minimum(high, ends) - starts], axis=1))
                count += len(ends)
            counts.append(count)
        none = np.empty((0, 3), np.int64)
        return PlannedRows(np.concatenate([*places, none[:, 0]]), counts, np.concatenate([*parts, none]))


def _uniform(seed: int, epochs: Ints, positions: Ints) -> NDArray[np.float64]:
    """Return a uniform number in [0, 1) for each position of a pass."""
    draws = kernels.philox_uniform(seed % 2**64, _SAMPLING, epochs, positions, np.zeros(len(positions), np.uint64), 1)
    return draws[:, 0]


def _check_sum(total: int, where: str, fix: str) -> None:
    if total > _MOST_IN_ALL:
        raise SpecError(f"the elements have {total} in all", where=where, fix=fix)


def _by_row(first: int, places: Ints, rows: Ints) -> _Window:
    """Return a window of `places` that stand in `rows`, the rows in the order of their first places."""
    num_rows = int(rows.max(initial=-1)) + 1
    firsts, ranks = np.empty(num_rows, np.int64), np.empty(num_rows, np.uint16)
    firsts[rows[::-1]] = np.arange(len(rows))[::-1]
    ranks[np.argsort(firsts)] = np.arange(num_rows)
    members = places[np.argsort(ranks[rows], kind="stable")].astype(np.uint16)  # short numbers are sorted in linear time
    return _Window(first, members, np.cumsum(np.bincount(ranks[rows], minlength=num_rows)).astype(np.int32))
