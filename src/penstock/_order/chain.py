"""Several folds run together, and the folds among them that hold items between inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from penstock._order.folds import Fold, Item, RankFold, RepeatFold, SkipFold, TakeFold
from penstock._system.lazy import dataclass
from penstock.errors import StateMismatch

__all__ = ["BufferedElement", "Chain", "HoldingFold", "Mark", "items_again", "passes_above"]


@dataclass(frozen=True, slots=True)
class BufferedElement:
    """An item inside a fold that holds items: its number (how many entered before it) and the mark of the place before it."""

    number: int
    mark: Any
    item: Item


class Mark(NamedTuple):
    """Where an item of a `Chain` comes from.

    Attributes:
        before: the place before its input.
        input: the pass and the number of its input.
        position: of its input in the source, where inputs are its positions in their order; else None.
        number: of the item among the `num_items` that its input gave.
    """

    before: Any
    input: tuple[int, int]
    position: Any
    number: int
    num_items: int


def items_again(held: Sequence[BufferedElement], end: tuple[int, int]) -> tuple[dict[int, int], list[Mark], int]:
    """Give held items, which are in their order, the numbers that they have when a resume reads only their inputs again.

    Returns:
        (what `Chain.snapshot` takes, a mark for each of these inputs before the input `end`, and how many items they give).
    """
    begins, inputs, numbers, total = dict[tuple[int, int], int](), list[Mark](), dict[int, int](), 0
    for one in held:
        mark = one.mark
        if mark.input < end and mark.input not in begins:
            inputs.append(mark)
            begins[mark.input], total = total, total + mark.num_items
        numbers[one.number] = begins.get(mark.input, total) + mark.number
    return numbers, inputs, total


class HoldingFold(Fold):
    """A fold whose state holds items between inputs. Its states are objects of its own; `push` and `end` may change them in place."""

    __slots__ = ()

    @abstractmethod
    def held(self, state: Any) -> Sequence[BufferedElement]:
        """List what is held, in any order."""

    @abstractmethod
    def save(self, state: Any, numbers: Mapping[int, int]) -> Any:
        """Return the state as a JSON value, held items as what `numbers` has for theirs."""

    @abstractmethod
    def load(self, saved: Any, found: Callable[[int], BufferedElement]) -> Any:
        """Return the state of a JSON value whose `numbers` are good; `found` returns the item of a number."""

    @abstractmethod
    def numbers(self, saved: Any) -> Sequence[int]:
        """List the numbers of the items that a saved state holds.

        Raises:
            StateDamaged: one of its numbers is none.
            TypeError, ValueError, KeyError: it does not have the form that `save` gives.
        """


class Chain:
    """Several folds, one on top of the other, run together. Not thread-safe: its owner holds the lock.

    The lowest may be one that holds items (`HoldingFold`). These are numbered as they enter it, and carry the mark that their owner gave.

    Attributes:
        notices: what is to be said of passes that ended; the owner takes them.
        counts: whether a fold counts what it lets through.
        num_entered: how many items entered the holding fold.
        empty_pass: whether a whole pass below an endless repeat gave it no item: repeating it would never end.
    """

    __slots__ = (
        "_endless",
        "_folds",
        "_missing",
        "_recalled",
        "_saved",
        "_states",
        "_wanted",
        "_wrap",
        "counts",
        "empty_pass",
        "holding",
        "notices",
        "num_entered",
    )

    def __init__(
        self,
        folds: Sequence[Fold],
        states: Sequence[Any] | None = None,
        *,
        recall: int = 0,
        unwrap: Callable[[Item], Item] | None = None,
        first_pass: int = 0,
    ) -> None:
        """Start with `states`, as `snapshot` gave them.

        Args:
            folds: the lowest first.
            states: one per fold, or None for the beginning.
            recall: so many items, the next ones that reach the holding fold, entered it before the snapshot was taken: they are put
                back where they were held, and nothing comes out for them.
            unwrap: makes what leaves the holding fold of the `BufferedElement` items in it; None leaves them wrapped.
            first_pass: the number of the pass below the lowest fold with which the run begins; above a `repeat` passes are fewer.
        """
        self._folds = tuple(folds)
        self.holding = next((level for level, fold in enumerate(folds) if isinstance(fold, HoldingFold)), None)
        self._states = _initial(folds, first_pass) if states is None else [_copied(state) for state in states]
        self.num_entered = 0
        self.counts = any(isinstance(fold, TakeFold) for fold in folds)
        self._wrap = unwrap or (lambda item: item)
        self.empty_pass = False
        self.notices: list[str] = []
        # The endless repeats, each with whether its pass has given an item; one that goes on from a saved state counts as such.
        self._endless = {
            level: states is not None for level, fold in enumerate(folds) if isinstance(fold, RepeatFold) and fold.count is None
        }
        self._recalled: dict[int, BufferedElement] = {}
        self._missing = recall
        self._saved: Any = None
        self._wanted: set[int] = set()
        if self.holding is not None and states is not None:
            self._saved = states[self.holding]
            self._wanted = set(self._holder().numbers(self._saved))
            if recall == 0:
                self._load()

    @property
    def recalling(self) -> bool:
        """Tell whether items that were held are still awaited."""
        return self._missing > 0

    def held(self) -> Sequence[BufferedElement]:
        """List what the holding fold holds."""
        return () if self.holding is None else self._holder().held(self._states[self.holding])

    def waiting(self) -> list[Item]:
        """List everything that is in the state of some fold: held items, and what stands in an unfinished batch."""
        if self.recalling:
            return list(self._recalled.values())
        batches = [state for level, state in enumerate(self._states) if level != self.holding and isinstance(state, list)]
        return [*self.held(), *(item for batch in batches for item in batch)]

    @property
    def settled(self) -> bool:
        """Tell whether no fold but the holding one has items in its state."""
        return all(not isinstance(state, list) or not state for level, state in enumerate(self._states) if level != self.holding)

    def snapshot(self, numbers: Mapping[int, int] | None = None) -> list[Any]:
        """Copy the states: JSON values. `numbers` has for that of each held item the one among the items that a resume reads again."""
        return [
            self._holder().save(state, numbers or {}) if level == self.holding else _copied(state)
            for level, state in enumerate(self._states)
        ]

    def lets_through(self, count: int) -> bool:
        """Tell whether `count` items would come out as they are pushed.

        False also where that is not known; True as long as the pass is open behind them.
        """
        return all(
            isinstance(fold, RepeatFold)
            or (isinstance(fold, TakeFold) and state + count < fold.count)
            or (isinstance(fold, SkipFold) and state >= fold.count)
            for fold, state in zip(self._folds, self._states, strict=True)
        )

    def count_one(self) -> None:
        """Count an item, or a list, that was let through."""
        for level, fold in enumerate(self._folds):
            if isinstance(fold, TakeFold):
                self._states[level] += 1

    def mark_passes(self) -> None:
        """Note that items were let through to every repeat."""
        for level in self._endless:
            self._endless[level] = True

    def push(self, item: Item, mark: Any = None) -> Sequence[Item]:
        """Take one item from below and return what comes out at the top."""
        return self._push_from(0, (item,), mark)

    def close_early(self, *, wanted: bool = True) -> tuple[Sequence[Item], Literal["open", "rest", "cut", "end"]]:
        """End the pass now if a fold lets nothing more out of it; or, if no more of it is `wanted`, as a full take at the top would.

        Returns what comes out, and "open" (nothing was done), "rest" (the rest of the pass below is not wanted, but its end must be
        pushed), "cut" (a `repeat` above asks for the next pass; the rest of this one and its end must not be pushed) or "end" (the end of
        the pass went on upwards).
        """
        top = len(self._folds) if self.holding is None or not self.recalling else self.holding
        levels = range(top + (not wanted and not self.recalling))
        for level in reversed(levels):  # a full take ends the run, whatever asks for another pass below it
            fold = self._folds[level] if level < top else None
            if fold is not None and not fold.closed(self._states[level]):
                continue
            if (fold is None or (isinstance(fold, TakeFold) and fold.repeated)) and self._passes_wait(level):
                return (), "rest"
            for below in range(level):
                self._states[below] = self._folds[below].restart(self._states[below])
                if below in self._endless:
                    self._endless[below] = False
            outs, goes_on = self.end(level)
            return outs, "end" if goes_on else "cut"
        return (), "open"

    def _passes_wait(self, level: int) -> bool:
        """Tell whether a `repeat(count)` below has passes to come: a cut would give their epochs to the pass that a repeat above wants.

        One above an endless repeat never comes to its next pass.
        """
        for fold, state in zip(self._folds[:level], self._states[:level], strict=True):
            if isinstance(fold, RepeatFold) and fold.count is None:
                return False
            if isinstance(fold, RepeatFold) and fold.count is not None and state + 1 < fold.count:
                return True
        return False

    def _push_from(self, level: int, items: Sequence[Item], mark: Any = None) -> Sequence[Item]:
        for position in range(level, len(self._folds)):
            if not items:
                return items
            if position == self.holding:
                items = self._enter(items, mark)
                continue
            if self._endless and position in self._endless:
                self._endless[position] = True
            outs: list[Item] = []
            for item in items:
                self._states[position], some = self._folds[position].push(self._states[position], item)
                outs.extend(some)
            items = outs
        return items

    def _enter(self, items: Sequence[Item], mark: Any) -> Sequence[Item]:
        """Push items into the holding fold, or put them back where they were."""
        level = self.holding
        assert level is not None
        outs: list[Item] = []
        for item in items:
            held = BufferedElement(self.num_entered, mark, item)
            self.num_entered += 1
            if self._missing:
                if held.number in self._wanted:
                    self._recalled[held.number] = held
                self._missing -= 1
                if not self._missing:
                    self._load()
                continue
            self._states[level], some = self._folds[level].push(self._states[level], held)
            outs.extend(map(self._wrap, some))
        return outs

    def _load(self) -> None:
        level = self.holding
        assert level is not None
        self._states[level] = self._holder().load(self._saved, self._recalled.__getitem__)
        self._recalled, self._saved, self._wanted = {}, None, set()

    def _holder(self) -> HoldingFold:
        assert self.holding is not None
        return cast(HoldingFold, self._folds[self.holding])

    def end(self, level: int = 0) -> tuple[Sequence[Item], bool]:
        """Take the end of a pass at a level; return what comes out before it, and whether it goes on upwards (no `repeat` held it)."""
        top: list[Item] = []
        for position in range(level, len(self._folds)):
            if position == self.holding and self._missing:
                raise StateMismatch(
                    f"{self._missing} elements that were held when the state was saved did not come again before the end of their pass",
                    where="load_state_dict()",
                    fix="resume with the data and the functions that the state was saved with",
                )
            if position in self._endless:
                self.empty_pass = self.empty_pass or not self._endless[position]
                self._endless[position] = False
            fold = self._folds[position]
            if isinstance(fold, RankFold) and (words := fold.padding(self._states[position])):
                self.notices.append(words)
            self._states[position], outs, goes_on = fold.end(self._states[position])
            top.extend(self._push_from(position + 1, [self._wrap(out) for out in outs] if position == self.holding else outs))
            if not goes_on:
                return top, False
        return top, True


def _initial(folds: Sequence[Fold], first_pass: int) -> list[Any]:
    states = []
    for fold in folds:
        states.append(fold.initial(first_pass))
        first_pass = passes_above(fold, first_pass)
    return states


def passes_above(fold: Fold, pass_number: int) -> int:
    """Return which pass above a fold begins with a pass below it."""
    return pass_number // (fold.count or 1) if isinstance(fold, RepeatFold) else pass_number


def _copied(state: Any) -> Any:
    return list(state) if isinstance(state, list) else state
