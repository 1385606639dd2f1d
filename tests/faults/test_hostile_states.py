"""States with a right checksum and one value that no feed wrote, of every kind of plan: refused as a StateError, or run to a proper end."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, islice
from typing import Any

import pytest
from faults.test_resume import copies, keep
from faults.test_resume_operators import small, tokens, two
from hypothesis import given
from hypothesis import strategies as st
from sources.streams import Numbers

import penstock as ps
from penstock._plan.saved import sealed

COUNT = 46


def bad(x: int) -> int:
    if x in (3, 8, 20):
        raise ValueError(x)
    return x


def source() -> ps.Dataset:
    return ps.from_source(range(COUNT))


def mixed() -> ps.Dataset:
    return source().shuffle(seed=1).mix(source(), weights=[2, 1], stop="all_exhausted").batch(4)


SKIP = ps.Skip()
UNORDERED = {"ordered": False}
PLANS: dict[str, tuple[Callable[[], ps.Dataset], dict[str, Any], int]] = {
    "batches": (lambda: source().shuffle(seed=3).batch(4).repeat(3), {}, 15),
    "endless batches": (lambda: source().repeat().batch(4), {}, 15),
    "a shard": (lambda: source().shuffle(seed=1).shard(3, 1).batch(4).repeat(3), {}, 5),
    "an endless shard": (lambda: source().shard(3, 1).batch(4).repeat(), {}, 5),
    "a filter": (lambda: source().filter(keep).batch(4).repeat(3), {}, 10),
    "an endless filter": (lambda: source().filter(keep).batch(4).repeat(), {}, 10),
    "a shard above a filter": (lambda: source().filter(keep).shard(2, 0).enumerate(7).skip(2).take(10).repeat(2), {}, 4),
    "passes that are cut": (lambda: source().filter(keep).repeat(2).take(40).repeat(3), {}, 50),
    "flat_map": (lambda: source().flat_map(copies).filter(keep).take(30).batch(4).repeat(2), {}, 3),
    "buckets": (lambda: source().filter(keep).bucket_by_length(small, [2, 5], [4, 3, 2]).repeat(2), {}, 4),
    "packs": (lambda: source().map(tokens).pack_sequences(16, num_bins=3).repeat(2), {}, 3),
    "split packs": (lambda: source().map(tokens).pack_sequences(10, split=True).repeat(2), {}, 3),
    "a buffered shuffle": (lambda: source().filter(keep).shuffle(7, seed=1).repeat(2), {}, 9),
    "windows": (lambda: source().filter(keep).window(4, 3).repeat(2), {}, 3),
    "resampled": (lambda: source().rejection_resample(two, [1, 2], seed=4).repeat(2), {}, 9),
    "a stream with states": (lambda: ps.from_stream(Numbers(COUNT)).map(bad, on_error=SKIP).shuffle(9, seed=1).batch(3).repeat(2), {}, 4),
    "a generator": (lambda: ps.from_generator(lambda: iter(range(COUNT)), fast_forward=True).filter(keep).batch(4).repeat(3), {}, 4),
    "completion order": (lambda: source().shuffle(seed=1).flat_map(copies).repeat(2), UNORDERED, 20),
    "completion order of batches": (lambda: source().shuffle(seed=1).map(tokens).padded_batch(4).repeat(2), UNORDERED, 6),
    "a mix": (mixed, {}, 6),
    "a mix below a filter": (lambda: mixed().unbatch().filter(keep).batch(3), {}, 6),
    "losses": (lambda: source().map(bad, on_error=SKIP).batch(4).unbatch().shuffle(5, seed=2).repeat(2), {"on_error": SKIP}, 12),
    "replaced": (lambda: source().map(bad, on_error=ps.Replace()).shuffle(seed=1).batch(4).repeat(2), {}, 8),
    "losses in buckets": (lambda: source().flat_map(copies).map(bad, on_error=SKIP).bucket_by_length(small, [3], [6, 6]).repeat(2), {}, 4),
}  # fmt: skip


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else []


VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 7, 10**6, 2**31, 2**63 - 1, 2**63, 1 << 100, 1.5, math.nan, math.inf,
    "", "3", [], [0], [[]], {}, {"a": 1}, deep(200),
]  # fmt: skip


@pytest.fixture(scope="module")
def states() -> dict[str, Any]:
    out = {}
    for name, (build, options, steps) in PLANS.items():
        with build().feed(executor="inline", **options) as feed:
            for _ in range(steps):
                next(feed)
            out[name] = json.loads(json.dumps(feed.state_dict()))
    return out


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every leaf and container but the whole and its checksum."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if (*path, key) != ("crc32",):
            yield (*path, key)
            yield from places(value[key], (*path, key))


def changed(state: dict[str, Any], path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    """Return the state with `change(container, key)` done to a place, and the checksum that fits."""
    out = copy.deepcopy(state)
    container = out
    for key in path[:-1]:
        container = container[key]
    change(container, path[-1])
    return sealed({key: value for key, value in out.items() if key != "crc32"})


def put(value: Any) -> Callable[[Any, Any], None]:
    return lambda container, key: container.__setitem__(key, value)


def changes(old: Any) -> Iterator[Callable[[Any, Any], None]]:
    """Yield what can be done to a value: another one, none, one more, the other kind of container."""
    yield from map(put, VALUES)
    yield lambda container, key: container.__delitem__(key)
    if isinstance(old, dict):
        yield from map(put, ({**old, "extra": 1}, list(old.values()), list(old)))
    elif isinstance(old, list):
        yield from map(put, ({str(number): one for number, one in enumerate(old)}, [*old, 0], old + old, old[::-1]))
    elif type(old) is int:
        yield from map(put, (old + 1, float(old), str(old)))


@cache
def _built(name: str) -> ps.Dataset:
    return PLANS[name][0]()


def dataset(name: str) -> ps.Dataset:
    """Return the pipeline of a plan: the same one each time, but of a stream, which keeps what was put back."""
    return PLANS[name][0]() if "stream" in name else _built(name)


def run(name: str, state: dict[str, Any], *, strict: bool) -> Exception | None:
    """Load a state and take all that comes, or some of an endless plan; return the error that ended it."""
    _, options, _ = PLANS[name]
    most = 10 if "endless" in name else 300  # more than the others have
    try:
        with warnings.catch_warnings(), dataset(name).feed(executor="inline", memory_bytes=1 << 28, **options) as feed:
            warnings.simplefilter("ignore")  # a state of the end leaves nothing
            feed.load_state_dict(state, strict=strict)
            num_taken = sum(1 for _ in islice(feed, most))
    except Exception as error:
        return error
    assert num_taken < most or "endless" in name
    return None


def try_to_run(name: str, state: dict[str, Any], *, strict: bool) -> None:
    """Check that a state is refused as a StateError, or runs to a proper end, which may be what an element says."""
    error = run(name, state, strict=strict)
    if isinstance(error, ps.errors.LengthMismatch):  # of a generator, whose length no check of the state can know
        assert "the state was saved behind" in error.what
    elif isinstance(error, ValueError):  # of the function `bad`: the state no longer says that the element was left out
        assert any("it did not fail before" in note for note in error.__notes__)
    elif error is not None:
        assert isinstance(error, ps.errors.StateError), repr(error)
        assert len(error.what) < 400
        assert error.fix


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 29], ids=["all", "some"])
@pytest.mark.parametrize("name", PLANS)
def test_a_state_with_any_one_value_changed_is_refused_or_runs_to_a_proper_end(name: str, every: int, states: dict[str, Any]) -> None:
    state = states[name]
    numbers = count(1)
    for path in places(state):
        if path[:2] == ("position", "stream") and "state" in path:
            continue  # what the user's stream said of itself goes to its load_state_dict() as it is
        old = state
        for key in path:
            old = old[key]
        for change in changes(old):
            number = next(numbers)
            if number % every == 0:
                try_to_run(name, changed(state, path, change), strict=number % 3 != 0)
    assert next(numbers) > 500


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3), st.integers(0, 60)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)


@given(data=st.data())
def test_a_state_with_several_values_changed_is_refused_or_runs_to_a_proper_end(states: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in PLANS if name != "a stream with states"]))
    state = states[name]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(state))))
        state = changed(state, path, put(data.draw(JSON)))
    try_to_run(name, state, strict=data.draw(st.booleans()))


@pytest.mark.parametrize(
    ("name", "path", "value", "words"),
    [
        ("batches", ("plan",), None, "the state's plan is None, not a list"),
        ("batches", ("plan", 1), 7, "the state's plan[1] is 7, not a text"),
        ("batches", ("dataset",), {}, "the state's dataset is {}, not a list"),
        ("batches", ("dataset", 0), [1], "the state's dataset[0] is [1], not an object"),
        ("batches", ("dataset",), [], "the state's dataset is [], not a list of 1, one for each source"),
        ("batches", ("shard",), True, "the state's shard is True, not a list"),
        ("batches", ("shard",), [[3]], "the state's shard[0] is [3], not a list of 2"),
        ("a generator", ("position", "source", 0), 7, "the state's pass is 7, outside 0..2"),
        ("a generator", ("position", "source", 0), 2, "the state's pass is 2, outside 0..0"),
        ("an endless filter", ("position", "source", 0), 2**31, "the state's pass is 2147483648, outside 0..1"),
        ("endless batches", ("position", "source", 1), 2**62, "the state's position is 4611686018427387904, outside 0.."),
        ("an endless shard", ("global", "epoch"), 2**62, "the state's epoch is 4611686018427387904, outside 0.."),
        ("a stream with states", ("position", "folds", 0, 5, 0, 2), 1, "the state's replaced element is 1, outside 0..0"),
    ],
)
def test_a_value_that_no_feed_wrote_is_named_with_what_is_expected(
    name: str, path: tuple[Any, ...], value: Any, words: str, states: dict[str, Any]
) -> None:
    with pytest.raises(ps.errors.StateDamaged) as refused, PLANS[name][0]().feed() as feed:
        feed.load_state_dict(changed(states[name], path, put(value)))
    assert refused.value.what.startswith(words)
    assert refused.value.where == "load_state_dict()"
    assert "use an older checkpoint" in refused.value.fix


def test_more_results_than_an_element_gives_are_refused_in_completion_order_too(states: dict[str, Any]) -> None:
    state = changed(states["completion order"], ("position", "folds", 0, 0), put(2**31))
    with source().shuffle(seed=1).flat_map(copies).repeat(2).feed(ordered=False) as feed:
        feed.load_state_dict(state)
        with pytest.raises(ps.errors.StateMismatch, match="2147483648 results of one element were delivered, and it gives"):
            list(feed)
