"""The fluent builder: what to read and what to do with it. Nothing runs until it is fed.

The engine and the sources are imported where they are first needed: `import penstock` costs half as much without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from penstock._contracts.element import map_leaves, spec_of
from penstock._contracts.event import Listener
from penstock._contracts.options import Options
from penstock._order.arithmetic import INFINITE
from penstock._plan import check
from penstock._plan import node as plan
from penstock._plan.describe import lines
from penstock._plan.length import ROOM, highest_number, is_indexable, length_of
from penstock._plan.specs import spec_of_plan
from penstock.dataset.elements import ElementMethods
from penstock.dataset.grouping import GroupMethods
from penstock.dataset.ordering import OrderMethods
from penstock.errors import LengthUnknown, OutOfRange, PlanError

if TYPE_CHECKING:
    from penstock.feed import Feed

__all__ = ["Dataset"]


class Dataset(ElementMethods, OrderMethods, GroupMethods):
    """A description of elements in an order: a source and operators on it. Immutable and cheap; each method returns a new one.

    `for batch in ds` and `ds.feed()` run it. `len(ds)`, `ds[i]`, `ds.spec()`, `print(ds)` and `ds.explain()` look at it.
    The order is a function of the description alone: it does not depend on workers, blocks or timing.
    """

    __slots__ = ()

    # -- running ------------------------------------------------------------------------------------------------------------------

    def prefetch(self, buffer_size: int) -> Self:
        """Keep at least `buffer_size` finished batches ahead of the consumer, if the byte budget allows it."""
        size = check.count_argument(buffer_size, "buffer_size", "prefetch")
        return self._with(plan.Prefetch(child=self._root, buffer_size=size))

    def with_options(self, **options: Any) -> Self:
        """Return the same dataset with other defaults for `feed`; the names are those of `ps.Options`."""
        return type(self)(self._root, _options(self._options, options))

    def feed(self, *, listeners: Sequence[Listener] = (), **options: Any) -> Feed:
        """Return a new feed. Options as in `ps.Options`: how many workers, how much memory, how long to wait.

        Args:
            listeners: callables that are given every event of the engine, from its threads; they must be quick.
            **options: override those of `with_options`.
        """
        from penstock._engine.learned import Learned
        from penstock.feed import Feed

        if self._learned is None:
            self._learned = Learned()
        return Feed(self._root, _options(self._options, options), check.listeners_argument(listeners), learned=self._learned)

    def __iter__(self) -> Iterator[Any]:
        """Return a new feed with default options."""
        return self.feed()

    # -- looking ------------------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of elements.

        Raises:
            TypeError: when it is endless, or only known after reading.
        """
        length = length_of(self._root)
        if length is None or length == INFINITE:
            what = "endless" if length == INFINITE else "only known after reading (a filter, flat_map, unbatch or generator)"
            raise LengthUnknown(f"the length of this dataset is {what}", where="len(ds)", fix="count while you iterate, or use take(n)")
        return int(length)

    def __bool__(self) -> bool:
        """Return True: a dataset is a description, whatever it will give; `if ds:` does not count it."""
        return True

    def __getitem__(self, index: int) -> Any:
        """Compute element `index` in the caller's thread: what the feed delivers at that place.

        Raises:
            IndexError: when it is out of range. Negative indices count from the end.
            PlanError: behind a filter, flat_map, unbatch or generator; or it is no whole number, such as a slice.
        """
        check.indexable(self._root, "ds[i]", "iterate, or index the dataset below the filter")
        length = length_of(self._root)
        place = check.index_argument(index)
        if place < 0 and length not in (None, INFINITE):
            place += int(length or 0)
        far = place > ROOM and highest_number(self._root, place) >= 2**63
        if far or not 0 <= place < min(2**63, INFINITE if length is None else length):
            raise OutOfRange(f"index {index} of {length} elements", where="ds[i]", fix="use 0..len(ds)-1")
        from penstock._engine.peek import Peek

        if self._peek is None:
            self._peek = Peek(self._root)
        return self._peek.element(place)

    def spec(self) -> Any:
        """Push one element through and return the tree of `ArraySpec` (shape, dtype) of its leaves.

        A generator is started for it, and closed again. What a `map(fn, output_spec=...)` declares is taken as declared, and neither fn nor
        what stands below it is run: a size is then None where the declaration says so, or where only reading tells how full a batch is.
        """
        return spec_of_plan(self._root, lambda node: type(self)(node, self._options)._dry_run())

    def _dry_run(self) -> Any:
        if is_indexable(self._root):
            return map_leaves(spec_of, self[0])
        with self.feed(executor="inline") as feed:
            for element in feed:
                return map_leaves(spec_of, element)
        raise PlanError("the dataset gave no element to take a spec from", where="ds.spec()", fix="check the source and the filters")

    def explain(self, *, measure: int = 0) -> str:
        """Show how the plan will run: segments, stages, what is fused, what is written straight into the batch, and what it costs.

        Args:
            measure: run up to so many elements in this thread first, and say what one costs in each stage. 0 runs nothing.

        Raises:
            PlanError: `measure` is no whole number >= 0.
            Exception: what a function of the plan raises while it is measured.
        """
        from penstock._engine.explain import explain

        count = check.count_argument(measure, "measure", "explain")
        if count == 0:
            return explain(self._root)
        with self.feed(executor="inline") as feed:
            for _ in zip(range(count), feed, strict=False):
                pass
            stages = feed.stats().stages
        costs = [f"  stage {one.name!r}: {one.us_per_element:.1f} us, {100 * one.cpu_share:.0f} % of it on a CPU" for one in stages]
        return "\n".join([explain(self._root), "costs of an element on one worker", *costs])

    def __repr__(self) -> str:
        """Show the plan, from the source up."""
        length = length_of(self._root)
        count = "unknown length" if length is None else "endless" if length == INFINITE else f"{length} elements"
        return "\n".join([f"Dataset ({count})", *("  " + line for line in lines(self._root))])


def _options(base: Options, changes: dict[str, Any]) -> Options:
    known = Options.__dataclass_fields__
    for name in changes:
        if name not in known:
            raise PlanError(f"there is no option {name!r}", where="feed options", fix=f"the options are {', '.join(sorted(known))}")
    return replace(base, **changes)
