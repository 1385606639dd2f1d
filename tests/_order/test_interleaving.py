from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from laws.turns import interleaved_turns

from penstock._order.mixing import interleaved, interleaving

LENGTHS = st.lists(st.integers(0, 9), max_size=12)


@given(LENGTHS, st.integers(1, 14), st.integers(1, 5), st.data())
def test_the_order_is_that_of_tf_datas_loop(lengths: list[int], cycle: int, block: int, data: st.DataObject) -> None:
    expected = interleaved_turns(lengths, cycle, block)
    table = interleaving(lengths, cycle, block)
    assert table.length == len(expected)
    chosen = data.draw(st.permutations(range(len(expected))))
    members, places = interleaved(table, np.array(chosen, np.int64))
    assert list(zip(members.tolist(), places.tolist(), strict=True)) == [expected[place] for place in chosen]


def members(lengths: list[int], cycle: int, block: int) -> str:
    table = interleaving(lengths, cycle, block)
    return "".join("ABCDE"[member] for member in interleaved(table, np.arange(table.length))[0].tolist())


def test_long_members_cost_nothing_and_fit_62_bits() -> None:
    table = interleaving([2**60, 2**60, 2**61], 2, 1)
    found = interleaved(table, np.array([2**61 - 1, 2**61, 2**62 - 1], np.int64))
    assert [part.tolist() for part in found] == [[1, 2, 2], [2**60 - 1, 0, 2**61 - 1]]


def test_the_table_holds_a_few_numbers_per_member_whatever_their_lengths() -> None:
    table = interleaving([10**6 + member % 7 for member in range(1000)], 16, 3)
    assert len(table.rounds) <= 3 * 1000 + 1
    assert len(table.sums) <= 3 * 1000 * (table.depth + 1) + 1
