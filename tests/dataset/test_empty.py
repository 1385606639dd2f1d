"""Every operator above an empty source: no element, a length where it is known, and a state that goes on with nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps

Data = ps.Dataset


def itself(element: Any) -> Any:
    return element


SOURCES: dict[str, Callable[[], Data]] = {
    "a list": lambda: ps.from_source([]),
    "arrays": lambda: ps.from_arrays(np.zeros((0, 2))),
    "what a take leaves": lambda: ps.from_source(range(5)).skip(5).take(3),
}
OPERATORS: dict[str, Callable[[Data], Data]] = {
    "nothing": itself,
    "batch": lambda ds: ds.batch(3),
    "cache": lambda ds: ds.cache(),
    "concatenate": lambda ds: ds.concatenate(ds),
    "enumerate": lambda ds: ds.enumerate(),
    "filter": lambda ds: ds.filter(bool),
    "flat_map": lambda ds: ds.flat_map(lambda element: [element]),
    "interleave": lambda ds: ds.interleave(lambda number: ps.from_source([number])),
    "interleave of two at a time": lambda ds: ds.interleave(lambda number: ps.from_source([number]), 2, 3),
    "map": lambda ds: ds.map(itself),
    "map with workers of its own": lambda ds: ds.map(itself, concurrency=2).batch(3),
    "mix": lambda ds: ds.mix(ds, weights=[1, 1]),
    "pack_sequences": lambda ds: ds.pack_sequences(8),
    "padded_batch": lambda ds: ds.padded_batch(3),
    "prefetch": lambda ds: ds.prefetch(2),
    "ragged_batch": lambda ds: ds.ragged_batch(3),
    "shard": lambda ds: ds.shard(2, 0),
    "shuffle": lambda ds: ds.shuffle(seed=1),
    "shuffle with a buffer": lambda ds: ds.filter(bool).shuffle(4, seed=1),
    "skip": lambda ds: ds.skip(1),
    "take": lambda ds: ds.take(1),
    "unbatch": lambda ds: ds.batch(2).unbatch(),
    "window": lambda ds: ds.window(2),
    "zip": lambda ds: ds.zip(ds),
}
WAYS: list[dict[str, Any]] = [{"num_workers": 0}, {"executor": "threads", "num_workers": 2}]


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_plan_without_elements_ends_and_its_states_go_on_with_none(operator: str, source: str, options: dict[str, Any]) -> None:
    ds = OPERATORS[operator](SOURCES[source]())
    with ds.feed(**options) as feed:
        states = [feed.state_dict()]
        assert list(feed) == []
        states.append(feed.state_dict())
    for state in states:
        with ds.feed(**options) as feed:
            feed.load_state_dict(state)
            assert list(feed) == []
