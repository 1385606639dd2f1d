"""map(executor=...): one function in worker processes, or in threads, whatever the rest of the pipeline runs in."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from _workers.in_workers import Bound, abs_or_die, marked, numbered, numbered_but_six
from core import core
from feeds import resumed

import penstock as ps

pytestmark = pytest.mark.usefixtures("fork_server")

HERE = os.getpid()
PLACED: dict[str, Any] = {"executor": "processes", "concurrency": 2}
NUMBERS = ps.from_source(Bound(60)).shuffle(seed=1)


def pids(batches: list[dict[str, Any]], field: str) -> set[int]:
    return {int(pid) for batch in batches for pid in np.ravel(batch[field])}


@pytest.mark.parametrize(
    ("dataset", "options", "below_here", "above_here"),
    [
        (ps.from_source(range(60)).map(numbered).map(marked, executor="processes", concurrency=2).batch(10), {}, True, False),
        (ps.from_source(range(60)).map(numbered, executor="processes", concurrency=2).map(marked).batch(10), {}, False, True),
        (ps.from_source(range(60)).map(numbered).map(marked, executor="threads").batch(10), {"executor": "processes"}, False, True),
        (ps.from_source(range(60)).map(numbered).batch(10).map(marked, executor="processes", concurrency=1), {}, True, False),
        (ps.from_source(range(60)).map(numbered).map(marked, executor="processes").batch(10), {"num_workers": 0}, True, True),
    ],
    ids=["above, in processes", "below, in processes", "above, in threads", "above the batch", "inline, which is inline"],
)
def test_a_function_runs_where_it_says(dataset: ps.Dataset, options: dict[str, Any], below_here: bool, above_here: bool) -> None:
    with dataset.feed(**{"executor": "threads", "num_workers": 2, **options}) as feed:
        batches = list(feed)
    assert np.concatenate([batch["number"] for batch in batches]).tolist() == list(range(60))
    assert (pids(batches, "below") == {HERE}) == below_here
    assert (pids(batches, "above") == {HERE}) == above_here


def test_where_it_runs_is_no_part_of_the_plan_of_a_state() -> None:
    source = ps.from_source(range(60)).shuffle(seed=1)
    with source.map(numbered, executor="processes", concurrency=1).batch(10).feed() as feed:
        next(feed)
        state, wanted = feed.state_dict(), [batch["number"].tolist() for batch in feed]
    assert [batch["number"].tolist() for batch in resumed(source.map(numbered).batch(10), state, executor="inline")] == wanted


def test_an_element_that_kills_the_process_of_its_stage_is_named() -> None:
    dataset = ps.from_source(Bound(4, [1, 2, -9, 4])).map(abs_or_die, executor="processes", concurrency=1)
    with dataset.feed(on_error=ps.Skip(limit=1)) as feed:
        assert list(feed) == [1, 2, 4]
    with pytest.raises(ps.errors.WorkerDied) as death, dataset.feed() as feed:
        list(feed)
    assert "element epoch 0 index 2" in death.value.__notes__[-1]


def awaited_by(fn: Any) -> Any:
    async def call(element: int) -> Any:
        return fn(element)

    return call


class Stacked(Bound):
    """A function that makes batches."""

    def __init__(self) -> None:
        super().__init__(0)

    def __call__(self, rows: list[Any]) -> Any:
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}


BESIDE: dict[str, ps.Dataset] = {
    "maps above it and above the batch": NUMBERS.map(numbered, **PLACED).map(Bound(0)).batch(10).map(Bound(0)),
    "an async function": NUMBERS.map(awaited_by(Bound(0)), concurrency=2).map(numbered, **PLACED).batch(10),
    "a collate_fn": NUMBERS.map(numbered, **PLACED).batch(10, collate_fn=Stacked()),
    "a cache of a shard": NUMBERS.shard(2, 1).cache().map(numbered, **PLACED).batch(5),
}


@pytest.mark.parametrize("name", core(BESIDE))
def test_what_threads_compute_beside_it_is_left_out_where_it_cannot_be_sent(name: str) -> None:
    dataset = BESIDE[name]
    with dataset.feed(executor="threads", num_workers=2) as feed:
        batches = list(feed)
    with dataset.feed(executor="inline") as feed:
        assert [batch["number"].tolist() for batch in batches] == [batch["number"].tolist() for batch in feed]
    assert len(batches) >= 6
    assert HERE not in pids(batches, "below")


def test_an_element_of_a_source_that_is_left_out_is_named_when_it_fails_and_replaced_by_the_program() -> None:
    dataset = ps.from_source(Bound(60)).map(numbered_but_six, **PLACED)
    with pytest.raises(ValueError, match="six") as failed, dataset.feed(executor="threads", num_workers=2) as feed:
        list(feed)
    assert "element epoch 0 index 6 (element 6 of Bound)" in failed.value.__notes__[-1]
    with dataset.feed(executor="threads", num_workers=2, on_error=ps.Skip(limit=1)) as feed:
        assert [int(element["number"]) for element in feed] == [*range(6), *range(7, 60)]
    with dataset.feed(executor="threads", num_workers=2, on_error=ps.Replace()) as feed:
        assert [int(element["number"]) for element in feed] == [*range(6), 7, *range(7, 60)]


def test_a_dataset_is_not_copied_for_a_function_above_it() -> None:
    with ps.from_arrays(np.ones((60, 1 << 12))).map(np.sum, **PLACED).batch(60).feed(executor="threads", num_workers=2) as feed:
        assert next(feed).tolist() == [1 << 12] * 60
        assert feed._run._placement._processes is not None
        assert feed._run._placement._processes.sent.stages.num_bytes < 1 << 14
