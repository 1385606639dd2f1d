from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dataset.small import LATER, POSITIONS, Row, assert_refused, double, endless, generated, numbers, refusals
from sources.groups import Grouped

import penstock as ps

WRONG: list[Row] = [
    ("shuffle in a window of 0", lambda: numbers(3).shuffle(0), "buffer_size=0 is not a whole number >= 1", "shuffle()", "buffer_size"),
    ("shuffle with a word", lambda: numbers(3).shuffle(seed="x"), "seed='x' is not a whole number", "shuffle()", "seed"),  # type: ignore[arg-type]
    ("shuffle behind a filter", lambda: numbers(3).filter(double).shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    ("shuffle of a generator", lambda: generated().shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    ("shuffle of an endless dataset", lambda: endless().shuffle(), "shuffle of an endless dataset", "shuffle()", "then repeat()"),
    ("a buffer of no bytes", lambda: generated().shuffle(3, buffer_bytes=0), "buffer_bytes=0 is not", "shuffle()", "whole number >= 1"),
    ("a window of 0 groups", lambda: numbers(3).shuffle(window_groups=0), "window_groups=0 is not", "shuffle()", "whole number >= 1"),
    (
        "a window of groups and elements",
        lambda: numbers(3).shuffle(4, window_groups=2),
        "of 2 groups or of 4 elements, not both",
        "shuffle()",
        "one of",
    ),
    ("groups where none are", lambda: numbers(3).shuffle(window_groups=2), "elements that lie in groups", "shuffle()", "group_starts()"),
    (
        "groups behind a filter",
        lambda: numbers(3).filter(double).shuffle(window_groups=2),
        f"shuffle {POSITIONS}",
        "shuffle()",
        "buffer_size= instead",
    ),
    (
        "as completed twice",
        lambda: numbers(3).as_completed().map(double).as_completed(),
        "as_completed() stands in this plan already",
        "as_completed()",
        "leave one of them out",
    ),
    (
        "as completed after a batch",
        lambda: numbers(3).batch(2).map(double).as_completed(),
        "as_completed() of map(double): it orders elements, not batches",
        "as_completed()",
        "feed(ordered=False)",
    ),
    (
        "as completed after windows",
        lambda: numbers(3).window(1).map(double).as_completed(),
        "as_completed() after window(1, shift=1, stride=1), which counts elements in their order",
        "as_completed()",
        "call as_completed() before window()",
    ),
    (
        "as completed after a take of a stream",
        lambda: numbers(3).filter(double).take(2).as_completed(),
        "as_completed() after take(2), which counts elements in their order behind a filter, flat_map or generator",
        "as_completed()",
        "call as_completed() before take()",
    ),
    (
        "as completed after a buffer of a generator",
        lambda: generated().shuffle(2).as_completed(),
        "as_completed() after shuffle(buffer_size=2",
        "as_completed()",
        "call as_completed() before shuffle()",
    ),
    ("as completed in a branch", lambda: numbers(3).zip(numbers(3).as_completed()), f"zip {POSITIONS}", "zip()", LATER),
    ("a full shuffle as completed", lambda: numbers(3).as_completed().shuffle(), f"shuffle {POSITIONS}", "shuffle()", LATER),
    (
        "shard as completed",
        lambda: numbers(3).as_completed().map(double).shard(2, 0),
        "shard() after as_completed(): elements come in another order on each rank",
        "shard()",
        "call shard() before as_completed()",
    ),
    (
        "shard by rank as completed",
        lambda: numbers(3).as_completed().shard_by_rank(rank=0, num_ranks=2),
        "shard_by_rank() after as_completed()",
        "shard_by_rank()",
        "call shard_by_rank() before as_completed()",
    ),
    ("shard of 0", lambda: numbers(3).shard(0, 0), "num_shards=0 is not a whole number >= 1", "shard()", "num_shards"),
    ("shard -1", lambda: numbers(3).shard(2, -1), "index=-1 is not a whole number >= 0", "shard()", "index"),
    ("shard 2 of 2", lambda: numbers(3).shard(2, 2), "index=2 of num_shards=2", "shard()", "index as 0..1"),
    ("take -1", lambda: numbers(3).take(-1), "count=-1 is not a whole number >= 0", "take()", "count"),
    # type: ignore[arg-type]
    ("repeat 0", lambda: numbers(3).repeat(0), "count=0 is not a whole number >= 1", "repeat()", "count"),
    ("repeat beyond 63 bits", lambda: numbers(3).repeat(2**62), "more than 2**63", "repeat()", "repeat() without a count"),
    ("concatenate a list", lambda: numbers(3).concatenate([1]), "[1] is not a Dataset", "concatenate()", "ps.from_source"),  # type: ignore[arg-type]
    ("concatenate a generator", lambda: numbers(3).concatenate(generated()), f"concatenate {POSITIONS}", "concatenate()", LATER),
    ("concatenate behind endless", lambda: endless().concatenate(numbers(1)), "of an endless dataset", "concatenate()", "dataset last"),
    ("mix with a list", lambda: numbers(3).mix([1]), "[1] is not a Dataset", "mix()", "ps.from_source"),  # type: ignore[arg-type]
    ("mix with a generator", lambda: numbers(3).mix(generated()), f"mix {POSITIONS}", "mix()", LATER),
    ("mix with a weight too few", lambda: numbers(3).mix(numbers(3), weights=[1]), "weights=[1] are not 2", "mix()", "per dataset"),
    # type: ignore[arg-type]
    # type: ignore[arg-type]
    ("mix until never", lambda: numbers(3).mix(numbers(3), stop="never"), "stop='never' is no way", "mix()", "'all_exhausted'"),  # type: ignore[arg-type]
    (
        "mix until all of an endless one",
        lambda: numbers(3).mix(endless(), stop="all_exhausted"),
        "mix(stop='all_exhausted') of an endless dataset",
        "mix(stop='all_exhausted')",
        "take(n) of the endless dataset",
    ),
    (
        "mix until all of an empty one",
        lambda: numbers(3).mix(numbers(0), stop="all_exhausted"),
        "dataset 1 is empty and cannot start over",
        "mix(stop='all_exhausted')",
        "leave it out",
    ),
    (
        "mix beyond 63 bits",
        lambda: numbers(3).mix(numbers(3), weights=[1e-300, 1e300], stop="all_exhausted"),
        "more than 2**63",
        "mix()",
        "repeat() without a count",
    ),
    ("a flag in words", lambda: numbers(3).shuffle(reshuffle_each_epoch="no"), "reshuffle_each_epoch='no' is neither", "shuffle()", "True"),  # type: ignore[arg-type]
    ("passes beyond 63 bits", lambda: numbers(2).repeat(2**40).take(3).repeat(2**40), "get as large as", "repeat()", "smaller numbers"),
    # type: ignore[arg-type]
    # type: ignore[arg-type]
    ("interleave without a function", lambda: numbers(3).interleave(3), "3 is not callable", "interleave()", "one element"),  # type: ignore[arg-type]
    ("interleave of numbers", lambda: numbers(3).interleave(double), "0 is not a Dataset", "interleave()", "ps.from_source"),
    ("interleave of a generator", lambda: generated().interleave(numbers), f"interleave {POSITIONS}", "interleave()", LATER),
    ("interleave of generators", lambda: numbers(3).interleave(lambda n: generated()), f"interleave {POSITIONS}", "interleave()", LATER),
    ("interleave of an endless dataset", lambda: endless().interleave(numbers), "of an endless dataset", "interleave()", "take(n) first"),
    ("interleave of endless datasets", lambda: numbers(3).interleave(lambda n: endless()), "of an endless", "interleave()", "of each"),
    ("interleave 0 at a time", lambda: numbers(3).interleave(numbers, 0), "cycle_length=0 is not a whole", "interleave()", "cycle_length"),
    (
        "interleave blocks of 0",
        lambda: numbers(3).interleave(numbers, 1, 0),
        "block_length=0 is not a whole",
        "interleave()",
        "block_length",
    ),
    ("zip with a list", lambda: numbers(3).zip([1]), "[1] is not a Dataset", "zip()", "ps.from_source"),  # type: ignore[arg-type]
    ("zip with a filter", lambda: numbers(3).zip(numbers(3).filter(double)), f"zip {POSITIONS}", "zip()", LATER),
    (
        "zip of a branch with workers",
        lambda: numbers(3).zip(numbers(3).map(double, concurrency=2)),
        "concurrency= has no effect inside a branch of zip",
        "before zip()",
        "a map after the zip",
    ),
]


@refusals(WRONG)
def test_what_cannot_run_is_refused_where_it_is_written(call: Callable[[], Any], what: str, where: str, fix: str) -> None:
    assert_refused(call, what, where, fix)


def test_a_shuffle_behind_a_filter_holds_a_buffer_and_is_said_so() -> None:
    ds = numbers(100).filter(lambda x: x % 2).shuffle(10, seed=3)
    assert sorted(ds) == list(range(1, 100, 2))
    assert list(ds) != sorted(ds)
    assert "shuffle(buffer_size=10, buffer_bytes=268435456, seed=3)" in repr(ds)
    assert "then in order, at one place: shuffle buffer" in ds.explain()
    assert "buffer_bytes" not in repr(numbers(100).shuffle(10, seed=3))


def test_a_function_that_fails_while_an_interleave_is_built_fails_there() -> None:
    with pytest.raises(ZeroDivisionError):
        numbers(3).interleave(lambda number: numbers(6 // number))


def test_a_mix_with_an_endless_dataset_is_as_long_as_the_finite_ones_last() -> None:
    assert list(numbers(2).mix(endless())) == [0, 0, 1, 1]
    assert numbers(2).mix(endless(), weights=[1, 2]).take(3)[1] == 0


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_shuffle_of_groups_goes_on_with_other_workers_and_on_other_ranks(shards: int) -> None:
    def ranks(count: int) -> list[Any]:
        ds = ps.from_source(Grouped([7, 5, 9, 3, 12])).shuffle(seed=3, window_groups=2)
        return [ds.shard(count, rank).batch(3, drop_remainder=True).repeat(2) for rank in range(count)]

    whole = list(ps.from_source(Grouped([7, 5, 9, 3, 12])).shuffle(seed=3, window_groups=2).repeat(2))
    state: Any = None
    head: list[int] = []
    for ds in ranks(2):
        with ds.feed(executor="threads", num_workers=3) as feed:
            head += [number for _ in range(2) for number in next(feed).tolist()]
            state = feed.state_dict()
    assert sorted(head) == sorted(whole[:12])
    rest: list[int] = []
    for ds in ranks(shards):
        with ds.feed(executor="threads", num_workers=1) as feed:
            feed.load_state_dict(state)
            rest += next(feed).tolist()
    assert sorted(rest) == sorted(whole[12 : 12 + 3 * shards])


def test_a_state_of_other_groups_is_refused() -> None:
    with ps.from_source(Grouped([4, 4])).shuffle(window_groups=1).feed() as feed:
        next(feed)
        state = feed.state_dict()
    with ps.from_source(Grouped([2, 6])).shuffle(window_groups=1).feed() as feed, pytest.raises(ps.errors.StateMismatch) as caught:
        feed.load_state_dict(state)
    assert "shuffle(window_groups=1 of " in str(caught.value)
