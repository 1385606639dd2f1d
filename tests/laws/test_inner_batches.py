"""Policies act on single elements, also in a batch whose positions are fixed: below cache, zip, concatenate, mix, interleave or a batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.plans import plain

import penstock as ps

Make = Callable[[ps.Dataset], ps.Dataset]


def broken(*values: int) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value in values:
            raise ValueError(f"cannot use {value}")
        return value

    return check


def other() -> ps.Dataset:
    return ps.from_source(range(100, 112)).batch(3)


AROUND: dict[str, Make] = {
    "cache": lambda ds: ds.cache(),
    "zip": lambda ds: ds.zip(other()),
    "zip, second": lambda ds: other().zip(ds),
    "concatenate": lambda ds: ds.concatenate(other()),
    "mix": lambda ds: ds.mix(other()),
    "interleave": lambda ds: ps.from_source([0, 1]).interleave(lambda k: other() if k else ds, 2, 1),
    "zip in mix": lambda ds: ds.zip(other()).mix(other().zip(other())),
    "cache, shuffled": lambda ds: ds.cache().shuffle(seed=3),
    "batch": lambda ds: ds.batch(2),
}
GROUPED: dict[str, Make] = {
    "batch": lambda ds: ds.batch(3),
    "padded_batch": lambda ds: ds.padded_batch(3),
    "ragged_batch": lambda ds: ds.map(lambda value: np.full(2, value)).ragged_batch(3),
    "window": lambda ds: ds.window(3, 3),
}
CASES = [(around, group) for around in AROUND for group in GROUPED if around != "batch" and (around == "zip" or group == "batch")]
OPTIONS = [{"executor": "inline"}, {"executor": "threads", "num_workers": 3}]


def everything(ds: ps.Dataset, **options: Any) -> tuple[list[Any], int, int]:
    with ds.feed(**options) as feed:
        found = [plain(item) for item in feed]
        figures = feed.stats()
    return found, figures.num_skipped, figures.num_replaced


def stand_in(values: list[int], bad: set[int]) -> list[int]:
    return [next(values[(place + step) % len(values)] for step in range(len(values)) if values[(place + step) % len(values)] not in bad)
            for place in range(len(values))]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("around", "group"), CASES)
@pytest.mark.parametrize("policy", [ps.Replace(), ps.Retry(2, then=ps.Replace())], ids=["Replace", "Retry"])
def test_only_the_failing_element_of_a_batch_is_replaced(around: str, group: str, policy: Any, options: dict[str, Any]) -> None:
    bad = {1, 6}
    mended = stand_in(list(range(10)), bad)
    ds = AROUND[around](GROUPED[group](ps.from_source(range(10)).map(broken(*bad), on_error=policy)))
    wanted = AROUND[around](GROUPED[group](ps.from_source(mended)))
    found, skipped, replaced = everything(ds, **options)
    assert found == everything(wanted, executor="inline")[0]
    assert (skipped, replaced) == (0, 2)


SHORT: dict[str, Callable[[list[int]], Any]] = {
    "batch": list,
    "padded_batch": list,
    "ragged_batch": lambda rows: {"values": [row for row in rows for _ in range(2)], "row_splits": [2 * n for n in range(len(rows) + 1)]},
    "window": list,
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("around", "group"), CASES)
@pytest.mark.parametrize("policy", [ps.Skip(), ps.Retry(2, then=ps.Skip())], ids=["Skip", "Retry"])
def test_skip_shortens_the_batch_of_the_failing_element_and_leaves_out_one_of_failing_ones(
    around: str, group: str, policy: Any, options: dict[str, Any]
) -> None:
    bad = {1, 6, 7, 8}
    ds = AROUND[around](GROUPED[group](ps.from_source(range(10)).map(broken(*bad), on_error=policy)))
    whole = AROUND[around](GROUPED[group](ps.from_source(range(10))))
    found, skipped, replaced = everything(ds, **options)
    batches = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    short = {str(SHORT[group](batch)): str(SHORT[group]([row for row in batch if row not in bad])) for batch in batches}
    texts = [str(item) for item in everything(whole, executor="inline")[0] if str(SHORT[group]([6, 7, 8])) not in str(item)]
    wanted = [next((text.replace(old, new) for old, new in short.items() if old in text), text) for text in texts]
    assert list(map(str, found)) == wanted
    assert (skipped, replaced) == (4, 0)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("around", AROUND)
def test_the_policies_of_the_feed_act_on_the_same_elements(around: str, options: dict[str, Any]) -> None:
    ds = AROUND[around](ps.from_source(range(12)).map(broken(1, 6)).batch(3))
    wanted = AROUND[around](ps.from_source(stand_in(list(range(12)), {1, 6})).batch(3))
    found, _, replaced = everything(ds, on_error=ps.Replace(), **options)
    assert found == everything(wanted, executor="inline")[0]
    assert replaced == 2


def broken_batch(batch: Any) -> Any:
    if 4 in batch:
        raise ValueError("cannot use a batch")
    return batch


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("around", [None, *AROUND])
def test_replace_of_the_feed_puts_no_batch_in_the_place_of_another(around: str | None, options: dict[str, Any]) -> None:
    ds = ps.from_source(range(12)).batch(3).map(broken_batch)
    ds = ds if around is None else AROUND[around](ds)
    for policy in (ps.Replace(), ps.Retry(1, then=ps.Replace())):
        with pytest.raises(ValueError, match="cannot use a batch"), ds.feed(on_error=policy, **options) as feed:
            list(feed)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("around", ["cache", "batch"])
def test_replace_of_an_operator_does_so_where_positions_are_fixed(around: str, options: dict[str, Any]) -> None:
    ds = AROUND[around](ps.from_source(range(12)).batch(3).map(broken_batch, on_error=ps.Replace()))
    wanted = AROUND[around](ps.from_source([*range(3), *range(6, 9), *range(6, 12)]).batch(3))
    found, _, replaced = everything(ds, **options)
    assert found == everything(wanted, executor="inline")[0]
    assert replaced == 1


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_above_a_cache_or_branches_replace_of_the_feed_acts_on_what_these_give(options: dict[str, Any]) -> None:
    for ds in (
        ps.from_source(range(12)).batch(3).cache(),
        ps.from_source(range(6)).batch(3).concatenate(ps.from_source(range(6, 12)).batch(3)),
    ):
        found, _, replaced = everything(ds.map(broken_batch), on_error=ps.Replace(), **options)
        assert found == [[0, 1, 2], [6, 7, 8], [6, 7, 8], [9, 10, 11]]
        assert replaced == 1


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_skip_leaves_out_where_a_batch_stands_above_a_batch(options: dict[str, Any]) -> None:
    ds = ps.from_source(range(10)).map(broken(1, 5, 6, 7, 8)).batch(3).map(len).batch(2)
    found, skipped, _ = everything(ds, on_error=ps.Skip(), **options)
    assert found == [[2, 2], [1]]
    assert skipped == 5


@pytest.mark.parametrize("around", [name for name in AROUND if name != "batch"])
def test_a_limit_counts_single_elements(around: str) -> None:
    ds = AROUND[around](ps.from_source(range(10)).map(broken(1, 6), on_error=ps.Skip(limit=1)).batch(3))
    with pytest.raises(ps.errors.TooManySkipped) as caught, ds.feed(executor="inline") as feed:
        list(feed)
    assert "2 elements were skipped, the limit is 1" in str(caught.value)


@pytest.mark.parametrize("around", ["cache", "zip", "concatenate", "mix", "interleave"])
def test_the_quarantine_names_the_element(around: str, tmp_path: Path) -> None:
    ds = AROUND[around](ps.from_source(range(10)).map(broken(7), on_error=ps.Skip(quarantine=tmp_path / "bad.jsonl")).batch(3))
    everything(ds, executor="inline")
    (line,) = (tmp_path / "bad.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["keys"] == [[0, 7, 0]]
    assert (record["action"], record["where"], record["text"]) == ("skipped", "element 7 of range", "cannot use 7")


@pytest.mark.parametrize("around", ["cache", "zip", "concatenate", "mix", "interleave", "batch"])
def test_elements_that_do_not_fit_each_other_are_left_out_by_no_policy(around: str) -> None:
    arrays = [np.zeros(2 + (place == 4)) for place in range(9)]
    ds = AROUND[around](ps.from_source(arrays).batch(3))
    with pytest.raises(ps.errors.SpecError), ds.feed(executor="inline", on_error=ps.Replace()) as feed:
        list(feed)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("around", [None, "cache", "zip"])
def test_an_element_that_takes_a_place_is_retried_as_its_own_operator_says(around: str | None, options: dict[str, Any]) -> None:
    tried: set[int] = set()

    def flaky(value: int) -> int:
        if value not in tried:
            tried.add(value)
            raise KeyError(value)
        return value

    ds = ps.from_source(range(9)).map(flaky, on_error=ps.Retry(1)).map(broken(1), on_error=ps.Replace()).batch(3)
    wanted = ps.from_source(stand_in(list(range(9)), {1})).batch(3)
    if around is not None:
        ds, wanted = AROUND[around](ds), AROUND[around](wanted)
    assert everything(ds, **options)[0] == everything(wanted, executor="inline")[0]
