"""Ranks make equal numbers of steps but for one where shard() stands above what counts, and a notice says so where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps

RANKS = 4
Build = Callable[[ps.Dataset], ps.Dataset]


def source() -> ps.Dataset:
    return ps.from_source(range(61))


def keep(x: int) -> bool:
    return x % 4 == 0 or x % 3 == 0


def tokens(x: int) -> Any:
    return np.full(9 if x % 4 == 0 else 2, x)


def small(x: int) -> int:
    return x % 7 if x % 4 else 0


FOLDS: dict[str, tuple[Build, str]] = {
    "a filter": (lambda ds: ds.filter(keep), "filter"),
    "packs": (lambda ds: ds.map(tokens).pack_sequences(12, num_bins=2), "pack_sequences"),
    "buckets": (lambda ds: ds.bucket_by_length(small, [1, 4], [2, 5, 5]), "bucket_by_length"),
    "whole batches of several epochs": (lambda ds: ds.batch(4, drop_remainder=True).repeat(2), "repeat"),
    "batches of what a filter leaves": (lambda ds: ds.filter(keep).batch(2, drop_remainder=True), "filter"),
}
every_fold = pytest.mark.parametrize(("build", "name"), FOLDS.values(), ids=FOLDS)


def steps(ds: ps.Dataset) -> tuple[int, list[str]]:
    with ds.feed(num_workers=2) as feed:
        return sum(1 for _ in feed), [text for text in feed.stats().notices if "shard" in text]


@every_fold
def test_a_shard_below_what_counts_elements_gives_unequal_steps_and_one_notice(build: Build, name: str) -> None:
    found = [steps(build(source().shard(RANKS, index))) for index in range(RANKS)]
    counts = [count for count, _ in found]
    assert max(counts) - min(counts) > 1
    for _, notices in found:
        assert len(notices) == 1
        assert notices[0].startswith(f"shard() stands below {name}(), so ranks make ")
        assert f"put shard() above {name}(), and they differ by at most one" in notices[0]
    with build(source().shard(RANKS, 0)).feed() as feed:
        list(feed)
        assert "shard() stands below" in feed.report()


@every_fold
def test_a_shard_above_it_gives_equal_steps_but_for_one_and_no_notice(build: Build, name: str) -> None:
    found = [steps(build(source()).shard(RANKS, index)) for index in range(RANKS)]
    counts = [count for count, _ in found]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == steps(build(source()))[0]
    assert not any(notices for _, notices in found)


def test_a_resume_and_a_second_load_do_not_say_it_again() -> None:
    with source().shard(RANKS, 1).filter(keep).feed() as feed:
        next(feed)
        for _ in range(2):
            feed.load_state_dict(feed.state_dict())
            next(feed)
        assert sum("shard() stands below" in text for text in feed.stats().notices) == 1


@pytest.mark.parametrize(
    "build",
    [
        lambda ds: ds.batch(4, drop_remainder=True),
        lambda ds: ds.map(abs).batch(4),
        lambda ds: ds.batch(4).repeat(),
        lambda ds: ds.filter(keep).batch(2).repeat(),
        lambda ds: ds.filter(keep).batch(2).repeat().take(10),
        lambda ds: ds.take(12).batch(3).repeat(5),
        lambda ds: ds.repeat(1),
    ],
)
def test_ranks_of_equal_steps_but_for_one_get_no_notice(build: Build) -> None:
    for index in range(RANKS):
        with build(source().shard(RANKS, index)).feed() as feed:
            next(feed)
            assert not [text for text in feed.stats().notices if "shard" in text]
    with source().shard(1, 0).filter(keep).feed() as feed:
        next(feed)
        assert feed.stats().notices == ()


def test_the_numbers_of_steps_are_said_where_they_are_known() -> None:
    with source().shard(RANKS, 2).batch(4, drop_remainder=True).repeat(2).feed() as feed:
        next(feed)
        assert "so ranks make 8 to 6 steps: put shard() above repeat()" in feed.stats().notices[0]
