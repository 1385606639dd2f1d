"""Several ranks, and states that move between them: FAULTS B31, E11, E12. A rank is a feed of its shard.

A state says where all ranks together are, if all have delivered the same number of steps. No rank sees another's state, so states of
different steps can only be told by comparing them: `state["global"]` is equal on all ranks or the save was torn.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from faults.test_resume import noisy
from faults.ways import WAYS, drained
from laws.plans import plain

import penstock as ps

SIZE = 96


def source(size: int = SIZE) -> ps.Dataset:
    return ps.from_source(range(size)).shuffle(seed=5)


def mixed() -> ps.Dataset:
    return source(40).mix(ps.from_source(range(1000, 1056)), weights=[1, 2], stop="all_exhausted")


def interleaved() -> ps.Dataset:
    return ps.from_source(range(8)).interleave(lambda k: ps.from_source(range(100 * k, 100 * k + 12)), 3, 2).shuffle(seed=1)


PIPELINES: dict[str, tuple[Callable[[], ps.Dataset], Callable[[ps.Dataset], ps.Dataset]]] = {
    "elements": (source, lambda ds: ds.map(noisy)),
    "batches": (source, lambda ds: ds.map(noisy).batch(2)),
    "passes of batches": (source, lambda ds: ds.map(noisy).batch(2).repeat(3)),
    "batches over passes": (source, lambda ds: ds.repeat(3).map(noisy).batch(2)),
    "padded batches": (source, lambda ds: ds.padded_batch(2).prefetch(2)),
    "ragged batches": (
        source,
        lambda ds: ds.map(lambda x: np.full(1, x)).ragged_batch(2).map(lambda batch: batch["values"]),
    ),
    "a mix": (mixed, lambda ds: ds.map(noisy).batch(2)),
    "an interleave": (interleaved, lambda ds: ds.map(noisy).batch(2)),
    "a cache": (lambda: source().map(noisy).cache(), lambda ds: ds.batch(2)),
    "windows": (lambda: ps.from_source(range(SIZE)).window(3, 1), lambda ds: ds.map(lambda w: int(w[0])).batch(2)),
}
every_pipeline = pytest.mark.parametrize("pipeline", PIPELINES)


def ranks(pipeline: str, num_ranks: int) -> list[ps.Dataset]:
    below, above = PIPELINES[pipeline]
    return [above(below().shard(num_ranks, index)) for index in range(num_ranks)]


def flat(items: list[Any]) -> list[Any]:
    return [x for item in items for x in (item if isinstance(item, list) else [item])]


def head_of(ds: ps.Dataset, steps: int, **way: Any) -> tuple[list[Any], dict[str, Any]]:
    with ds.feed(**way) as feed:
        items = [plain(next(feed)) for _ in range(steps)]
        return items, json.loads(json.dumps(feed.state_dict()))


def rest_of(ds: ps.Dataset, state: Any, **way: Any) -> list[Any]:
    feed = ds.feed(**way)
    feed.load_state_dict(state)
    items, error = drained(feed)
    assert error is None
    return items


@pytest.mark.slow
@every_pipeline
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations([1, 2, 3, 4], 2)))
def test_a_run_goes_on_with_any_other_number_of_ranks_without_loss_or_repeat(pipeline: str, before: int, after: int) -> None:
    """The states of all old ranks agree, and any of them serves every new rank."""
    chance = random.Random(f"{pipeline} {before} {after}")
    whole = sorted(flat(drained(ranks(pipeline, 1)[0].feed(executor="inline"))[0]))
    steps = len(whole) // (2 * before) if pipeline != "elements" else len(whole) // before
    for step in (0, 1, chance.randrange(2, steps - 1), steps - 1):
        heads, states = zip(*(head_of(ds, step, **chance.choice(WAYS)) for ds in ranks(pipeline, before)), strict=True)
        assert all(state["global"] == states[0]["global"] for state in states)
        rest = [rest_of(ds, chance.choice(states), **chance.choice(WAYS)) for ds in ranks(pipeline, after)]
        assert sorted(flat([*itertools.chain(*heads), *itertools.chain(*rest)])) == whole


def test_the_global_order_is_kept_when_the_number_of_ranks_changes() -> None:
    """Dealt out to one rank, what is left comes in the order of the run on one rank."""
    whole = drained(ranks("elements", 1)[0].feed(executor="inline"))[0]
    for num_ranks, step in itertools.product((2, 3, 4), (1, 7, 20)):
        _, state = head_of(ranks("elements", num_ranks)[0], step)
        assert rest_of(ranks("elements", 1)[0], state, executor="threads", num_workers=2) == whole[num_ranks * step :]


def test_a_length_that_the_ranks_do_not_divide_loses_nothing_in_one_pass() -> None:
    for size, before, after in itertools.product((31, 32, 47), (2, 3, 4), (1, 2, 3, 4)):
        old = [source(size).shard(before, index).batch(2) for index in range(before)]
        new = [source(size).shard(after, index).batch(2) for index in range(after)]
        heads, states = zip(*(head_of(ds, 3) for ds in old), strict=True)
        rest = [rest_of(ds, states[-1]) for ds in new]
        assert sorted(flat([*itertools.chain(*heads), *itertools.chain(*rest)])) == list(range(size))


@pytest.mark.parametrize(
    ("above", "words"),
    [
        (lambda ds: ds.filter(lambda x: x % 2 == 0), "shard(3, 0)"),
        (lambda ds: ds.take(10), "shard(3, 0)"),
        (lambda ds: ds.flat_map(lambda x: [x]).shuffle(8), "shard(3, 0)"),
        (lambda ds: ds.map(lambda x: np.full(1, x)).pack_sequences(8), "shard(3, 0)"),
        (lambda ds: ds.bucket_by_length(lambda x: x % 4, [2], [2, 2]), "shard(3, 0)"),
        (lambda ds: ds.window(2), "shard(3, 0)"),
        (lambda ds: ds.rejection_resample(lambda x: x % 2, [1, 1]), "shard(3, 0)"),
        (lambda ds: ds.map(lambda x: x).cache(), "shard(3, 0)"),
    ],
    ids=["filter", "take", "buffer", "pack", "bucket", "window", "resample", "cache"],
)
def test_a_state_that_cannot_move_to_other_ranks_is_refused_before_the_first_element(above: Any, words: str) -> None:
    old, new = above(source().shard(2, 0)), above(source().shard(3, 0))
    _, state = head_of(old, 2)
    feed = new.feed()
    with pytest.raises(ps.errors.StateMismatch) as refused:
        feed.load_state_dict(state)
    assert "shard(2, 0)" in refused.value.what
    assert words in refused.value.what
    assert refused.value.where == "load_state_dict()"
    assert refused.value.fix.startswith(
        "resume with the same shards, or put shard() after shuffle and filter; states of ordered=False never"
    )
    assert feed.step == 0


def test_a_state_of_another_rank_is_refused_where_it_is_not_the_place_of_all() -> None:
    ds = [source().shard(2, index).filter(lambda x: x % 2 == 0).batch(2) for index in range(2)]
    _, state = head_of(ds[0], 2)
    with pytest.raises(ps.errors.StateMismatch) as refused:
        ds[1].feed().load_state_dict(state)
    assert "shard(2, 0)" in refused.value.what
    assert "shard(2, 1)" in refused.value.what


@every_pipeline
def test_a_rank_whose_state_is_missing_goes_on_with_that_of_any_other(pipeline: str) -> None:
    old = ranks(pipeline, 3)
    whole = sorted(flat(drained(ranks(pipeline, 1)[0].feed(executor="inline"))[0]))
    heads, states = zip(*(head_of(ds, 5) for ds in old), strict=True)
    rest = [rest_of(ds, states[1]) for ds in old]  # the states of ranks 0 and 2 were lost
    assert sorted(flat([*itertools.chain(*heads), *itertools.chain(*rest)])) == whole


@every_pipeline
def test_states_of_different_steps_are_exact_on_their_own_ranks_and_show_that_they_differ(pipeline: str) -> None:
    """Mixed steps are no fault as long as each rank keeps its own state; the global places tell whoever moves them that they differ."""
    old = ranks(pipeline, 3)
    steps = (4, 6, 5)
    heads, states = zip(*(head_of(ds, step) for ds, step in zip(old, steps, strict=True)), strict=True)
    for ds, head, state in zip(old, heads, states, strict=True):
        assert head + rest_of(ds, state) == drained(ds.feed(executor="inline"))[0]
    places = {json.dumps(state["global"]) for state in states}
    assert len(places) == 3


# -- uneven shards (B31) ----------


@pytest.mark.parametrize("num_ranks", [2, 3, 5, 8])
def test_the_number_of_steps_of_each_rank_is_known_before_the_start(num_ranks: int) -> None:
    for size, batch in itertools.product((0, 3, 7, 64, 97), (1, 4)):
        shards = [source(size).shard(num_ranks, index).batch(batch) for index in range(num_ranks)]
        for ds in shards:
            with ds.feed(executor="threads", num_workers=2) as feed:
                assert len(ds) == sum(1 for _ in feed) if len(ds) else True
        assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("size", [3, 10, 97])
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_equal_steps_come_by_leaving_out_or_by_starting_over(size: int, num_ranks: int) -> None:
    batch = 2
    cut = size - size % (num_ranks * batch)
    dropped = [source(size).take(cut).shard(num_ranks, index).batch(batch) for index in range(num_ranks)]
    assert len({len(ds) for ds in dropped}) == 1
    steps = -(-size // (num_ranks * batch))
    padded = [source(size).repeat().shard(num_ranks, index).batch(batch).take(steps) for index in range(num_ranks)]
    items = [drained(ds.feed(executor="threads", num_workers=2))[0] for ds in padded]
    assert [len(one) for one in items] == [steps] * num_ranks
    assert set(flat(list(itertools.chain(*items)))) == set(range(size))  # everything is seen


@pytest.mark.filterwarnings("ignore:this dataset gave no elements")
def test_more_ranks_than_elements_leave_some_without_and_none_waiting() -> None:
    items = [drained(source(3).shard(8, index).batch(2).feed(executor="threads", num_workers=2)) for index in range(8)]
    assert [error for _, error in items] == [None] * 8
    assert sorted(flat([item for one, _ in items for item in one])) == [0, 1, 2]
