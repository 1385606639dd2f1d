"""The folds of a pipeline, run over units cut anywhere: what comes out does not depend on the cuts, and every token resumes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine.sequencer import DROP_END, OPEN, PASS_END, Sequenced, Sequencer
from penstock._engine.unit import Failure, Record, Result, Token, Unit
from penstock._ops.block import Block
from penstock._order.folds import Batching, Fold, Numbering, Passes, Sharding, Skipping, Taking

START = Token((0, 0))


def unit_of(counts: list[int], first: int, pass_number: int, ends: bool, tail: Failure | None = None) -> Unit:
    """Return a finished unit whose inputs gave `counts[i]` results each, named "pass.input.result"."""
    origins = [number for number, count in enumerate(counts) for _ in range(count)]
    names = [f"{pass_number}.{first + number}.{copy}" for number, count in enumerate(counts) for copy in range(count)]
    size = len(names)
    block = Block(
        np.full(size, pass_number), np.array([first + origin for origin in origins], np.int64), np.zeros(size, np.uint64), rows=names
    )
    unit = Unit(seq=0, pass_number=pass_number, first=first, sizes=None, num_items=len(counts), num_rows=len(counts), ends_pass=ends)
    unit.result, unit.tail = Result(names, origins, block), tail
    return unit


def cut_up(counts: list[int], cuts: list[int], passes: int, start: tuple[int, int] = (0, 0)) -> list[Unit]:
    """Cut `passes` passes over inputs with `counts` results into units, from position `start` on."""
    out = []
    for number in range(start[0], passes):
        position = start[1] if number == start[0] else 0
        borders = sorted({min(cut, len(counts)) for cut in cuts if cut > position} | {len(counts)})
        for border in borders:
            out.append(unit_of(counts[position:border], position, number, border == len(counts)))
            position = border
    return out


def run(folds: list[Fold], units: list[Unit], before: Token = START, saved: Any = None) -> list[Sequenced]:
    """Feed units until the end of everything goes on upwards."""
    sequencer, out = Sequencer(folds, before, saved), []
    cut = -1
    for unit in units:
        out.append(sequencer.take(unit))
        cut = unit.pass_number if out[-1].cut else cut
        if out[-1].ends_pass:
            break
    return out


def values(sequenced: list[Sequenced]) -> list[Any]:
    return [named(item) for part in sequenced for item in part.items]


def named(item: Any) -> Any:
    if isinstance(item, list):
        return [named(part) for part in item]
    return item.value if hasattr(item, "value") else (item[0], named(item[1]))


def tokens(sequenced: list[Sequenced]) -> list[Token]:
    return [token for part in sequenced for token in part.tokens]


FOLDS = st.lists(
    st.one_of(
        st.integers(0, 12).map(Taking),
        st.integers(0, 4).map(Skipping),
        st.integers(1, 3).flatmap(lambda n: st.integers(0, n - 1).map(lambda i: Sharding(n, i))),
    ),
    max_size=3,
)
COUNTS = st.lists(st.integers(0, 3), max_size=12)
CUTS = st.lists(st.integers(1, 12), max_size=5)


def expected(folds: list[Fold], counts: list[int], passes: int) -> list[str]:
    out: list[str] = []
    for number in range(passes):
        part = [f"{number}.{place}.{copy}" for place, count in enumerate(counts) for copy in range(count)]
        for fold in folds:
            if isinstance(fold, Taking):
                part = part[: fold.count]
            elif isinstance(fold, Skipping):
                part = part[fold.count :]
            elif isinstance(fold, Sharding):
                part = part[fold.index :: fold.num_shards]
        out.extend(part)
    return out


@given(FOLDS, COUNTS, CUTS, st.integers(1, 3))
def test_what_comes_out_is_the_plain_list_whatever_the_cuts(folds: list[Fold], counts: list[int], cuts: list[int], passes: int) -> None:
    out = run([*folds, Passes(passes)], cut_up(counts, cuts, passes))
    assert values(out) == expected(folds, counts, passes)
    assert sum(part.ends_pass for part in out) == 1
    assert len(tokens(out)) == len(values(out))


@given(FOLDS, COUNTS, CUTS, CUTS, st.integers(1, 3), st.integers(0, 4), st.data())
def test_every_token_resumes_right_behind_its_item(
    folds: list[Fold], counts: list[int], cuts: list[int], again: list[int], passes: int, batch: int, data: st.DataObject
) -> None:
    chain = [*folds, Passes(passes), *([Batching(batch, False)] if batch else [])]
    out = run(chain, cut_up(counts, cuts, passes))
    whole = values(out)
    if not whole:
        return
    stop = data.draw(st.integers(0, len(whole) - 1))
    token = tokens(out)[stop]
    rest = run(chain, cut_up(counts, again, passes, token.source), Token(token.source), token.sequencers[0])
    assert values(rest) == whole[stop + 1 :]


def test_a_full_take_asks_for_the_rest_of_the_pass_to_be_cut() -> None:
    sequencer = Sequencer([Taking(2), Passes(2)], START, None)
    first = sequencer.take(unit_of([1, 1, 1, 1], 0, 0, ends=False))
    assert (values([first]), first.cut, first.ends_pass) == (["0.0.0", "0.1.0"], True, False)
    assert first.tokens[-1].sequencers[0][1] == OPEN
    rest = sequencer.take(unit_of([1, 1], 4, 0, ends=True))
    assert (rest.items, rest.ends_pass) == ([], False)
    last = sequencer.take(unit_of([1, 1], 0, 1, ends=True))
    assert (values([last]), last.ends_pass) == (["1.0.0", "1.1.0"], True)


def test_a_state_behind_a_full_take_is_already_at_its_end() -> None:
    sequencer = Sequencer([Taking(2)], START, None)
    first = sequencer.take(unit_of([1, 1, 1], 0, 0, ends=False))
    assert first.ends_pass
    again = Sequencer([Taking(2)], Token(first.tokens[1].source), first.tokens[1].sequencers[0])
    resumed = again.take(unit_of([1], 2, 0, ends=True))
    assert (resumed.items, resumed.ends_pass) == ([], True)


def test_the_modes_of_a_record_drop_the_rest_of_a_pass_with_or_without_its_end() -> None:
    for mode, ends in ((DROP_END, False), (PASS_END, True)):
        sequencer = Sequencer([Skipping(0)], START, Record(0, mode, (0,)))
        out = sequencer.take(unit_of([1, 1], 0, 0, ends=True))
        assert (out.items, out.cut, out.ends_pass) == ([], True, ends)


def test_a_failure_goes_on_behind_the_items_before_it_and_the_pass_does_not_end() -> None:
    failure = Failure(2, ValueError("bad"), "map", 0)
    unit = unit_of([1, 1], 0, 0, ends=True, tail=failure)
    out = Sequencer([Numbering(5)], START, None).take(unit)
    assert values([out]) == [(5, "0.0.0"), (6, "0.1.0")]
    assert out.tail is failure
    assert not out.ends_pass


def test_an_endless_repeat_of_an_empty_pass_is_noticed_and_a_resumed_one_is_not_blamed() -> None:
    assert Sequencer([Passes(None)], START, None).take(unit_of([0, 0], 0, 0, ends=True)).empty_pass
    resumed = Sequencer([Passes(None)], START, Record(0, OPEN, (0,)))
    assert not resumed.take(unit_of([0, 0], 0, 0, ends=True)).empty_pass
    assert resumed.take(unit_of([0, 0], 0, 1, ends=True)).empty_pass


def test_the_start_of_the_next_pass_has_the_states_as_they_are_then() -> None:
    sequencer = Sequencer([Passes(3)], START, None)
    unit = unit_of([1], 0, 0, ends=True)
    sequencer.take(unit)
    assert sequencer.start_of_next_pass(unit) == Token((1, 0), (Record(0, OPEN, (1,)),))
