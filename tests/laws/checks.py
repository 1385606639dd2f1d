"""The laws over random plans, as functions that raise `Broken`: not assert statements, so that they hold under `python -O` too."""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from laws import reference as ref
from laws.plans import MOST, RANDOM, Plan, options, plans

import penstock as ps

__all__ = ["LAWS", "LawBroken", "canonical", "deliver", "limited"]

CPU_LIMIT_S, LIMIT_S = 10, 60
"""A run that takes more CPU time spins, and one that takes longer hangs: a slow one takes 0.5 s, on a machine with nothing else to do."""

Draw = Callable[[st.SearchStrategy[Any]], Any]


class LawBroken(AssertionError):
    """A plan that does not do what the reference says."""


@contextmanager
def limited(what: str, limit_s: float = LIMIT_S, cpu_limit_s: float = CPU_LIMIT_S) -> Iterator[None]:
    """Raise LawBroken in this thread when the body takes longer, or the process more CPU time meanwhile."""
    rung: list[int] = []
    timers = [(signal.SIGALRM, signal.ITIMER_REAL, limit_s), (signal.SIGPROF, signal.ITIMER_PROF, cpu_limit_s)]

    def ring(*_: Any) -> None:
        rung.append(1)
        raise KeyboardInterrupt  # which no policy holds for a failing element

    before = [signal.signal(number, ring) for number, _, _ in timers]
    for _, timer, most_s in timers:
        signal.setitimer(timer, most_s, 1.0)
    try:
        yield
    except BaseException:
        if not rung:
            raise
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
    if rung:
        raise LawBroken(f"{what} took more than {limit_s} s, or {cpu_limit_s} s of CPU time")


def canonical(item: Any, *, random: bool = True) -> Any:
    """Turn an element into a value that == compares: structure, dtypes and shapes of arrays, numbers; without random ones if asked."""
    if isinstance(item, dict):
        return {key: np.shape(value) if key == RANDOM and not random else canonical(value, random=random) for key, value in item.items()}
    if isinstance(item, tuple):
        return tuple(canonical(part, random=random) for part in item)
    if isinstance(item, np.ndarray):
        return item.dtype.str, item.shape, item.tolist()
    return item.item() if isinstance(item, np.generic) else item


@dataclass
class Got:
    """What a feed delivered: canonical elements, the error behind them, the counts, the state."""

    items: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    num_skipped: int = 0
    num_replaced: int = 0
    state: Any = None


def deliver(plan: Plan, way: dict[str, Any], *, most: int = MOST, state: Any = None, dataset: ps.Dataset | None = None) -> Got:
    """Run a plan up to `most` elements."""
    got = Got()
    with warnings.catch_warnings(), limited(f"{plan!r} with {way}"):
        warnings.simplefilter("ignore")
        try:
            feed = (dataset or plan.dataset).feed(**{**plan.policies, "stall_timeout_s": 15.0, **way})
        except ps.errors.PlanError:
            assume(False)
            raise
        with feed:
            if state is not None:
                feed.load_state_dict(state)
            try:
                while len(got.items) < most and feed.epoch == 0:
                    got.items.append(canonical(next(feed)))
            except StopIteration:
                pass
            except LawBroken:
                raise
            except ps.errors.PlanError:
                assume(False)
            except Exception as error:
                got.error = error
            stats = feed.stats()
            got.num_skipped, got.num_replaced = stats.num_skipped, stats.num_replaced
            got.state = json.loads(json.dumps(feed.state_dict()))
    return got


def expected(plan: Plan, most: int = MOST) -> ref.Outcome | None:
    """Return what the reference says, or None where it says nothing."""
    try:
        return plan.outcome(most)
    except ref.Undetermined:
        return None
    except ref.Endless:
        assume(False)
        raise


def told(error: BaseException) -> str:
    if isinstance(error, (ps.errors.SpecError, ps.errors.TooManySkipped)):
        return type(error).__name__
    if isinstance(error, ps.errors.SourceError):
        return f"SourceError: {error.what}"
    return f"{type(error).__name__}: {error}"


def differ(plan: Plan, way: Any, got: Any, wanted: Any, what: str, cause: BaseException | None = None) -> None:
    if got != wanted:
        raise LawBroken(f"{what} of {plan!r} with {way}:\n  got    {got!r:.1500}\n  wanted {wanted!r:.1500}") from cause


def compare(plan: Plan, way: Any, got: Got, wanted: ref.Outcome) -> None:
    """Hold what a feed delivered against the reference."""
    ours = [canonical(item, random=False) for item in wanted.items]
    errors = sorted({told(error) for error in wanted.errors})
    theirs = [_without_random(item) for item in got.items]
    found = None if got.error is None else told(got.error)
    differ(plan, way, (theirs, found), (ours, found if found in errors else (errors or None)), "items and error", got.error)
    if wanted.ended and not wanted.errors and not plan.removes:
        counts = got.num_skipped, got.num_replaced
        differ(plan, way, counts, (wanted.num_skipped, wanted.num_replaced), "numbers of skipped and replaced")


def _without_random(item: Any) -> Any:
    if isinstance(item, dict):
        return {
            key: (value[1] if isinstance(value, tuple) else ()) if key == RANDOM else _without_random(value) for key, value in item.items()
        }
    if isinstance(item, tuple):
        return tuple(map(_without_random, item))
    return item


def same(plan: Plan, way: Any, got: Got, whole: Got, what: str, begin: int = 0) -> None:
    """Hold a run against another run of the same plan, that began `begin` elements earlier."""
    one, other = got.error, whole.error
    differ(
        plan,
        way,
        (got.items, one and told(one)),
        (whole.items[begin : begin + len(got.items)] if len(whole.items) == MOST else whole.items[begin:], other and told(other)),
        what,
        one,
    )


def whole_run(plan: Plan) -> Got:
    """Run it in line, and hold it against the reference where that says something."""
    wanted = expected(plan)
    got = deliver(plan, {"executor": "inline"})
    if wanted is not None:
        compare(plan, "inline", got, wanted)
    return got


# -- the laws ---------------------------------------------------------------------------------------------------------------------


def every_executor_delivers_what_the_reference_says(plan: Plan, draw: Draw) -> None:
    whole = whole_run(plan)
    way = draw(options())
    got = deliver(plan, way)
    same(plan, way, got, whole, "items and error")
    if len(whole.items) < MOST and whole.error is None and not plan.removes:
        counts = whole.num_skipped, whole.num_replaced
        differ(plan, way, (got.num_skipped, got.num_replaced), counts, "numbers of skipped and replaced")


def saved_twice_anywhere_it_is_the_run_that_never_stopped(plan: Plan, draw: Draw) -> None:
    whole = whole_run(plan)
    first = draw(st.integers(0, len(whole.items)))
    second = draw(st.integers(0, len(whole.items) - first))
    ways = [draw(options()) for _ in range(3)]
    items: list[Any] = []
    state = None
    for most, way in zip((first, second), ways, strict=False):
        got = deliver(plan, way, most=most, state=state)
        if got.error is not None:
            raise LawBroken(f"{plan!r} with {ways}, saved behind {first} and {second}: {got.error!r} before it was due")
        items += got.items
        state = got.state
    last = deliver(plan, ways[2], most=MOST - len(items), state=state)
    last.items = items + last.items
    same(plan, (ways, first, second), last, whole, "items and error of a run that was stopped twice")


def without_order_the_same_items_come(plan: Plan, draw: Draw) -> None:
    ways = [{**draw(options()), "ordered": draw(st.sampled_from([False, False, True]))} for _ in range(3)]
    whole = whole_run(plan)
    assume(whole.error is None and len(whole.items) < MOST)
    items: list[Any] = []
    state = None
    for way, most in zip(ways, (draw(st.integers(0, len(whole.items))), draw(st.integers(0, 5)), MOST), strict=True):
        got = deliver(plan, way, state=state, most=most)
        if got.error is not None:
            raise LawBroken(f"{plan!r} with {way}: {got.error!r}")
        items, state = items + got.items, got.state
    differ(plan, ways, sorted(map(repr, items)), sorted(map(repr, whole.items)), "all items of a run that was stopped twice")


def completed_elements_come_once(plan: Plan, draw: Draw) -> None:
    try:
        completed = plan.dataset.as_completed()
    except ps.errors.PlanError:
        assume(False)
        raise
    whole = whole_run(plan)
    assume(whole.error is None and len(whole.items) < MOST)
    size = draw(st.integers(1, 4))
    copies = draw(st.sampled_from([1, 2]))
    assume(len(whole.items) * copies < MOST)
    dataset = completed.flat_map(lambda x: [x] * copies).batch(size, collate_fn=list) if draw(st.booleans()) else completed
    ways = [draw(options()) for _ in range(3)]
    items: list[Any] = []
    state = None
    for way, most in zip(ways, (draw(st.integers(0, len(whole.items))), draw(st.integers(0, 5)), MOST), strict=True):
        got = deliver(plan, way, state=state, most=most, dataset=dataset)
        if got.error is not None:
            raise LawBroken(f"{plan!r} with {way}: {got.error!r}")
        items, state = items + got.items, got.state
    if dataset is not completed:
        items = [canonical(element) for batch in items for element in batch]
    wanted = whole.items * (copies if dataset is not completed else 1)
    differ(plan, ways, sorted(map(repr, items)), sorted(map(repr, wanted)), "all completed elements of a run that was stopped twice")


def what_a_dataset_remembers_changes_nothing(plan: Plan, draw: Draw) -> None:
    whole = whole_run(plan)
    for _ in range(3):
        way, most = draw(options()), min(MOST, draw(st.integers(0, len(whole.items) + 1)))
        got = deliver(plan, way, most=most)
        differ(plan, way, got.items, whole.items[:most], f"the first {most} items of a dataset that was fed before")
        if most <= len(whole.items) and got.error is not None:
            raise LawBroken(f"{plan!r} with {way} up to {most}: {got.error!r} before it was due")
        if most > len(whole.items):
            same(plan, way, got, whole, "items and error of a dataset that was fed before")


def element_i_is_what_the_feed_delivers_at_place_i(plan: Plan, draw: Draw) -> None:
    assume(plan.indexable and not plan.fails)
    whole = whole_run(plan)
    assume(whole.error is None)
    size = plan.node.size()
    if size != ref.INFINITE:
        differ(plan, "len", len(plan.dataset), size, "length")
    got = [canonical(plan.dataset[place]) for place in range(min(MOST, int(min(size, MOST))))]
    differ(plan, "ds[i]", got, whole.items, "elements by their places")


@dataclass(frozen=True)
class Law:
    """A law, and the plans that it is about."""

    check: Callable[[Plan, Draw], None]
    plans: st.SearchStrategy[Plan]


LAWS = {
    "executors": Law(every_executor_delivers_what_the_reference_says, plans(failing=True, endless=True, random=True)),
    "resumes": Law(saved_twice_anywhere_it_is_the_run_that_never_stopped, plans(failing=True, endless=True, random=True)),
    "unordered": Law(without_order_the_same_items_come, plans(failing=True, random=True)),
    "completed": Law(completed_elements_come_once, plans(most_steps=3, failing=True, random=True)),
    "feeds": Law(what_a_dataset_remembers_changes_nothing, plans(failing=True, endless=True, random=True)),
    "places": Law(element_i_is_what_the_feed_delivers_at_place_i, plans(endless=True, random=True)),
}
