"""shard_by_rank: all ranks make the same steps, together they deliver the global sequence, and a state goes on with other ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from feeds import resumed, state_behind
from laws.epochs import rest

import penstock as ps
from penstock.errors import PlanError, StateMismatch

Plan = Callable[[Callable[[ps.Dataset], ps.Dataset]], ps.Dataset]
"""A pipeline, given what stands in the place of the shard."""


def _numbers(count: int = 101) -> ps.Dataset:
    return ps.from_arrays(np.arange(count))


def _odd(x: Any) -> bool:
    return bool(x % 3)


def _some(x: Any) -> list[Any]:
    return [x * 10 + n for n in range(int(x) % 4)]


def _tokens(x: Any) -> Any:
    return np.full(int(x) % 7 + 1, x)


def _same(x: Any) -> Any:
    return {**x} if isinstance(x, dict) else x + 0


def _valid_field(x: Any) -> Any:
    return {"valid": x}


def _named(x: Any) -> Any:
    return x if isinstance(x, dict) else {"value": x}


PLANS: dict[str, Plan] = {
    "positions, batches": lambda shard: shard(_numbers().shuffle(seed=3)).batch(4),
    "positions, repeated": lambda shard: shard(_numbers(29).shuffle(seed=3)).map(_same).batch(3).repeat(3),
    "mix": lambda shard: shard(_numbers(40).mix(_numbers(60), weights=[0.3, 0.7])).batch(2),
    "batches by rank": lambda shard: shard(_numbers().batch(4)),
    "filter, batches": lambda shard: shard(_numbers().shuffle(seed=3).filter(_odd).map(_same)).map(_same).batch(3),
    "filter, repeated": lambda shard: shard(_numbers(29).filter(_odd)).batch(2).repeat(3),
    "repeat below, filter": lambda shard: shard(_numbers(29).repeat(3).filter(_odd).take(50)).batch(2),
    "flat_map": lambda shard: shard(_numbers(40).flat_map(_some)).map(_same).batch(4),
    "batches of a filter": lambda shard: shard(_numbers().filter(_odd).batch(4)).map(_same),
    "shuffle buffer, repeated": lambda shard: shard(_numbers(40).filter(_odd).shuffle(16, seed=5)).batch(3).repeat(2),
    "buckets": lambda shard: shard(_numbers().map(_tokens).bucket_by_length(len, [3, 5], [4, 3, 2])).map(_same),
    "packs": lambda shard: shard(_numbers().map(_tokens).pack_sequences(16, num_bins=4)).batch(2),
    "split packs": lambda shard: shard(_numbers().map(_tokens).pack_sequences(16, split=True)).map(dict).batch(2),
    "stream": lambda shard: shard(ps.from_generator(lambda: iter(range(101)), fast_forward=True)).map(_same).batch(3),
    "windows": lambda shard: shard(_numbers().filter(_odd).window(3, shift=2, drop_remainder=True)).batch(2),
}


PASSES = {"positions, repeated": 3, "filter, repeated": 3, "shuffle buffer, repeated": 2}
"""Of the plans with a repeat above the shard: how many."""


def _ids(tree: Any) -> Any:
    return tuple(map(_ids, tree.values())) if isinstance(tree, dict) else np.asarray(tree).tolist()


def _rows(items: list[Any], *, batched: bool) -> list[Any]:
    """Return the elements below the batches of a rank."""
    if not batched:
        return [_ids(item) for item in items]
    rows: list[Any] = []
    for item in items:
        if isinstance(item, dict):
            columns = list(item.values())
            rows += [tuple(np.asarray(column[n]).tolist() for column in columns) for n in range(len(columns[0]))]
        else:
            rows += [np.asarray(row).tolist() for row in item]
    return rows


def _is_batched(name: str) -> bool:
    return name not in ("batches by rank", "batches of a filter", "buckets", "columns, filter", "whole batches")


def _by_rank(rank: int, num_ranks: int, even: Any = "drop") -> Callable[[ps.Dataset], ps.Dataset]:
    return lambda ds: ds.shard_by_rank(even, rank=rank, num_ranks=num_ranks)


def _whole(name: str) -> list[Any]:
    """Return the global sequence: that of one rank."""
    return _rows(list(PLANS[name](_by_rank(0, 1))), batched=_is_batched(name))


def _expected(name: str, num_ranks: int, num_done: int = 0, done_by: int = 1) -> list[Any]:
    """Return what `num_ranks` ranks deliver behind `num_done` elements of `done_by` ranks: each pass without a last round that is short."""
    whole, out = _whole(name), list[Any]()
    length = len(whole) // PASSES.get(name, 1)
    for number in range(PASSES.get(name, 1)):
        done = min(num_done, length // done_by * done_by)
        num_done -= done
        at_end = done == length // done_by * done_by
        if at_end and (num_done or name != "filter, repeated"):  # there the end comes behind the state: what is left of the pass too
            continue
        rest = whole[number * length + done : (number + 1) * length]
        out += rest[: len(rest) // num_ranks * num_ranks]
    return out


def _interleaved(parts: list[list[Any]]) -> list[Any]:
    assert len({len(part) for part in parts}) == 1, [len(part) for part in parts]
    return [part[n] for n in range(len(parts[0])) for part in parts]


@pytest.mark.parametrize("num_ranks", [2, 5])
@pytest.mark.parametrize("name", PLANS)
def test_ranks_make_equal_steps_and_share_the_global_sequence(name: str, num_ranks: int) -> None:
    batched, feeds = _is_batched(name), []
    for rank in range(num_ranks):
        with PLANS[name](_by_rank(rank, num_ranks)).feed(executor="threads", num_workers=rank) as feed:
            feeds.append(list(feed))
    assert len({len(items) for items in feeds}) == 1
    together = _interleaved([_rows(items, batched=batched) for items in feeds])
    assert together == _expected(name, num_ranks)


@pytest.mark.parametrize("num_ranks", [3, 7])
@pytest.mark.parametrize("name", [name for name in PLANS if "repeated" not in name])
def test_padding_repeats_the_first_elements_of_the_last_round(name: str, num_ranks: int) -> None:
    parts = []
    for rank in range(num_ranks):
        with PLANS[name](_by_rank(rank, num_ranks, "pad")).feed(num_workers=0) as feed:
            parts.append(_rows(list(feed), batched=_is_batched(name)))
    whole, together = _whole(name), _interleaved(parts)
    left = len(whole) % num_ranks
    last = whole[len(whole) - left :]
    assert together == whole + [last[n % left] for n in range(left, num_ranks) if left]


def _masked(rank: int, num_ranks: int) -> Callable[[ps.Dataset], ps.Dataset]:
    return lambda ds: ds.map(_named).shard_by_rank("mask", rank=rank, num_ranks=num_ranks)


def _named_columns(rank: int, num_ranks: int) -> Callable[[ps.Dataset], ps.Dataset]:
    """Without a map: the field is added to columns, or right behind a fold."""
    return lambda ds: ds.shard_by_rank("mask", rank=rank, num_ranks=num_ranks)


MASKED: dict[str, tuple[Plan, Any]] = {
    **{name: (plan, _masked) for name, plan in PLANS.items()},
    "packs, no map": (PLANS["packs"], _named_columns),
    "columns": (lambda shard: shard(ps.from_arrays({"value": np.arange(101)}).shuffle(seed=3)).batch(4), _named_columns),
    "columns, filter": (lambda shard: shard(ps.from_arrays({"value": np.arange(101)}).filter(lambda x: _odd(x["value"]))), _named_columns),
    "whole batches": (lambda shard: shard(ps.from_arrays({"value": np.arange(101)}).batch(4)).map(_same), _named_columns),
}


def _valid(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    assert {row[-1] for row in rows} <= {True, False}
    return [row[:-1] for row in rows if row[-1]]


@pytest.mark.parametrize("num_ranks", [2, 7, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 5, 150))])
@pytest.mark.parametrize("name", MASKED)
def test_each_element_is_valid_once_over_all_ranks(name: str, num_ranks: int) -> None:
    plan, shard = MASKED[name]
    batched = _is_batched(name)
    whole = _valid(_rows(list(plan(shard(0, 1)).feed(num_workers=0)), batched=batched))
    parts = []
    for rank in range(num_ranks):
        with plan(shard(rank, num_ranks)).feed(executor="threads", num_workers=rank % 2) as feed:
            parts.append(_rows(list(feed), batched=batched))
    together = _interleaved(parts)
    assert _valid(together) == whole
    assert len(together) - len(whole) < num_ranks * PASSES.get(name, 1)
    assert all(row[:-1] in whole for row in together)  # the others are copies


@pytest.mark.parametrize("moved_to", [1, 2, *(pytest.param(number, marks=pytest.mark.slow) for number in (3, 5))])
@pytest.mark.parametrize("name", MASKED)
def test_each_element_is_valid_once_also_when_other_ranks_go_on(name: str, moved_to: int) -> None:
    num_ranks, (plan, shard), batched = 3, MASKED[name], _is_batched(name)
    whole = _valid(_rows(list(plan(shard(0, 1)).feed(num_workers=0)), batched=batched))
    num_steps = len(list(plan(shard(0, num_ranks)).feed(num_workers=0)))
    for at in sorted({1, num_steps // 2, num_steps - 1} - {0}):
        before, after, state = [], [], None
        for rank in range(num_ranks):
            with plan(shard(rank, num_ranks)).feed(executor="threads", num_workers=rank % 2) as feed:
                before.append(_rows([next(feed) for _ in range(at)], batched=batched))
                state = feed.state_dict()
        for rank in range(moved_to):
            with plan(shard(rank, moved_to)).feed(executor="threads", num_workers=rank % 2) as feed:
                feed.load_state_dict(state)
                after.append(_rows(list(feed), batched=batched))
        assert _valid(_interleaved(before)) + _valid(_interleaved(after)) == whole, at


@pytest.mark.parametrize("moved_to", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 3)), 5])
@pytest.mark.parametrize("name", PLANS)
def test_a_state_goes_on_with_other_ranks_and_nothing_is_lost_or_repeated(name: str, moved_to: int) -> None:
    num_ranks, batched = 3, _is_batched(name)
    with PLANS[name](_by_rank(0, num_ranks)).feed() as feed:
        num_steps = sum(1 for _ in feed)
    for at in sorted({1, num_steps // 2, num_steps - 1} - {0}):
        before, states = [], []
        for rank in range(num_ranks):
            with PLANS[name](_by_rank(rank, num_ranks)).feed(executor="threads", num_workers=rank % 2) as feed:
                before.append(_rows([next(feed) for _ in range(at)], batched=batched))
                states.append(feed.state_dict())
        after, again = [], []
        for rank in range(moved_to):
            with PLANS[name](_by_rank(rank, moved_to)).feed(executor="threads", num_workers=rank % 2) as feed:
                feed.load_state_dict(states[rank % num_ranks])
                items = []
                for item in feed:
                    items.append(item)
                    if len(items) == 2:
                        again.append(feed.state_dict())
                after.append(_rows(items, batched=batched))
        done = _interleaved(before)
        assert _interleaved(after) == _expected(name, moved_to, len(done), num_ranks), at
        if again and len(items) > 2 and name not in PASSES:  # a state of what was moved moves again
            with PLANS[name](_by_rank(0, moved_to)).feed() as feed:
                feed.load_state_dict(states[0])
                num_done = moved_to * len(_rows([next(feed), next(feed)], batched=batched))
            assert _rows(resumed(PLANS[name](_by_rank(0, 1)), again[0]), batched=batched) == _whole(name)[len(done) + num_done :], at


@pytest.mark.parametrize("name", [name for name in PLANS if "repeated" not in name and name not in ("mix",)])
def test_error_is_raised_instead_of_the_end(name: str) -> None:
    num = len(_whole(name))
    num_ranks = next(count for count in range(2, 9) if num % count)
    with pytest.raises(PlanError, match=f"no multiple of {num_ranks} ranks: {num % num_ranks} are left"):
        list(PLANS[name](_by_rank(0, num_ranks, "error")).feed(num_workers=0))


@pytest.mark.parametrize(
    ("operator", "above"),
    [
        ("filter", lambda ds: ds.filter(_odd)),
        ("flat_map", lambda ds: ds.flat_map(_some)),
        ("unbatch", lambda ds: ds.batch(2).unbatch()),
        ("bucket_by_length", lambda ds: ds.map(_tokens).bucket_by_length(len, [3], [2, 2])),
        ("pack_sequences", lambda ds: ds.map(_tokens).pack_sequences(8)),
    ],
)
def test_what_makes_uneven_steps_is_refused_above(operator: str, above: Callable[[ps.Dataset], ps.Dataset]) -> None:
    with pytest.raises(
        PlanError, match=rf"{operator}.* stands after shard_by_rank(.|\n)*where: {operator}(.|\n)*put shard_by_rank\(\) after"
    ):
        above(_numbers().shard_by_rank(rank=0, num_ranks=2)).feed()


def test_padding_is_said_with_its_number_at_the_end_of_a_stream() -> None:
    ds = _numbers(20).filter(_odd).shard_by_rank("pad", rank=1, num_ranks=4)  # 13 elements
    with ds.feed() as feed:
        assert len(list(feed)) == 4
        notices = feed.stats().notices
    assert "the last round of a pass had 1 elements, and repeated some of them for 3 of the ranks" in notices


def _fails_at_50(x: Any) -> Any:
    if x == 50:
        raise ValueError("50")
    return x


def test_an_element_left_out_below_is_left_out_on_all_ranks_and_one_above_would_be_missing_on_one_alone() -> None:
    ranks = []
    for rank in range(2):
        ds = _numbers().filter(_odd).map(_fails_at_50, on_error=ps.Skip()).shard_by_rank(rank=rank, num_ranks=2).batch(4)
        with ds.feed() as feed:
            ranks.append([int(x) for batch in feed for x in batch])
    assert _interleaved(ranks) == [n for n in range(101) if n % 3 and n != 50]  # 66 elements, an even number

    below = _numbers().filter(_odd).map(_fails_at_50, on_error=ps.Skip()).shard_by_rank(rank=0, num_ranks=2)
    with below.feed() as feed:
        next(feed)
        assert any("shifts the rounds of a single rank" in text for text in feed.stats().notices)

    above = _numbers().filter(_odd).shard_by_rank(rank=0, num_ranks=2).map(_fails_at_50)
    for feed_of in (above.feed, _numbers().filter(_odd).shard_by_rank(rank=0, num_ranks=2).map(_fails_at_50, on_error=ps.Skip()).feed):
        with pytest.raises(PlanError, match=r"missing on one rank alone(.|\n)*put '_fails_at_50' before shard_by_rank"):
            feed_of(on_error=ps.Skip())


def test_where_positions_are_known_skip_shortens_a_batch_and_the_steps_stay_equal() -> None:
    lengths = []
    for rank in range(2):
        with _numbers(100).shard_by_rank(rank=rank, num_ranks=2).map(_fails_at_50).batch(4).feed(on_error=ps.Skip()) as feed:
            lengths.append([len(batch) for batch in feed])
    assert [len(one) for one in lengths] == [13, 13]
    assert [sum(one) for one in lengths] == [49, 50]


def test_a_second_shard_is_refused() -> None:
    with pytest.raises(PlanError, match="a part of a part"):
        _numbers().shard(2, 0).shard_by_rank(rank=0, num_ranks=2)
    assert len(_numbers(10).shard(2, 0).shard_by_rank(rank=0, num_ranks=1)) == 5


def test_states_of_what_counts_above_the_shard_keep_their_ranks() -> None:
    def plan(num_ranks: int) -> ps.Dataset:
        return _numbers().filter(_odd).shard_by_rank(rank=0, num_ranks=num_ranks).take(10)

    state = state_behind(plan(2))
    with plan(3).feed() as feed, pytest.raises(StateMismatch, match="nothing but map, batch, repeat and prefetch"):
        feed.load_state_dict(state)


# -- operators after the shard: each rank computes its own elements only, behind an endless repeat ----------


def _endless(count: int = 29) -> ps.Dataset:
    return _numbers(count).shuffle(seed=3).repeat()


OWN: dict[str, Plan] = {
    "filter": lambda shard: shard(_endless()).filter(_odd).batch(3).take(12),
    "flat_map": lambda shard: shard(_endless()).flat_map(_some).map(_same).batch(4).take(12),
    "packs": lambda shard: shard(_endless().map(_tokens)).filter(len).pack_sequences(16, num_bins=4).batch(2).take(12),
    "buckets": lambda shard: shard(_endless()).map(_tokens).bucket_by_length(len, [3, 5], [4, 3, 2]).take(12),
    "costs": lambda shard: shard(_endless()).map(_tokens).batch_by_cost(len, 12, pool=8).take(12),
    "shuffle buffer": lambda shard: shard(_endless()).filter(_odd).shuffle(8, seed=5).batch(2).take(12),
    "packs of a filter": lambda shard: shard(_numbers(29).filter(_odd).repeat()).map(_tokens).pack_sequences(16, split=True).take(12),
    "packs of a stream": lambda shard: (
        shard(ps.from_generator(lambda: iter(range(29)), fast_forward=True).repeat()).map(_tokens).pack_sequences(16).take(12)
    ),
    "repeat after them": lambda shard: shard(_numbers(29)).filter(_odd).repeat().batch(3).take(12),
}


def _list_of(rank: int, num_ranks: int) -> Callable[[ps.Dataset], ps.Dataset]:
    """In place of the shard: the elements of a rank as plain Python deals them."""

    def rounds(ds: ps.Dataset) -> ps.Dataset:
        elements = list(islice(ds, 600 * num_ranks))
        return ps.from_source(elements[: len(elements) // num_ranks * num_ranks][rank::num_ranks])

    return rounds


@pytest.mark.parametrize("num_ranks", [2, 5])
@pytest.mark.parametrize("name", OWN)
def test_behind_an_endless_repeat_each_rank_has_its_own_elements_and_goes_on_from_its_own_state(name: str, num_ranks: int) -> None:
    ways: list[dict[str, Any]] = [{"num_workers": 0}, {"executor": "threads", "num_workers": 2}, {"executor": "threads", "num_workers": 3}]
    for rank in range(num_ranks):
        plan = OWN[name](_by_rank(rank, num_ranks))
        whole = [_ids(item) for item in OWN[name](_list_of(rank, num_ranks))]
        assert len(whole) == 12  # as many steps on each rank
        got, state = list[Any](), None
        for life, steps in enumerate((1, 0, 3, 5, 99)):
            with plan.feed(**ways[(life + rank) % 3]) as feed:
                if state is not None:
                    feed.load_state_dict(json.loads(state))
                got += [_ids(item) for item in islice(rest(feed), steps)]
                state = json.dumps(feed.state_dict())
        assert got == whole


def test_behind_an_endless_repeat_an_element_is_computed_on_one_rank_alone() -> None:
    for rank in range(3):
        seen = list[int]()

        def noted(pair: Any, seen: list[int] = seen) -> Any:
            seen.append(int(pair[0]))
            return _tokens(pair[1])

        list(_endless().enumerate().shard_by_rank(rank=rank, num_ranks=3).map(noted).pack_sequences(16).take(9).feed(num_workers=0))
        assert seen == list(range(rank, 3 * len(seen), 3))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("rank", "num_ranks"), [(1, 2), (0, 3), (0, 1)])
def test_the_state_of_one_rank_is_refused_on_another(rank: int, num_ranks: int, strict: bool) -> None:
    state = state_behind(OWN["packs"](_by_rank(0, 2)))
    words = (
        rf"saved by rank 0 of 2 and this process is rank {rank} of {num_ranks}(.|\n)*fix: +load on each rank the state that it saved itself"
    )
    with OWN["packs"](_by_rank(rank, num_ranks)).feed() as feed, pytest.raises(StateMismatch, match=words):
        feed.load_state_dict(state, strict=strict)


@pytest.mark.parametrize(
    "above",
    [
        lambda ds: ds.take(40).filter(_odd),
        lambda ds: ds.filter(_odd).take(40).flat_map(_some).take(9),
    ],
)
def test_what_makes_uneven_steps_behind_an_end_is_refused_also_after_an_endless_repeat(above: Any) -> None:
    with pytest.raises(PlanError, match=r"stands after shard_by_rank(.|\n)*or put repeat\(\) before shard_by_rank\(\), and take\(n\) last"):
        above(_endless().shard_by_rank(rank=0, num_ranks=2)).feed()
    mix = _endless().mix(_numbers(9)).shard_by_rank(rank=0, num_ranks=2)  # its end is that of the shorter one
    with pytest.raises(PlanError, match="filter stands after shard_by_rank"):
        mix.filter(_odd).feed()


def test_weights_change_only_where_all_ranks_are_at_the_same_place() -> None:
    def of(weights: Any, shard: Callable[[ps.Dataset], ps.Dataset]) -> ps.Dataset:
        return shard(_endless().mix(_endless(), weights=weights)).filter(_odd).batch(2)

    for shard in (_by_rank(0, 2), lambda ds: ds.shard(2, 0)):
        state = state_behind(of([1, 2], shard))
        with of([2, 1], shard).feed() as feed, pytest.raises(StateMismatch, match="how many elements it has given does not follow"):
            feed.load_state_dict(state)


def test_behind_an_endless_repeat_skip_leaves_elements_out_of_one_rank_and_after_take_it_is_refused() -> None:
    own = _numbers(101).repeat().shard_by_rank(rank=0, num_ranks=2).map(_fails_at_50).filter(_odd).map(_same)
    with own.take(80).batch(4).feed(on_error=ps.Skip()) as feed:
        assert [int(x) for batch in feed for x in batch] == [x % 101 for x in range(0, 400, 2) if x % 101 % 3 and x % 101 != 50][:80]
        assert not any("shifts the rounds" in text for text in feed.stats().notices)
    for ds in (own.take(80).map(_same), _numbers().filter(_odd).repeat().shard_by_rank(rank=0, num_ranks=2).map(_same)):
        with pytest.raises(PlanError, match="missing on one rank alone"):
            ds.batch(4).feed(on_error=ps.Skip())


_ONLY_DICTS = (
    r"even='mask' adds the field 'valid' to each element, but an element {}(.|\n)*shard_by_rank\(even='mask'\)(.|\n)*"
    r"call map\(\) with a function"
)


@pytest.mark.parametrize(
    ("words", "ds"),
    [
        ("is no dict", _numbers(5)),
        ("is no dict", _numbers(5).filter(_odd)),
        ("is no dict", _numbers(5).batch(2)),
        ("is no dict", _numbers(5).map(_same, output_spec=ps.ArraySpec((), np.int64))),
        ("has this field already", ps.from_arrays({"valid": np.arange(5)})),
    ],
)
def test_elements_that_take_no_mark_are_refused_at_once_where_their_fields_are_known(words: str, ds: ps.Dataset) -> None:
    with pytest.raises(PlanError, match=_ONLY_DICTS.format(words)):
        ds.shard_by_rank("mask", rank=0, num_ranks=2)


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"executor": "threads"}, {"executor": "processes", "num_workers": 1}], ids=str)
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(("words", "fn"), [("is no dict", _same), ("has this field already", _valid_field)])
def test_elements_that_take_no_mark_are_refused_at_the_first_of_them(words: str, fn: Any, filtered: bool, options: dict[str, Any]) -> None:
    ds = _numbers(5).filter(_odd).map(fn) if filtered else _numbers(5).map(fn)
    with ds.shard_by_rank("mask", rank=0, num_ranks=2).batch(2).feed(**options) as feed:
        with pytest.raises(PlanError, match=_ONLY_DICTS.format(words)) as caught:
            next(feed)
        assert any("shard_by_rank" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("where", "make"),
    [
        (r"batch\(drop_remainder=True\)", lambda ds, shard: shard(ds).batch(2, drop_remainder=True)),
        (r"padded_batch\(drop_remainder=True\)", lambda ds, shard: shard(ds).padded_batch(2, drop_remainder=True)),
        (r"window\(drop_remainder=True\)", lambda ds, shard: shard(ds).window(2, drop_remainder=True)),
        (r"drop_remainder=True before shard_by_rank\(\)", lambda ds, shard: shard(ds.batch(2, drop_remainder=True))),
    ],
)
def test_a_mask_and_what_leaves_elements_out_exclude_each_other(where: str, make: Any) -> None:
    ds = ps.from_arrays({"x": np.arange(5)})
    with pytest.raises(
        PlanError, match=rf"even='mask' is for giving each of them once\n +where: {where}\n +fix: +leave drop_remainder= out"
    ):
        make(ds, _named_columns(0, 2))


@pytest.mark.parametrize("policy", [ps.Replace(), ps.Retry(1, then=ps.Replace())])
def test_a_mask_refuses_policies_that_put_another_element_in_the_place_of_one(policy: Any) -> None:
    ds = ps.from_arrays({"x": np.arange(5)}).map(_same).shard_by_rank("mask", rank=0, num_ranks=2)
    with pytest.raises(
        PlanError, match=r"(Skip|Replace) puts another element in the place(.|\n)*would then be valid twice(.|\n)*use Raise or Retry"
    ):
        ds.batch(2).feed(on_error=policy)
    with ds.feed(on_error=ps.Retry(1)) as feed:
        assert len(list(feed)) == 3


def test_below_a_filter_a_mask_lets_skip_leave_elements_out() -> None:
    def fails(x: Any) -> Any:
        return {"x": _fails_at_50(x)}

    parts = []
    for rank in range(2):
        with _numbers().filter(_odd).map(fails, on_error=ps.Skip()).shard_by_rank("mask", rank=rank, num_ranks=2).feed() as feed:
            parts.append([(row["x"], row["valid"]) for row in feed])
    assert [x for x, valid in _interleaved(parts) if valid] == [n for n in range(101) if n % 3 and n != 50]


def test_a_mask_says_how_many_are_no_samples_and_is_in_the_spec() -> None:
    ds = ps.from_arrays({"x": np.arange(5)}).shard_by_rank("mask", rank=1, num_ranks=2)
    assert str(ds.batch(3).spec()) == "{'x': int64[3], 'valid': bool[3]}"
    assert ds[2] == {"x": 4, "valid": False}
    assert "has 1 elements, and repeats some for 1 of the ranks, marked as not valid" in ds.explain()


def test_a_mask_of_batches_cannot_stand_above_a_map_with_workers_of_its_own() -> None:
    ds = ps.from_arrays({"x": np.arange(5)}).batch(2).map(_same, concurrency=2).shard_by_rank("mask", rank=0, num_ranks=2)
    with pytest.raises(
        PlanError, match=r"shard_by_rank\(even='mask'\) after a map with concurrency=(.|\n)*put shard_by_rank\(\) before the batch"
    ):
        list(ds)
