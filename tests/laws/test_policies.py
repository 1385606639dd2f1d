"""Policies as laws: what is delivered is what plain Python leaves over, on every executor, saved and resumed anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from feeds import state_behind
from laws.epochs import OPTIONS, rest
from laws.plans import plain

import penstock as ps
from penstock.errors import TooManySkipped

SIZE = 23
BAD = frozenset({0, 3, 4, 10, 11, 12, 17, 22})


class Faulty:
    """A map function that fails at some values, and remembers what it was called with."""

    def __init__(self, bad: frozenset[int] = BAD) -> None:
        self.bad, self.calls = bad, list[int]()

    def __call__(self, value: Any) -> Any:
        number = int(np.max(value))
        self.calls.append(number)
        if number in self.bad:
            raise ValueError(f"bad {number}")
        return value

    def __repr__(self) -> str:
        return "Faulty()"


def numbers(count: int = SIZE) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def generated(count: int = SIZE) -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(count)), fast_forward=True)


def odd(value: Any) -> bool:
    return int(value) % 2 == 1


def twice(value: Any) -> list[Any]:
    return [value, value + 100]


def tokens(value: Any) -> Any:
    return np.full(1 + int(value) % 4, int(value), np.int32)


def length(value: Any) -> int:
    return len(value)


def groups(values: list[Any], size: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), size)]


Build = Callable[[Callable[[Any], Any]], ps.Dataset]
Reference = Callable[[Callable[[int], bool]], list[Any]]
SKIP = ps.Skip()


def row(name: str, build: Build, reference: Reference) -> Any:
    return pytest.param(build, reference, id=name)


def shortened(good: Callable[[int], bool], size: int, values: Any = range(SIZE)) -> list[Any]:
    """Return batches by position without what is not good, and without those that have nothing left."""
    return [batch for group in groups(list(values), size) if (batch := kept(good, group))]


def kept(good: Callable[[int], bool], values: Any = range(SIZE)) -> list[Any]:
    return [value for value in values if good(value)]


ROWS = [
    row("map", lambda f: numbers().map(f, on_error=SKIP), kept),
    row("batch", lambda f: numbers().map(f, on_error=SKIP).batch(4), lambda g: shortened(g, 4)),
    row("two passes of batches", lambda f: numbers().map(f, on_error=SKIP).batch(4).repeat(2), lambda g: shortened(g, 4) * 2),
    row("a dropped remainder", lambda f: numbers().map(f, on_error=SKIP).batch(4, drop_remainder=True), lambda g: shortened(g, 4)[:5]),
    row(
        "workers of its own",
        lambda f: numbers().map(abs).map(f, on_error=SKIP, concurrency=2).map(abs).batch(4),
        lambda g: shortened(g, 4),
    ),
    row(
        "take behind a filter counts what is left",
        lambda f: numbers().filter(odd).map(f, on_error=SKIP).take(5).batch(2),
        lambda g: groups(kept(g, range(1, SIZE, 2))[:5], 2),
    ),
    row("a filter that fails", lambda f: numbers().filter(lambda x: f(x) >= 0, on_error=SKIP).batch(3), lambda g: groups(kept(g), 3)),
    row(
        "a flat_map that fails",
        lambda f: numbers().flat_map(lambda x: twice(f(x)), on_error=SKIP).batch(3),
        lambda g: groups([y for x in kept(g) for y in twice(x)], 3),
    ),
    row(
        "behind a flat_map",
        lambda f: numbers().flat_map(twice).map(f, on_error=SKIP).batch(3),
        lambda g: groups([y for x in range(SIZE) for y in twice(x) if g(y)], 3),
    ),
    row("a generator", lambda f: generated().map(f, on_error=SKIP).batch(4), lambda g: groups(kept(g), 4)),
    row(
        "whole batches",
        lambda f: numbers().batch(2).map(f, on_error=SKIP),
        lambda g: [b for b in groups(list(range(SIZE)), 2) if g(max(b))],
    ),
    row(
        "whole batches of a filter, counted",
        lambda f: numbers().filter(odd).batch(2).map(f, on_error=SKIP).take(4),
        lambda g: [b for b in groups(list(range(1, SIZE, 2)), 2) if g(max(b))][:4],
    ),
    row(
        "packed",
        lambda f: numbers().map(f, on_error=SKIP).map(tokens).pack_sequences(6, num_bins=3).map(lambda r: r["tokens"]),
        lambda g: _packed(kept(g)),
    ),
    row(
        "bucketed",
        lambda f: numbers().map(f, on_error=SKIP).map(tokens).bucket_by_length(length, [3], [3, 2]).map(lambda b: b[:, 0]),
        lambda g: _bucketed(kept(g)),
    ),
    row(
        "windows",
        lambda f: numbers().map(f, on_error=SKIP).window(3, 2),
        lambda g: [w for x in _windows([*range(SIZE)], 3, 2) if (w := kept(g, x))],
    ),
]


def _packed(values: list[int]) -> list[Any]:
    bins: list[list[int]] = []
    out = []
    for value in values:
        some = [value] * (1 + value % 4)
        one = next((one for one in bins if len(one) + len(some) <= 6), None)
        if one is None:
            if len(bins) == 3:
                out.append(bins.pop(max(range(3), key=lambda place: len(bins[place]))))
            one = []
            bins.append(one)
        one.extend(some)
        if len(one) == 6:
            bins = [other for other in bins if other is not one]
            out.append(one)
    return [one + [0] * (6 - len(one)) for one in out + bins]


def _bucketed(values: list[int]) -> list[Any]:
    buckets: tuple[list[int], list[int]] = ([], [])
    out = []
    for value in values:
        number = int(1 + value % 4 >= 3)
        buckets[number].append(value)
        if len(buckets[number]) == (3, 2)[number]:
            out.append(list(buckets[number]))
            buckets[number].clear()
    return out + [bucket for bucket in buckets if bucket]


def _windows(values: list[int], size: int, shift: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), shift)]


def fine(value: int) -> bool:
    return value not in BAD


def lost(state: dict[str, Any]) -> int:
    again = [] if state["position"] is None else [known for record in state["position"]["folds"] if record[5:] for known in record[5]]
    return sum(entry[2] for entry in state.get("lost", [])) + len(again)


@pytest.mark.parametrize(("build", "reference"), ROWS)
def test_a_state_saved_anywhere_resumes_with_the_same_elements_and_the_same_count(build: Build, reference: Reference) -> None:
    whole = reference(fine)
    with build(Faulty()).feed(executor="inline") as feed:
        states = [feed.state_dict(), *(feed.state_dict() for _ in feed)]
    counts = [lost(state) for state in states]
    assert counts == sorted(counts)
    for stop, state in enumerate(states):
        with build(Faulty()).feed(**OPTIONS[stop % 4]) as feed:
            feed.load_state_dict(json.loads(json.dumps(state)))
            assert feed.stats().num_skipped == counts[stop]
            middle = [plain(next(feed)) for _ in range(min(2, len(whole) - stop))]
            again = feed.state_dict()
            assert lost(again) == counts[stop + len(middle)]
        with build(Faulty()).feed(**OPTIONS[(stop + 1) % 4]) as feed:
            feed.load_state_dict(again)
            assert whole[:stop] + middle + [plain(item) for item in rest(feed)] == whole


@pytest.mark.parametrize(("build", "reference"), ROWS)
def test_an_element_that_was_skipped_before_the_save_is_skipped_again_without_being_run(build: Build, reference: Reference) -> None:
    if any(name in str(build(abs)) for name in ("repeat", "window")):  # a value does not say where the save was
        return
    with build(Faulty()).feed(executor="inline") as feed:
        head = []
        states = [feed.state_dict()]
        for item in feed:
            head.append(plain(item))
            states.append(feed.state_dict())
    for stop, state in enumerate(states):
        mended = Faulty(frozenset())
        with build(mended).feed(**OPTIONS[stop % 4]) as feed:
            feed.load_state_dict(state)
            tail = [plain(item) for item in rest(feed)]
        found = [border for border in range(200) if reference(lambda x, border=border: fine(x) or x >= border) == head[:stop] + tail]
        assert found, (stop, head[:stop], tail)
        assert not {value for value in mended.calls if value < found[0] and value in BAD}


def standing_in(order: list[int], bad: frozenset[int] = BAD) -> list[int]:
    """Put the next good one of the order in the place of each bad one."""
    return [next(value for value in (order[place:] + order[:place]) if value not in bad) for place in range(len(order))]


def shuffled(epoch: int, seed: int = 5) -> list[int]:
    with numbers().shuffle(seed=seed).repeat(2).feed(executor="inline") as feed:
        return [plain(item) for item in feed][epoch * SIZE : (epoch + 1) * SIZE]


REPLACE = ps.Replace()
REPLACED = [
    row("map", lambda f: numbers().map(f, on_error=REPLACE), lambda g: standing_in(list(range(SIZE)))),
    row("batch", lambda f: numbers().map(f, on_error=REPLACE).batch(4), lambda g: groups(standing_in(list(range(SIZE))), 4)),
    row(
        "two passes of a shuffled order",
        lambda f: numbers().shuffle(seed=5).map(f, on_error=REPLACE).batch(4).repeat(2),
        lambda g: groups(standing_in(shuffled(0)), 4) + groups(standing_in(shuffled(1)), 4),
    ),
    row("an element outside a take never stands in", lambda f: numbers().take(4).map(f, on_error=REPLACE), lambda g: [1, 1, 2, 1]),
    row(
        "the last stage of several",
        lambda f: numbers().map(abs).map(abs, concurrency=1).map(f, on_error=REPLACE, concurrency=2).batch(4),
        lambda g: groups(standing_in(list(range(SIZE))), 4),
    ),
    row(
        "below a filter",
        lambda f: numbers().map(f, on_error=REPLACE).filter(odd).batch(3),
        lambda g: groups([value for value in standing_in(list(range(SIZE))) if value % 2], 3),
    ),
    row(
        "below a flat_map",
        lambda f: numbers().map(f, on_error=REPLACE).flat_map(twice),
        lambda g: [y for value in standing_in(list(range(SIZE))) for y in twice(value)],
    ),
    row(
        "windows of a filter",
        lambda f: numbers().map(f, on_error=REPLACE).filter(odd).window(3, 2),
        lambda g: _windows([value for value in standing_in(list(range(SIZE))) if value % 2], 3, 2),
    ),
]


@pytest.mark.parametrize(("build", "reference"), REPLACED)
def test_a_state_saved_anywhere_among_replaced_elements_resumes_with_the_same(build: Build, reference: Reference) -> None:
    whole = reference(fine)
    with build(Faulty()).feed(executor="inline") as feed:
        states = [feed.state_dict(), *(feed.state_dict() for _ in feed)]
    counts = [lost(state) for state in states]
    for stop, state in enumerate(states):
        with build(Faulty()).feed(**OPTIONS[stop % 4]) as feed:
            feed.load_state_dict(json.loads(json.dumps(state)))
            assert feed.stats().num_replaced == counts[stop]
            assert [plain(item) for item in rest(feed)] == whole[stop:]
            assert lost(feed.state_dict()) == counts[-1]


@pytest.mark.parametrize(("build", "reference"), REPLACED[-2:])
def test_what_stood_in_before_the_save_stands_in_again_where_it_is_needed_again(build: Build, reference: Reference) -> None:
    head = []
    with build(Faulty()).feed(executor="inline") as feed:
        states = [feed.state_dict()]
        for item in feed:
            head.append(plain(item))
            states.append(feed.state_dict())
    order = list(range(SIZE))
    for stop, state in enumerate(states):
        with build(Faulty(frozenset())).feed(executor="inline") as feed:
            feed.load_state_dict(state)
            tail = [plain(item) for item in rest(feed)]
        mixed = [[*standing_in(order)[:border], *order[border:]] for border in range(SIZE + 1)]
        if "flat_map" in str(build(abs)):
            assert any([y for x in one for y in twice(x)] == head[:stop] + tail for one in mixed), stop
        else:
            assert any(_windows([x for x in one if x % 2], 3, 2) == head[:stop] + tail for one in mixed), stop


def test_an_element_that_fails_only_after_the_resume_raises_where_leaving_it_out_would_shift_others() -> None:
    def build(fn: Faulty) -> ps.Dataset:
        return numbers().map(fn, on_error=SKIP).map(tokens).pack_sequences(6, num_bins=3)

    state = state_behind(build(Faulty(frozenset())), executor="inline")
    for options in OPTIONS:
        with build(Faulty(frozenset({0}))).feed(**options) as feed:
            feed.load_state_dict(state)
            with pytest.raises(ValueError, match="bad 0") as caught:
                list(feed)
        assert any("it did not fail before; left out now, it would shift all behind it" in note for note in caught.value.__notes__)


class Flaky:
    """Fails the first `times` calls for some values."""

    def __init__(self, bad: frozenset[int], times: int, error: type[Exception] = OSError) -> None:
        self.left = dict.fromkeys(bad, times)
        self.error = error

    def __call__(self, value: Any) -> Any:
        if self.left.get(int(value), 0) > 0:
            self.left[int(value)] -= 1
            raise self.error(f"not yet {value}")
        return value


@pytest.mark.parametrize("options", [OPTIONS[0], *OPTIONS[2:]])
def test_a_retry_runs_the_element_again_with_the_same_key_and_random_numbers(options: dict[str, Any]) -> None:
    flaky = Flaky(BAD, 2)

    def noisy(value: Any, rng: np.random.Generator) -> Any:
        drawn = int(rng.integers(1000))
        flaky(value)
        return value * 1000 + drawn

    def plainly(value: Any, rng: np.random.Generator) -> Any:
        return value * 1000 + int(rng.integers(1000))

    with numbers().map(plainly, name="noisy").batch(4).feed(executor="inline") as feed:
        whole = [plain(item) for item in feed]
    with numbers().map(noisy, name="noisy", on_error=ps.Retry(2)).batch(4).feed(**options) as feed:
        assert [plain(item) for item in rest(feed)] == whole
        (stage,) = feed.stats().failures
        assert (stage.stage, stage.num_retries, stage.num_skipped) == ("noisy", 2 * len(BAD), 0)
        assert "  failed: stage 'noisy': 16 retries" in feed.report().splitlines()


def test_the_last_error_says_how_often_it_was_tried_and_no_other_element_is_lost() -> None:
    with numbers().map(Flaky(frozenset({5}), 9), on_error=ps.Retry(3)).feed(executor="threads", num_workers=2) as feed:
        got = [plain(next(feed)) for _ in range(5)]
        with pytest.raises(OSError, match="not yet 5") as caught:
            next(feed)
    assert got == [0, 1, 2, 3, 4]
    assert "penstock: tried 4 times" in caught.value.__notes__


@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_no_policy_hides_an_error_that_would_pass_for_an_end(error: type[BaseException]) -> None:
    def fn(value: int) -> int:
        if value == 2:
            raise error
        return value

    with numbers().map(fn).feed(executor="threads", num_workers=1, on_error=ps.Retry(2, then=ps.Skip())) as feed:
        assert [next(feed), next(feed)] == [0, 1]
        with pytest.raises(ps.errors.StopRaised):
            next(feed)


@pytest.mark.parametrize("options", [OPTIONS[0], *OPTIONS[2:]])
def test_the_policy_of_an_operator_goes_before_the_feeds_which_is_that_of_reading(options: dict[str, Any]) -> None:
    class Unreadable(list[int]):
        def __getitem__(self, index: Any) -> Any:
            if index in (2, 7):
                raise OSError(index)
            return super().__getitem__(index)

    ds = ps.from_source(Unreadable(range(10))).map(Faulty(frozenset({4})), on_error=ps.Replace())
    with ds.batch(3).feed(on_error=ps.Skip(), **options) as feed:
        assert [plain(item) for item in feed] == [[0, 1], [3, 5, 5], [6, 8], [9]]
        failures = {stage.stage: (stage.num_skipped, stage.num_replaced) for stage in feed.stats().failures}
    assert failures == {"read": (2, 0), "Faulty()": (0, 1)}
    with ds.map(abs).feed(on_error=ps.Skip(errors=ValueError), **options) as feed, pytest.raises(OSError):
        list(feed)


@pytest.mark.parametrize("options", [OPTIONS[0], *OPTIONS[2:]])
@pytest.mark.parametrize("policy", [ps.Skip(limit=3), ps.Replace(limit=3), ps.Skip(limit=0.03), ps.Retry(1, then=ps.Skip(limit=3))])
def test_one_more_than_the_limit_is_an_error_behind_everything_before_it(policy: Any, options: dict[str, Any]) -> None:
    with numbers().map(Faulty(), on_error=policy).feed(**options) as feed:
        got = []
        with pytest.raises(TooManySkipped) as caught:
            got.extend(plain(item) for item in feed)
        state = feed.state_dict()
    assert str(caught.value.__cause__) == "bad 10"
    name = "Replace" if isinstance(policy, ps.Replace) else "Skip"
    assert "4 " in caught.value.what
    assert name + "(limit=" in caught.value.where
    assert "of stage 'Faulty()'; the last one: epoch 0 index 10" in caught.value.where
    assert "a quarantine= file lists them all" in caught.value.fix
    with numbers().map(Faulty(), on_error=policy).feed(**options) as feed:
        feed.load_state_dict(state)
        with pytest.raises(TooManySkipped):
            list(feed)
    assert state["step"] == len(got) == (10 if isinstance(policy, ps.Replace) else 7)


def test_the_words_of_both_limits() -> None:
    rate = "2 of 4 elements of this pass were skipped, the limit is 0.01 of them"
    for limit, words in ((1, "2 elements were skipped, the limit is 1"), (0.01, rate)):
        with numbers().map(Faulty()).feed(on_error=ps.Skip(limit=limit)) as feed, pytest.raises(TooManySkipped) as caught:
            list(feed)
        assert caught.value.what == words
        assert "of on_error; the last one: epoch 0 index 3" in caught.value.where


@pytest.mark.parametrize("policy", [ps.Skip(), ps.Replace()])
def test_every_shard_makes_equal_steps(policy: Any) -> None:
    steps = []
    for index in range(3):
        shard = numbers(24).shuffle(seed=3).shard(3, index)
        with shard.map(Faulty(), on_error=policy).batch(4).repeat(2).feed() as feed:
            got = [plain(item) for item in feed]
            texts = feed.stats().notices
        with shard.repeat(2).feed() as feed:
            own = {plain(item) for item in feed}
        assert {value for item in got for value in item} <= own - BAD
        assert any("Skip left an element out of its batch" in text for text in texts) == isinstance(policy, ps.Skip)
        steps.append(len(got))
    assert steps == [4, 4, 4]


def test_beside_a_shard_a_batch_of_which_nothing_is_left_is_an_error_that_names_replace() -> None:
    for bad, ds in (
        ({2, 3}, numbers(8).shard(1, 0).map(Faulty(frozenset({2, 3}))).batch(2)),
        ({3}, numbers(8).shard(2, 1).map(Faulty(frozenset({3})))),
    ):
        with ds.feed(executor="threads", num_workers=2, on_error=ps.Skip()) as feed:
            next(feed)
            with pytest.raises(TooManySkipped) as caught:
                next(feed)
        assert "beside shard() every rank must make as many steps" in caught.value.what
        assert "Replace()" in caught.value.fix
        assert str(caught.value.__cause__) == f"bad {max(bad)}"
    with pytest.raises(ps.errors.PlanError, match="Skip would leave out a whole batch"):
        numbers(8).shard(2, 0).batch(2).map(abs, on_error=ps.Skip()).feed()


def test_an_element_without_another_one_raises_and_says_so() -> None:
    with (
        numbers(3).map(Faulty(frozenset({0, 1, 2})), on_error=ps.Replace()).feed() as feed,
        pytest.raises(ValueError, match="bad 0") as caught,
    ):
        list(feed)
    assert "penstock: Replace() gave up: the next 2 elements failed as well" in caught.value.__notes__
    with numbers(1).map(Faulty(frozenset({0})), on_error=ps.Replace()).feed() as feed, pytest.raises(ValueError, match="bad 0") as caught:
        list(feed)
    assert "penstock: Replace() gave up: there is no other element to put in its place" in caught.value.__notes__


@pytest.mark.parametrize("options", [OPTIONS[0], *OPTIONS[2:]])
@pytest.mark.parametrize("policy", [ps.Skip(), ps.Retry(1, then=ps.Replace())])
def test_async_functions_have_policies_too(policy: Any, options: dict[str, Any]) -> None:
    async def ask(value: int) -> int:
        if value in BAD:
            raise OSError(f"bad {value}")
        return value

    with numbers().map(ask, on_error=policy, concurrency=4).batch(4).feed(**options) as feed:
        got = [plain(item) for item in feed]
    assert got == (shortened(fine, 4) if isinstance(policy, ps.Skip) else groups(standing_in(list(range(SIZE))), 4))


def test_a_state_moves_between_policies() -> None:
    whole = [plain(item) for item in numbers().map(Faulty(frozenset())).batch(4)]
    with numbers().map(Faulty(frozenset())).batch(4).feed() as feed:
        head = [plain(next(feed)), plain(next(feed))]
        state = feed.state_dict()
    with numbers().map(Faulty(), on_error=SKIP).batch(4).feed() as feed:
        feed.load_state_dict(state)
        middle = [plain(next(feed))]
        state = feed.state_dict()
        assert feed.stats().num_skipped >= 2
    assert head + middle == [*whole[:2], [8, 9]]
    with numbers().map(Faulty(frozenset())).batch(4).feed() as feed:
        feed.load_state_dict(state)
        assert [plain(item) for item in feed] == whole[3:]
        assert feed.stats().num_skipped == 2


def test_a_shortened_batch_is_told_once_a_feed_and_a_locked_spec_names_replace() -> None:
    told: list[str] = []
    heard = [lambda event: told.append(getattr(event, "text", ""))]
    with numbers(8).map(Faulty(frozenset({3})), on_error=SKIP).batch(4).feed(executor="inline", listeners=heard) as feed:
        for _ in range(3):
            assert [len(batch) for batch in feed] == [3, 4]
        assert len([text for text in told if "Skip left an element out of its batch" in text]) == 1
    with numbers(8).map(Faulty(frozenset({7})), on_error=SKIP).batch(4).feed(executor="inline") as feed:
        feed.finalize()
        next(feed)
        with pytest.raises(ps.errors.SpecError) as caught:
            next(feed)
    assert "Replace() where Skip shortens them" in caught.value.fix


def test_a_quarantine_that_cannot_be_written_stops_the_feed(tmp_path: Any) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with numbers().map(Faulty(), on_error=ps.Skip(quarantine=folder / "bad.jsonl")).feed() as feed:
        folder.rmdir()
        with pytest.raises(FileNotFoundError) as failed:
            list(feed)
    assert any("writing the quarantine file" in note for note in failed.value.__notes__)


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"executor": "threads", "num_workers": 2}], ids=str)
@pytest.mark.parametrize("memory_bytes", [1, 1 << 20])
def test_of_results_that_fill_the_memory_one_by_one_only_the_failing_ones_are_left_out(options: dict[str, Any], memory_bytes: int) -> None:
    def pair(value: Any) -> Any:
        if int(value) % 3 == 1:
            raise ValueError(value)
        return value, value

    ds = ps.from_source(range(9)).window(3, 3).unbatch().map(pair, on_error=ps.Skip())
    for plan, wanted in ((ds, [0, 2, 3, 5, 6, 8]), (ds.map(abs_of_first).filter(lambda value: value != 3), [0, 2, 5, 6, 8])):
        with plan.feed(memory_bytes=memory_bytes, **options) as feed:
            assert [int(np.ravel(value)[0]) for value in feed] == wanted
            assert feed.stats().num_skipped == 3


def abs_of_first(value: Any) -> Any:
    return abs(value[0])
