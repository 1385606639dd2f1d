"""Operators that hold elements, through whole feeds: equal to plain Python, resumable behind every element, twice, with other options."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _order.references import bucketed, drawn, resampled, windowed
from core import core
from feeds import state_behind
from laws.epochs import OPTIONS, rest
from laws.plans import code, kind, packed, plain, residue, sequence

import penstock as ps

COUNT = 130


def numbers(count: int = COUNT) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def kept(value: Any) -> bool:
    return int(value) * 7 % 5 != 2


def copies(value: Any) -> list[int]:
    return [int(value) * 3 + number for number in range(int(value) % 3)]


def rows() -> Iterator[int]:
    return iter(range(COUNT))


KEPT = [value for value in range(COUNT) if kept(value)]
COPIED = [copy for value in range(COUNT) for copy in copies(value)]


def pairs(values: list[int]) -> list[tuple[int, int]]:
    return [(value, residue(value)) for value in values]


def bucket(ds: ps.Dataset, **options: Any) -> ps.Dataset:
    return ds.bucket_by_length(residue, [2, 4], [5, 3, 2], **options)


def pack(ds: ps.Dataset, **options: Any) -> ps.Dataset:
    return ds.map(sequence).pack_sequences(6, num_bins=2, **options).map(code)


def in_buckets(values: list[int], drop: bool = False) -> list[Any]:
    return bucketed(pairs(values), (2, 4), (5, 3, 2), drop)


def balanced(values: list[int], passes: int = 1) -> list[int]:
    out = resampled([[(value, kind(value)) for value in values]] * passes, [0.25, 0.5, 0.25], None, 3)
    return [value for one in out for value in one]


def weighed_draws(values: list[int]) -> list[int]:
    return drawn([(value, 8) for value in values], 0, 50, 100, 3)


def resample(ds: ps.Dataset) -> ps.Dataset:
    return ds.rejection_resample(kind, [1, 2, 1], seed=3)


def shuffled(values: list[int], size: int, number: int = 0) -> list[int]:
    return drawn([(value, 0) for value in values], number, size, 1, 3)


def again(reference: Callable[[list[int], int], list[Any]], values: list[int], passes: int = 2) -> list[Any]:
    return [item for number in range(passes) for item in reference(values, number)]


def stacked(values: list[int]) -> list[Any]:
    mixed = shuffled([value for value in shuffled(values, 20) if value % 4], 9)
    return in_buckets([value for batch in in_buckets(mixed) for value in batch][:60])


CASES: dict[str, tuple[ps.Dataset, list[Any]]] = {
    "bucket": (bucket(numbers()), in_buckets(list(range(COUNT)))),
    "bucket, the rest dropped": (bucket(numbers(), drop_remainder=True), in_buckets(list(range(COUNT)), drop=True)),
    "bucket, a bucket that never fills": (
        numbers().bucket_by_length(int, [1, 3], [9, 9, 4]),
        bucketed([(value, value) for value in range(COUNT)], (1, 3), (9, 9, 4), drop=False),
    ),
    "bucket behind a filter, twice": (bucket(numbers().filter(kept)).repeat(2), in_buckets(KEPT) * 2),
    "bucket, filter above, take": (
        bucket(numbers()).filter(lambda batch: len(batch) > 2).take(7).repeat(2),
        [batch for batch in in_buckets(list(range(COUNT))) if len(batch) > 2][:7] * 2,
    ),
    "pack, split": (pack(numbers(), split=True), packed(list(range(COUNT)), split=True)),
    "pack behind flat_map, twice, batches": (
        pack(numbers().flat_map(copies)).repeat(2).batch(4),
        [(packed(COPIED, False) * 2)[start : start + 4] for start in range(0, 2 * len(packed(COPIED, False)), 4)],
    ),
    "pack, split, take below and above": (pack(numbers().filter(kept).take(90), split=True).take(21), packed(KEPT[:90], True)[:21]),
    "shuffle behind a filter": (numbers().filter(kept).shuffle(30, seed=3), shuffled(KEPT, 30)),
    "shuffle of a generator, three passes": (
        ps.from_generator(rows, fast_forward=True).shuffle(40, seed=3).repeat(3),
        again(lambda values, number: shuffled(values, 40, number), list(range(COUNT)), 3),
    ),
    "shuffle across passes": (numbers().filter(kept).repeat(2).shuffle(30, seed=3), shuffled(KEPT * 2, 30)),
    "shuffle bounded in bytes": (numbers().filter(kept).map(np.int64).shuffle(50, seed=3, buffer_bytes=100), weighed_draws(KEPT)),
    "shuffle, take above, twice": (
        numbers().filter(kept).shuffle(30, seed=3).take(50).repeat(2),
        again(lambda values, number: shuffled(values, 30, number)[:50], KEPT),
    ),
    "window behind a filter, twice": (
        numbers().filter(kept).window(4, 2, 3).repeat(2),
        windowed([(value, 0) for value in KEPT], 4, 2, 3, drop=False) * 2,
    ),
    "resample, counted on the way": (resample(numbers().filter(kept)).repeat(2), balanced(KEPT, 2)),
    "batches that are cut in the middle of a pass, below a shuffle": (
        # A take that is full ends the pass of all above it while the batch below it is half full.
        numbers(40).filter(kept).batch(3).filter(len).take(4).map(lambda batch: int(batch.sum())).shuffle(2, seed=3).repeat(3),
        again(lambda values, number: shuffled([sum(values[at : at + 3]) for at in (0, 3, 6, 9)], 2, number), KEPT, 3),
    ),
    "stacked": (
        bucket(
            bucket(numbers().filter(kept).shuffle(20, seed=3).filter(lambda value: int(value) % 4).shuffle(9, seed=3)).unbatch().take(60)
        ),
        stacked(KEPT),
    ),
}


def one_by_one(ds: ps.Dataset, options: dict[str, Any]) -> list[str]:
    """Return the state at the start and behind each element, as JSON."""
    with ds.feed(**options) as feed:
        states = [json.dumps(feed.state_dict())]
        states.extend(json.dumps(feed.state_dict()) for _ in feed)
    return states


@pytest.mark.parametrize("case", core(CASES, ["stacked"]))
def test_every_state_resumes_with_other_options_and_so_does_a_state_of_that_run(case: str) -> None:
    ds, wanted = CASES[case]
    states = one_by_one(ds, {"executor": "threads", "num_workers": 2})
    assert len(states) == len(wanted) + 1
    for step, state in enumerate(states):
        options = OPTIONS[0] if step % 11 else OPTIONS[1 + step // 11 % 3]
        with ds.feed(**options) as feed:
            feed.load_state_dict(json.loads(state))
            head = [plain(item) for _, item in zip(range(1 + step % 5), rest(feed), strict=False)]
            second = json.loads(json.dumps(feed.state_dict()))
            assert feed.step == step + len(head)
        with ds.feed(executor="inline") as feed:
            feed.load_state_dict(second)
            assert head + [plain(item) for item in rest(feed)] == wanted[step:]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("policy", [ps.Raise(), ps.Skip()], ids=repr)
def test_a_resume_behind_a_rare_bucket_computes_the_held_elements_alone(stream: bool, policy: ps.Skip | ps.Raise) -> None:
    computed: list[int] = []

    def seen(value: int) -> int:
        computed.append(value)
        if value % 7 == 3 and isinstance(policy, ps.Skip):
            raise ValueError(value)
        return value

    source = ps.from_generator(lambda: iter(range(9000)), fast_forward=True) if stream else numbers(9000)
    ds = source.map(seen).filter(lambda value: value % 5).flat_map(lambda value: [value, -value])
    ds = ds.bucket_by_length(lambda value: int(abs(value) % 2000 == 2), [1], [4, 20])
    with ds.feed(executor="inline", on_error=policy) as feed:
        whole = [plain(batch) for batch in feed]
        num_skipped = feed.stats().num_skipped
    with ds.feed(executor="inline", on_error=policy) as feed:
        head = [plain(next(feed)) for _ in range(2000)]
        state = feed.state_dict()
    last = abs(head[-1][-1])
    for _ in range(2):
        computed.clear()
        with ds.feed(executor="inline", on_error=policy) as feed:
            feed.load_state_dict(state)
            head.append(plain(next(feed)))
            state = feed.state_dict()
        assert [value for value in computed if value < last - 64] == list(range(2, last - 64, 2000))
    with ds.feed(executor="threads", num_workers=2, on_error=policy) as feed:
        feed.load_state_dict(state)
        assert head + [plain(batch) for batch in feed] == whole
        assert feed.stats().num_skipped == num_skipped


@pytest.mark.parametrize("ds", [ds for ds, _ in CASES.values()], ids=CASES)
def test_a_state_is_small(ds: ps.Dataset) -> None:
    assert max(map(len, one_by_one(ds, {"executor": "inline"}))) < 1500


def test_an_error_among_the_elements_that_a_resume_reads_again_is_delivered() -> None:
    broken = [False]

    def fragile(value: int) -> int:
        if value == 100 and broken[0]:
            raise ZeroDivisionError("element 100")
        return value

    ds = bucket(numbers().map(fragile))
    with ds.feed(executor="inline") as feed:
        place = next(number for number, batch in enumerate(feed) if 101 in batch)
    state = state_behind(ds, place + 1, executor="inline")
    broken[0] = True
    for options in OPTIONS:
        with ds.feed(**options) as feed:
            feed.load_state_dict(state)
            with pytest.raises(ZeroDivisionError, match="element 100"):
                next(feed)


def test_data_that_got_shorter_are_an_error_and_not_an_end() -> None:
    length = [COUNT]
    ds = numbers().filter(lambda value: value < length[0]).shuffle(20, seed=3)
    state = state_behind(ds, 100, executor="inline")
    length[0] = 5
    for options in OPTIONS:
        with ds.feed(**options) as feed:
            feed.load_state_dict(state)
            with pytest.raises(ps.errors.StateMismatch, match="did not come again before the end of their pass"):
                list(feed)


def test_endless_passes_go_on_and_resume() -> None:
    ds = numbers(50).filter(kept).repeat().shuffle(8, seed=3)
    values = [value for value in range(50) if kept(value)]
    wanted = shuffled(values * 40, 8)[:600]
    with ds.feed(executor="threads", num_workers=2) as feed:
        head = [int(next(feed)) for _ in range(500)]
        state = feed.state_dict()
    with ds.feed(executor="inline") as feed:
        feed.load_state_dict(state)
        assert head + [int(next(feed)) for _ in range(100)] == wanted
