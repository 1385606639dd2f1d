from __future__ import annotations

import numpy as np
import pytest

import penstock as ps
from penstock._engine.flow import Flow
from penstock._engine.learned import Learned
from penstock._engine.lower import lower
from penstock._engine.unit import Token
from penstock.dataset.chaining import Chaining


def dataset() -> ps.Dataset:
    return ps.from_source(range(20_000)).map(lambda x: np.full(3, x)).batch(16)


def new(of: Chaining, num_workers: int = 2, memory_bytes: int = 1 << 26) -> Flow:
    return Flow(lower(of._root), num_workers, memory_bytes, Token((0, 0)))


def sizes(flow: Flow) -> list[tuple[int, list[int]]]:
    return [(segment.units.items, [block.size for block in segment.blocks]) for segment in flow.segments]


def test_a_run_begins_with_what_the_last_one_of_its_shape_ended_with() -> None:
    learned, flow = Learned(), new(dataset())
    flow.segments[0].blocks[0].begin((1000.0, 50, 300))
    flow.segments[0].units.begin(7)
    flow.active._go("waiting", 1, "one works")
    learned.keep(flow)
    again, fewer, smaller = new(dataset()), new(dataset(), num_workers=1), new(dataset(), memory_bytes=1 << 20)
    for one in (again, fewer, smaller):
        learned.begin(one)
    assert sizes(again) == [(7, [300])]
    assert again.segments[0].blocks[0].found == (1000.0, 50, 300)
    assert (again.active.limit, again.active.notice) == (1, "one works")
    assert fewer.active.limit == 1
    assert smaller.active.limit == 2
    assert sizes(fewer) == sizes(smaller) == [(1, [1])]


def test_a_run_that_failed_teaches_nothing() -> None:
    learned, flow = Learned(), new(dataset())
    flow.segments[0].units.begin(7)
    flow.failures.append(None)  # type: ignore[arg-type]
    learned.keep(flow)
    again = new(dataset())
    learned.begin(again)
    assert sizes(again) == [(1, [1])]


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"num_workers": 2}, {"num_workers": 2, "ordered": False}])
def test_later_epochs_have_the_elements_of_the_first(options: dict[str, object]) -> None:
    ds, seen = dataset(), []
    for _ in range(3):
        with ds.feed(**options) as feed:
            rows = np.concatenate([batch[:, 0] for batch in feed])
        seen.append(rows.tolist() if options.get("ordered", True) else sorted(rows.tolist()))
    assert seen == [list(range(20_000))] * 3


def test_what_was_learned_is_the_datasets_own() -> None:
    ds = dataset()
    with ds.feed(executor="inline") as feed:
        assert len(list(feed)) == 1250
    found = ds._learned._found
    assert [units > 1 and blocks[0][2] > 16 for ((blocks, units),), _ in found.values()] == [True]
    assert ds.shuffle(seed=1)._learned is None
