"""Which rank a process is, what ranks compare, and frameworks that are not there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.adapters.ranks import agree, comparison, current_rank, rank_of_environment, valid_rows
from penstock.errors import MissingExtra, PlanError


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 1)),  # the one process of a batch script
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2)),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, (0, 2)),
    ],
)
def test_the_rank_is_that_of_the_launcher(environment: dict[str, str], rank: tuple[int, int]) -> None:
    assert rank_of_environment(environment) == rank


@pytest.mark.parametrize(
    "environment", [{"RANK": "1"}, {"WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "x", "WORLD_SIZE": "2"}]
)
def test_half_a_rank_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(PlanError, match=r"RANK=.* with WORLD_SIZE=.*torchrun(.|\n)*give rank= and num_ranks="):
        rank_of_environment(environment)


def test_the_environment_of_this_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert current_rank() == (1, 3)
    ds = ps.from_arrays(np.arange(10)).shard_by_rank()
    assert list(ds) == [1, 4, 7]
    assert "shard_by_rank(even='drop', rank=1, num_ranks=3)" in repr(ds)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"RANK": "1", "WORLD_SIZE": "3"}, "rank 1 of 3, and the pipeline has no shard_by_rank(): each rank trains on everything"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, ""),
        ({"RANK": "1"}, ""),  # half a rank: no business of a pipeline that does not ask
    ],
)
def test_a_pipeline_without_a_shard_in_a_group_of_ranks_is_one_notice(
    environment: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    numbers = ps.from_arrays(np.arange(10))
    with numbers.batch(5).feed() as feed:
        list(feed)
        found = [text for text in feed.stats().notices if "shard_by_rank" in text]
    assert [words in text for text in found] == ([True] if words else [])
    for sharded in (numbers.shard(2, 0), numbers.shard_by_rank(rank=0, num_ranks=2)):
        with sharded.batch(5).feed() as feed:
            list(feed)
            assert not any("each rank trains on everything" in text for text in feed.stats().notices)


def test_valid_rows_are_those_that_are_no_padding() -> None:
    batch = {"x": np.arange(6).reshape(3, 2), "names": np.array(["a", "b", "c"], object), "valid": np.array([True, False, True])}
    rows = valid_rows(batch)
    assert {name: array.tolist() for name, array in rows.items()} == {"x": [[0, 1], [4, 5]], "names": ["a", "c"]}
    assert valid_rows({"x": batch["x"], "valid": np.ones(3, bool)})["x"] is batch["x"]
    assert valid_rows({"x": (np.arange(3), 7), "valid": np.bool_(False)})["x"][0].shape == (0,)  # a batch that is a copy as a whole


def _gathered(*others: Any) -> Callable[[Any], list[Any]]:
    return lambda own: [own, *others]


def test_ranks_that_run_the_same_agree() -> None:
    agree(_gathered([["read", "shuffle(seed=1)"], [1, 2]]), ["read", "shuffle(seed=1)"], (0, 2))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            [["read", "shuffle(seed=2)"], [1, 2]],
            r"rank 0 runs another pipeline than rank 1: 'shuffle\(seed=1\)' is 'shuffle\(seed=2\)' there",
        ),
        ([["read"], [1, 2]], r"'shuffle\(seed=1\)' is 'nothing' there"),
        ([["read", "shuffle(seed=1)"], [1, 3]], "'2 ranks' is '3 ranks' there"),
        ([["read", "shuffle(seed=1)"], [0, 2]], r"2 processes have the parts \[0, 0\] of 2 ranks"),
    ],
)
def test_the_first_difference_between_ranks_is_named(other: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        agree(_gathered(other), ["read", "shuffle(seed=1)"], (0, 2))


def test_a_process_alone_compares_nothing() -> None:
    assert comparison(None) is None
    assert comparison((0, 1)) is None


def test_one_of_rank_and_num_ranks_is_refused() -> None:
    ds = ps.from_arrays(np.arange(10))
    with pytest.raises(PlanError, match="one of rank= and num_ranks= is missing"):
        ds.shard_by_rank(rank=1)
    with pytest.raises(PlanError, match="rank=2 of num_ranks=2"):
        ds.shard_by_rank(rank=2, num_ranks=2)
    with pytest.raises(PlanError, match="even='keep' is not known"):
        ds.shard_by_rank("keep", rank=0, num_ranks=2)  # type: ignore[arg-type]


def test_explain_says_what_is_left_out_and_what_a_rank_reads() -> None:
    ds = ps.from_arrays(np.arange(10))
    dropped = ds.shard_by_rank(rank=0, num_ranks=3).explain()
    assert "the last 1 of 10 elements of each pass are left out, so that 3 ranks have equally many" in dropped
    padded = ds.shard_by_rank("pad", rank=0, num_ranks=3).explain()
    assert "the last round of each pass has 1 elements, and repeats some for 2 of the ranks" in padded
    assert "each of 3 ranks reads only its own elements" in padded


def _length(element: Any) -> int:
    return int(element) % 5


def _reading(ds: ps.Dataset, num_ranks: int) -> tuple[list[str], list[str]]:
    """Return what a feed and what `explain` say of the elements that a rank reads."""
    sharded = ds.shard_by_rank(rank=0, num_ranks=num_ranks)
    with sharded.feed() as feed:
        next(feed)
        told = [text for text in feed.stats().notices if "ranks reads" in text]
    return told, [line.removeprefix("  note: ") for line in sharded.explain().splitlines() if "ranks reads" in line]


def test_more_than_eight_ranks_that_read_everything_are_a_notice_that_names_the_remedy(tmp_path: Path) -> None:
    ds = ps.from_arrays(np.arange(1000)).measure(str(tmp_path / "numbers"), length=_length, num_workers=0)
    rows = ds.filter(_length).map(np.atleast_1d).pack_sequences(4)
    notices, explained = _reading(rows, 8)
    assert (notices, len(explained)) == ([], 1)
    words = (
        "shard_by_rank: each of 9 ranks reads and computes all elements up to pack_sequences, and keeps one in 9; known: measure(length); "
        "for each to read only its own, measure() the numbers of filter and pack_sequences once, and give by=, or put repeat() and "
        "shard_by_rank() before filter()"
    )
    assert _reading(rows, 9) == ([words], [words])
    (told_once,) = _reading(ds.flat_map(lambda n: [n, n]).filter(bool), 64)[0]
    assert told_once.endswith("pack() the output of filter once, or put repeat() and shard_by_rank() before flat_map()")
    own = ds.repeat().shard_by_rank(rank=0, num_ranks=9).map(np.atleast_1d).pack_sequences(4).explain()
    assert "each of 9 ranks reads only its own elements" in own
    assert "pack_sequences counts the elements of this rank alone, so each rank saves a state of its own" in own
    assert _reading(ds.filter(by="length"), 9) == (
        [],
        ["shard_by_rank: each of 9 ranks reads only its own elements; known: measure(length)"],
    )


@pytest.mark.parametrize(("output", "package"), [("torch", "pytorch"), ("jax", "jax")])
def test_a_framework_that_is_missing_is_named(output: Any, package: str) -> None:
    if importlib.util.find_spec(output) is not None:
        pytest.skip(f"{output} is installed")
    with pytest.raises(MissingExtra, match=rf"output='{output}' needs (.|\n)* fix: +.*install it as https://.*{package}"):
        ps.from_arrays(np.arange(3)).feed(output=output)
