from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PlanError, SourceError

OPTIONS: list[dict[str, Any]] = [{"executor": "inline"}, {"num_workers": 3}]


def fail_at_sevens(value: int) -> int:
    if value % 7 == 3:
        raise ValueError(f"seven {value}")
    return value


def noisy(value: int, rng: np.random.Generator) -> int:
    return value * 1000 + int(rng.integers(1000))


def unnoisy(value: int) -> int:
    fail_at_sevens(value // 1000)
    return value


def give_back(value: Any) -> Any:
    return value


def numbers(count: int = 30) -> ps.Dataset:
    return ps.from_source(list(range(count)))


def run(ds: ps.Dataset, **options: Any) -> list[Any]:
    with ds.feed(**options) as feed:
        return list(feed)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("policy", [ps.Skip, ps.Replace])
def test_each_element_that_was_lost_has_one_line_in_the_order_of_the_elements(tmp_path: Path, options: dict[str, Any], policy: Any) -> None:
    file = tmp_path / "bad.jsonl"
    run(numbers().map(fail_at_sevens, on_error=policy(quarantine=file)).batch(4), **options)
    found = lines(file)
    assert [record["keys"] for record in found] == [[[0, index, 0]] for index in (3, 10, 17, 24)]
    assert [record["text"] for record in found] == ["seven 3", "seven 10", "seven 17", "seven 24"]
    first = found[0]
    assert first["action"] == ("skipped" if policy is ps.Skip else "replaced")
    assert (first["stage"], first["error"], first["retries"], first["place"]) == ("fail_at_sevens", "ValueError", 0, [0, 3])
    assert first["where"] == "element 3 of list of 30 elements" or "3" in first["where"]
    assert "in fail_at_sevens" in first["traceback"]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_file_is_fed_again_alone_with_the_random_numbers_that_the_elements_failed_with(tmp_path: Path, options: dict[str, Any]) -> None:
    file = tmp_path / "bad.jsonl"

    def pipeline(fn: Any, name: str = "check") -> ps.Dataset:
        return numbers().shuffle(seed=1).shard(2, 0).map(noisy, seed=4).map(fn, name=name).filter(bool).repeat(2).batch(4)

    with pipeline(give_back).feed(executor="inline") as feed:
        every = [int(value) for batch in feed for value in batch]
    with (
        numbers()
        .shuffle(seed=1)
        .shard(2, 0)
        .map(noisy, seed=4)
        .map(unnoisy)
        .filter(bool)
        .repeat(2)
        .batch(4)
        .feed(on_error=ps.Replace(quarantine=file), **options) as feed
    ):
        list(feed)
    again = ps.read_quarantine(file, pipeline(give_back))
    assert len(lines(file)) > 0
    assert list(again.feed(**options)) == [value for value in every if value // 1000 % 7 == 3]
    assert "quarantined(" in str(again)
    with ps.read_quarantine(file, pipeline(unnoisy)).feed() as feed, pytest.raises(ValueError, match="seven"):
        next(feed)


def test_an_element_with_several_lines_comes_once_and_a_resumed_run_appends(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    for _ in range(2):
        run(numbers().map(fail_at_sevens, on_error=ps.Skip(quarantine=file)))
    assert len(lines(file)) == 8
    assert list(ps.read_quarantine(file, numbers())) == [3, 10, 17, 24]


def test_a_batch_that_failed_stands_for_its_elements(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"

    def first_is_even(batch: Any) -> Any:
        if batch[0] % 2 == 1:
            raise ValueError("odd")
        return batch

    assert [len(batch) for batch in run(numbers(9).batch(3).map(first_is_even, on_error=ps.Skip(quarantine=file)))] == [3, 3]
    (record,) = lines(file)
    assert (record["where"], record["keys"]) == ("a batch of 3", [[0, 3, 0], [0, 4, 0], [0, 5, 0]])
    assert list(ps.read_quarantine(file, numbers(9).batch(3).map(first_is_even))) == [3, 4, 5]


def test_elements_of_a_concatenation_and_one_result_of_a_flat_map_are_found_again(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    both = numbers(5).concatenate(ps.from_source([3, 4, 10]))
    assert run(both.map(fail_at_sevens, on_error=ps.Skip(quarantine=file))) == [0, 1, 2, 4, 4]
    assert list(ps.read_quarantine(file, both)) == [3, 3, 10]
    other = tmp_path / "other.jsonl"
    twice = numbers(5).flat_map(lambda value: [value, value + 8])
    assert run(twice.map(fail_at_sevens, on_error=ps.Skip(quarantine=other))) == [0, 8, 1, 9, 2, 11, 4, 12]
    assert [record["text"] for record in lines(other)] == ["seven 10", "seven 3"]
    assert list(ps.read_quarantine(other, twice)) == [2, 10, 3, 11]


def test_a_read_that_failed_is_read_again(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name)
    ds = ps.read_files(str(tmp_path / "*.txt")).map(lambda element: bytes(element["data"]))
    (tmp_path / "b.txt").rename(tmp_path / "b.gone")
    file = tmp_path / "bad.jsonl"
    assert run(ds, on_error=ps.Skip(quarantine=file)) == [b"a", b"c"]
    (record,) = lines(file)
    assert record["error"] == "FileNotFoundError"
    assert "b.txt" in record["where"]
    (tmp_path / "b.gone").rename(tmp_path / "b.txt")
    assert list(ps.read_quarantine(file, ds)) == [b"b"]


def test_what_cannot_be_read_again_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    run(numbers().map(fail_at_sevens, on_error=ps.Skip(quarantine=file)))
    with pytest.raises(PlanError) as refused:
        ps.read_quarantine(file, ps.from_generator(lambda: iter(range(3))))
    assert "the elements of a generator cannot be read by number" in refused.value.what
    assert refused.value.where == "read_quarantine()"
    assert "filter the generator" in refused.value.fix
    with pytest.raises(SourceError) as short:
        ps.read_quarantine(file, numbers(5))
    assert "the file names element 10 of epoch 0, and this dataset has 5" in short.value.what
    assert "line 2 of " in short.value.where
    assert "the same source" in short.value.fix
    run(numbers(9).batch(3).batch(2).map(give_back))
    file.write_text(json.dumps({"keys": [], "place": None}) + "\n")
    with pytest.raises(SourceError) as whole:
        ps.read_quarantine(file, numbers())
    assert "a plan with one source, and without a batch of batches" in whole.value.what
    assert "line 1 of " in whole.value.where
    assert "look at the line itself" in whole.value.fix


@pytest.mark.parametrize("options", OPTIONS)
def test_policies_share_a_file_or_have_one_each_and_those_without_write_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    shared, other = tmp_path / "shared.jsonl", tmp_path / "other.jsonl"

    def fails_at(bad: int, value: int) -> int:
        if value == bad:
            raise ValueError(f"bad {value}")
        return value

    ds = numbers()
    for bad, policy in (
        (2, ps.Skip(quarantine=shared)),
        (5, ps.Retry(1, then=ps.Replace(quarantine=shared))),
        (7, ps.Skip(quarantine=str(other))),
        (9, ps.Skip()),
        (11, None),  # the feed's
    ):
        ds = ds.map(partial(fails_at, bad), on_error=policy, name=f"at {bad}")
    assert run(ds, on_error=ps.Skip(quarantine=shared), **options) == [0, 1, 3, 4, 6, 6, 8, 10, *range(12, 30)]
    assert [record["keys"] for record in lines(shared)] == [[[0, 2, 0]], [[0, 5, 0]], [[0, 11, 0]]]
    assert [record["text"] for record in lines(other)] == ["bad 7"]


@pytest.mark.parametrize(
    "call",
    [
        lambda policy: ps.parallel_jobs(abs, [1], on_error=policy),
        lambda policy: ps.SampleBatches([1], 1, on_error=ps.Retry(1, then=policy)),
    ],
)
def test_only_a_feed_writes_a_quarantine(tmp_path: Path, call: Any) -> None:
    with pytest.raises(PlanError) as refused:
        call(ps.Skip(quarantine=tmp_path / "bad.jsonl"))
    assert refused.value.what == "quarantine= is only written by a feed"
    assert refused.value.where
    assert refused.value.fix == "leave it out of on_error"
