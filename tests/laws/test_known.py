"""Operators that go by measured numbers: what the stream operators give, in positions; on any executor and any number of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feeds import resumed, state_behind

import penstock as ps
from penstock.errors import PlanError, SpecError

COUNT, ROW = 900, 64
LENGTHS = np.minimum(np.random.default_rng(0).lognormal(2.5, 1.0, COUNT).astype(int) + 1, ROW).tolist()


def document(number: int) -> dict[str, Any]:
    return {"tokens": np.full(LENGTHS[number], number, np.int32), "weight": np.float64(number / 2)}


def length(element: dict[str, Any]) -> int:
    return len(element["tokens"])


def is_kept(element: dict[str, Any]) -> bool:
    return length(element) % 3 != 0


def fails_at_times(element: dict[str, Any]) -> dict[str, Any]:
    if element["tokens"][0] % 50 == 7:
        raise ValueError("a bad document")
    return element


def longer(element: dict[str, Any]) -> dict[str, Any]:
    return {**element, "tokens": np.append(element["tokens"], 0)} if element["tokens"][0] == 5 else element


def documents() -> ps.Dataset:
    return ps.from_source(range(COUNT)).map(document)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    folder = tmp_path_factory.mktemp("measured")
    ds = documents().measure(folder / "numbers", num_workers=0, length=length, keep=is_kept)
    assert len(ds.filter(by="keep").pack_sequences(ROW, by="length"))  # both files are mapped before the tests
    return ds


def contents(elements: Any) -> list[Any]:
    return [{name: array.tolist() for name, array in element.items()} for element in elements]


EQUAL: dict[str, tuple[Callable[[ps.Dataset], ps.Dataset], Callable[[ps.Dataset], ps.Dataset]]] = {
    "filter": (lambda ds: ds.filter(by="keep"), lambda ds: ds.filter(is_kept)),
    "bucket": (
        lambda ds: ds.bucket_by_length(by="length", bucket_boundaries=[8, 16], bucket_batch_sizes=[8, 4, 2]),
        lambda ds: ds.bucket_by_length(length, [8, 16], [8, 4, 2]),
    ),
    "cost": (
        lambda ds: ds.batch_by_cost(by="length", max_cost=256, pool=50, pad_to_multiple_of=8),
        lambda ds: ds.batch_by_cost(length, 256, pool=50, pad_to_multiple_of=8),
    ),
    "cut": (lambda ds: ds.pack_sequences(ROW, by="length", split=True), lambda ds: ds.pack_sequences(ROW, split=True)),
    "cut, numbered on": (
        lambda ds: ds.pack_sequences(ROW, by="length", split=True, positions="document"),
        lambda ds: ds.pack_sequences(ROW, split=True, positions="document"),
    ),
}

BELOW: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "nothing": lambda ds: ds,
    "a shuffle": lambda ds: ds.shuffle(seed=3, reshuffle_each_epoch=False),
    "parts": lambda ds: ds.take(100).concatenate(ds.skip(500)).shard(2, 1),
    "a mix": lambda ds: ds.mix(ds.skip(10), weights=[1, 2]),
    "maps": lambda ds: ds.map(dict).cache().prefetch(2),
}


@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("operator", EQUAL)
def test_by_numbers_comes_what_the_stream_operator_gives(measured: ps.Dataset, operator: str, below: str) -> None:
    by_numbers, of_stream = EQUAL[operator]
    wanted = contents(of_stream(BELOW[below](measured)))
    ds = by_numbers(BELOW[below](measured))
    assert contents(ds) == wanted
    assert len(ds) == len(wanted)
    assert contents([ds[len(ds) - 1], ds[0]]) == [wanted[-1], wanted[0]]


def test_packed_rows_have_each_token_once_and_little_padding(measured: ps.Dataset) -> None:
    rows = list(measured.pack_sequences(ROW, by="length"))
    tokens = Counter(int(token) for row in rows for token, segment in zip(row["tokens"], row["segment_ids"], strict=True) if segment)
    assert tokens == dict(enumerate(LENGTHS))
    assert len(rows) < len(list(measured.pack_sequences(ROW)))


def test_weights_of_a_mix_are_shares_of_a_number_over_whole_passes(measured: ps.Dataset) -> None:
    short, long = (measured.sort_window("length", COUNT).skip(start).take(200) for start in (0, 700))
    parts = [short.shuffle(seed=1).map(dict).repeat(), long.repeat()]
    tokens = [sum(sorted(LENGTHS)[start : start + 200]) for start in (0, 700)]
    weights = {0: [tokens[0], tokens[1]], 400: [3 * tokens[0], tokens[1]]}  # one pass of each, then three for one
    ds = parts[0].mix(parts[1], weights=weights, by="length").take(400 + 800)
    sizes = [length(element) for element in ds]
    assert sum(sizes[:400]) == sum(tokens)
    assert sum(sizes[400:]) == 3 * tokens[0] + tokens[1]
    assert "mix of 2 by 0.5, 0.5; 0.75, 0.25 from 400" in str(ds)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda ds: documents(), "no number 'length' is known of the elements of from_source"),
        (lambda ds: ds.take(0), "the sum of 'length' of dataset 1 is 0"),
        (lambda ds: ds.shuffle(seed=1).take(9), "gives another order"),
    ],
)
def test_a_mix_by_a_number_that_is_not_known_is_refused(
    measured: ps.Dataset, change: Callable[[ps.Dataset], ps.Dataset], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        measured.mix(change(measured), by="length")


def test_a_window_is_sorted_by_numbers(measured: ps.Dataset) -> None:
    found = [length(element) for element in measured.sort_window("length", 100)]
    assert found == [one for begin in range(0, COUNT, 100) for one in sorted(LENGTHS[begin : begin + 100])]


def plan(measured: ps.Dataset) -> ps.Dataset:
    kept = measured.shuffle(seed=3, reshuffle_each_epoch=False).filter(by="keep")
    return kept.pack_sequences(ROW, by="length").shuffle(seed=1)


CHOSEN: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "balance": lambda ds: ds.shuffle(seed=4).balance("length", num_ranks=4),
    "sort": lambda ds: ds.shuffle(seed=4).sort_window("length", 40),
    "sample": lambda ds: ds.sample(700, "length", seed=2),
    "distinct": lambda ds: ds.sample(300, "length", replacement=False, seed=2),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_each_pass_has_an_order_of_its_own_and_goes_on_on_other_ranks(measured: ps.Dataset, case: str) -> None:
    ds = CHOSEN[case](measured)
    with ds.feed(executor="inline") as feed:
        passes = [contents(feed) for _ in range(2)]
    assert passes[0] != passes[1]
    assert contents([ds[5], ds[0]]) == [passes[0][5], passes[0][0]]
    before = [ds.repeat(2).shard_by_rank(rank=rank, num_ranks=4).feed(executor="inline") for rank in range(4)]
    wanted = passes[0] + passes[1]
    steps = len(passes[0]) // 4 + 3  # into the second pass
    assert [element for step in zip(*(contents(next(feed) for _ in range(steps)) for feed in before), strict=True) for element in step] == (
        wanted[: 4 * steps]
    )
    state = before[0].state_dict()
    for rank in range(2):
        assert (
            contents(resumed(ds.repeat(2).shard_by_rank(rank=rank, num_ranks=2), state, executor="inline")) == wanted[4 * steps + rank :: 2]
        )


@pytest.mark.parametrize("case", ["pack", *CHOSEN])
@pytest.mark.parametrize("options", [{"executor": "threads", "num_workers": 3}, {"executor": "processes", "num_workers": 2}])
def test_any_executor_gives_the_same_rows(measured: ps.Dataset, options: dict[str, Any], case: str) -> None:
    ds = plan(measured).batch(4) if case == "pack" else CHOSEN[case](measured)
    with ds.feed(**options) as feed, ds.feed(executor="inline") as inline:
        assert contents(feed) == contents(inline)
        assert contents(feed) == contents(inline)  # another epoch: the rows in another order


@pytest.mark.parametrize("num_ranks", [1, 3, 7])
def test_a_run_of_four_ranks_goes_on_on_others_and_each_rank_computes_its_own_rows(measured: ps.Dataset, num_ranks: int) -> None:
    ds, calls = plan(measured), list[int]()
    wanted = Counter(str(row) for row in contents(ds))
    before = [ds.shard_by_rank(rank=rank, num_ranks=4).feed(executor="inline") for rank in range(4)]
    seen = [str(row) for feed in before for row in contents(next(feed) for _ in range(9))]
    state = before[0].state_dict()

    def counted(element: dict[str, Any]) -> dict[str, Any]:
        calls.append(int(element["tokens"][0]))
        return element

    counting = documents().map(counted)._with(measured._root.with_children([documents().map(counted)._root]))
    steps = []
    for rank in range(num_ranks):
        with plan(counting).shard_by_rank(rank=rank, num_ranks=num_ranks).feed(executor="inline") as feed:
            feed.load_state_dict(state, strict=False)
            rows = contents(feed)
        seen += [str(row) for row in rows]
        steps.append(len(rows))
    assert max(steps) == min(steps)
    left = wanted - Counter(seen)
    assert not Counter(seen) - wanted
    assert left.total() < num_ranks  # even="drop"
    assert len(calls) == len(set(calls))  # no document was computed twice


def test_an_element_that_fails_leaves_its_room_empty_and_the_other_rows_as_planned(measured: ps.Dataset) -> None:
    ds = measured.map(fails_at_times).pack_sequences(ROW, by="length")
    with ds.feed(executor="inline", on_error=ps.Skip()) as feed, pytest.warns(RuntimeWarning, match="skipped"):
        found = {tuple(sorted(set(row["tokens"][row["segment_ids"] > 0].tolist()))) for row in feed}
    whole = [set(row["tokens"][row["segment_ids"] > 0].tolist()) for row in measured.pack_sequences(ROW, by="length")]
    assert found == {tuple(sorted(one for one in row if one % 50 != 7)) for row in whole}


@pytest.mark.parametrize("split", [False, True])
def test_a_row_of_which_all_elements_fail_is_padding_so_that_ranks_make_as_many_steps(measured: ps.Dataset, split: bool) -> None:
    def fails(element: dict[str, Any]) -> dict[str, Any]:
        if 100 <= element["tokens"][0] < 300:
            raise ValueError("a damaged file")
        return element

    rows = measured.map(fails).pack_sequences(ROW, by="length", split=split, padding_value=-1)
    found = []
    for rank in range(3):
        ds = rows.shard_by_rank(rank=rank, num_ranks=3)
        with ds.feed(num_workers=2, executor="threads", on_error=ps.Skip()) as feed:
            found.append([next(feed) for _ in range(50)])
            state = feed.state_dict()
        found[-1] += resumed(ds, state, executor="inline", on_error=ps.Skip())
    assert list(map(len, found)) == [len(rows) // 3] * 3
    blank = [row for part in found for row in part if not row["segment_ids"].any()]
    assert len(blank) > 10
    assert all((row["tokens"] == -1).all() and (row["weight"] == -1).all() and not row["positions"].any() for row in blank)
    assert {row["weight"].dtype for row in blank} == {np.dtype(np.float64)}


@pytest.mark.parametrize("by", [None, "length"])
def test_a_resume_numbers_a_cut_document_on_and_knows_a_state_of_other_positions(measured: ps.Dataset, by: str | None) -> None:
    ds, other = (measured.pack_sequences(5, by=by, split=True, positions=positions) for positions in ("document", "segment"))
    with ds.feed(executor="inline") as feed:
        contents(next(feed) for _ in range(40))
        state = feed.state_dict()
        rest = contents(feed)
    assert rest[0]["positions"][0] > 0
    assert contents(resumed(ds, state, executor="inline")) == rest
    with other.feed(executor="inline") as feed, pytest.raises(ps.errors.StateMismatch, match="positions='document'"):
        feed.load_state_dict(state)


def test_a_row_whose_element_has_another_length_is_an_error(measured: ps.Dataset) -> None:
    with pytest.raises(SpecError, match=rf"element 5 of range has {LENGTHS[5] + 1} tokens, and measure\(\) has found {LENGTHS[5]}"):
        list(measured.map(longer).pack_sequences(ROW, by="length"))


def test_elements_that_could_not_be_measured_are_left_out(tmp_path: Path) -> None:
    ds = documents().map(fails_at_times)
    with pytest.warns(RuntimeWarning, match="skipped"):
        measured = ds.measure(tmp_path / "numbers", num_workers=0, on_error=ps.Skip(), length=length)
    assert [int(element["tokens"][0]) for element in measured] == [number for number in range(COUNT) if number % 50 != 7]
    again = ds.measure(tmp_path / "numbers")
    assert again.pack_sequences(ROW, by="length")[3].keys() == measured.pack_sequences(ROW, by="length")[3].keys()


def test_what_is_kept_of_other_numbers_or_another_padding_is_not_used(measured: ps.Dataset, tmp_path: Path) -> None:
    other = documents().measure(tmp_path / "other", num_workers=0, keep=lambda element: not is_kept(element))
    list(measured.filter(by="keep").cache(tmp_path / "kept"))
    found = contents(other.filter(by="keep").cache(tmp_path / "kept"))
    assert found == contents(documents().filter(lambda element: not is_kept(element)))
    for value in (1, 9):
        ds = measured.bucket_by_length(by="length", bucket_boundaries=[8], bucket_batch_sizes=[4, 2], padding_values=value)
        assert f"padding_values={value}" in ds._root.line(saved=True)
        assert ds._root.identity() == ds._root.line(saved=True)


def test_an_element_that_fits_no_row_is_named_as_it_was_measured(measured: ps.Dataset) -> None:
    with pytest.raises(SpecError, match=f" of column 'length' is {max(LENGTHS)}, and {max(LENGTHS) - 1} is the most") as caught:
        len(measured.sort_window("length", 50).filter(by="length").batch_by_cost("length", max(LENGTHS) - 1))
    assert LENGTHS[int(caught.value.what.split()[1])] == max(LENGTHS)


def test_a_lost_column_is_an_error_of_the_source_in_worker_processes_too(tmp_path: Path) -> None:
    ds = documents().measure(tmp_path / "numbers", num_workers=0, length=length).pack_sequences(ROW, by="length")
    assert len(ds)
    (tmp_path / "numbers" / "length.i4").unlink()
    with ds.feed(num_workers=1, executor="processes") as feed, pytest.raises(ps.errors.SourceError, match="is lost"):
        list(feed)


def test_a_state_of_other_numbers_is_refused(measured: ps.Dataset, tmp_path: Path) -> None:
    other = documents().measure(tmp_path / "other", num_workers=0, length=lambda element: length(element) + 1, keep=is_kept)
    state = state_behind(measured.filter(by="keep").pack_sequences(2 * ROW, by="length"), executor="inline")
    with (
        other.filter(by="keep").pack_sequences(2 * ROW, by="length").feed(executor="inline") as feed,
        pytest.raises(ps.errors.StateMismatch, match="pack_sequences"),
    ):
        feed.load_state_dict(state)


REFUSED: dict[str, tuple[Callable[[ps.Dataset], Any], str]] = {
    "a shuffle of each pass": (lambda ds: ds.shuffle(seed=1).pack_sequences(ROW, by="length"), r"put shuffle\(\) behind"),
    "passes": (lambda ds: ds.repeat(2).filter(by="keep"), r"put repeat\(\) behind"),
    "a name of nothing": (lambda ds: ds.filter(by="nothing"), "known before it: keep, length"),
    "nothing measured": (lambda ds: documents().filter(by="keep"), "nothing was measured before it"),
    "batches between": (lambda ds: ds.batch(2).filter(by="keep"), r"of the elements of batch\(2\)"),
    "a stream": (lambda ds: ds.filter(is_kept).pack_sequences(ROW, by="length"), "positions that are known"),
    "a function too": (lambda ds: ds.filter(is_kept, by="keep"), "leave one out"),
    "a policy of no function": (lambda ds: ds.filter(by="keep", on_error=ps.Skip()), "on_error is given beside"),
    "ranks below": (lambda ds: ds.shard_by_rank(rank=0, num_ranks=2).filter(by="keep"), r"put shard_by_rank\(\) behind filter"),
    "ranks that measure": (lambda ds: ds.shard_by_rank(rank=0, num_ranks=2).measure("x", n=length), "each rank would measure its own part"),
    "an option that is none": (lambda ds: ds.measure("x", workers=2), "takes any other name as that of a function, workers="),
    "a lambda below": (lambda ds: documents().map(lambda e: e).measure("x", n=length), "give version="),
    "a name of no function": (
        lambda ds: ds.bucket_by_length(by="length", bucket_batch_sizes=[2], name="x"),
        "name is given beside",
    ),
    "a name of no stage": (lambda ds: ds.batch_by_cost("length", 256, name="x"), "name is given beside"),
    "bins of no stream": (lambda ds: ds.pack_sequences(ROW, by="length", num_bins=64), "num_bins is given beside"),
    "weights of others": (lambda ds: ds.sample(5, [1.0, 2.0]), rf"weights are float64\[2\], for {COUNT} elements"),
    "a weight below 0": (lambda ds: ds.sample(5, np.arange(COUNT) - 1), "and number 0 is -1\n.*\n.*one finite number >= 0"),
    "balance for one": (
        lambda ds: ds.balance("length").shard_by_rank(rank=0, num_ranks=2),
        r"give balance\(\.\.\., num_ranks=2\)",
    ),
    "a name of no field": (
        lambda ds: next(iter(ds.pack_sequences(ROW, by="length", split=True, padding_value={"label": 1}))),
        "padding_value names 'label'",
    ),
    "too few weights": (lambda ds: ds.sample(2, np.arange(COUNT) == 7, replacement=False), "and 1 elements have a weight that is not 0"),
    "no weight": (lambda ds: ds.sample(2, np.zeros(COUNT)), "no elements have a weight"),
    "a sample of a shuffle": (lambda ds: ds.shuffle(seed=1).sample(5, "length"), r"put shuffle\(\) behind sample"),
    "balance in ranks": (lambda ds: ds.shard_by_rank(rank=0, num_ranks=2).balance("length"), r"put shard_by_rank\(\) behind balance"),
    "neither": (lambda ds: ds.filter(), "filter"),
    "positions of nothing": (lambda ds: ds.pack_sequences(ROW, positions="row"), "give 'segment' or 'document'"),
    "a row that is too short": (lambda ds: len(ds.pack_sequences(2, by="length")), "and 2 is the most"),
    "a budget that is too small": (lambda ds: len(ds.batch_by_cost("length", 2)), "and 2 is the most"),
    "a cost of two kinds": (lambda ds: ds.batch_by_cost(length, 256, by="length"), "cost is given beside"),
    "a folder of no name": (lambda ds: ds.measure(n=length), "'' is no folder"),
    "a budget of a stream": (lambda ds: list(documents().batch_by_cost(length, 2)), r"return a whole number in 0\.\.2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_planned_is_refused_with_what_to_do(measured: ps.Dataset, case: str) -> None:
    given, words = REFUSED[case]
    with pytest.raises((PlanError, SpecError), match=words):
        given(measured)


def test_small_dtypes_of_weights_count_as_large_ones() -> None:
    weights = np.array([0, 1, 2, 5])
    wanted = list(ps.from_source(range(4)).sample(50, weights.astype(float), seed=1))
    for dtype, scale in ((np.float16, 1), (np.float32, 6e37), (np.uint8, 1)):
        assert list(ps.from_source(range(4)).sample(50, (weights * scale).astype(dtype), seed=1)) == wanted


def test_a_sample_of_one_order_may_stand_below_operators_by_number(measured: ps.Dataset) -> None:
    drawn = measured.sample(200, "length", seed=1, reshuffle_each_epoch=False)
    rows = contents(drawn.filter(by="keep").pack_sequences(ROW, by="length"))
    tokens = sum(1 for row in rows for segment in row["segment_ids"] if segment)
    assert tokens == sum(length(element) for element in drawn if is_kept(element))
    with pytest.raises(PlanError, match="reshuffle_each_epoch=False"):
        measured.sample(200, "length", seed=1).filter(by="keep")


def fails_late(element: dict[str, Any]) -> dict[str, Any]:
    if element["tokens"][0] >= COUNT // 8:
        raise ValueError("a bad document")
    return element


def test_rows_of_a_long_run_of_failures_are_padding(measured: ps.Dataset) -> None:
    ds = measured.map(fails_late).pack_sequences(ROW, by="length", split=True)
    with ds.feed(executor="inline", on_error=ps.Skip()) as feed, pytest.warns(RuntimeWarning, match="skipped"):
        assert len(contents(feed)) == len(ds)
