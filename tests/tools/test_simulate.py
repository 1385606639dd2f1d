from __future__ import annotations

import pytest

from simulate import SMALL, VirtualWorkers, markdown, report, run_with_failures, states


def test_positions_of_all_ranks_partition_the_dataset() -> None:
    assert sorted(run_with_failures(SMALL._replace(samples=1000), [7], 0)) == list(range(1000))


def test_nothing_is_lost_or_repeated_when_ranks_die_and_come_back() -> None:
    assert sorted(run_with_failures(SMALL._replace(samples=1000), [8, 5, 8, 3], 4)) == list(range(1000))


def test_a_state_does_not_grow_with_the_samples() -> None:
    for row in states([10**6, 10**12]):
        few, many = (value for name, value in row.items() if name.startswith("bytes"))
        assert many - few <= 17 * 6, row  # six digits more for each of the sources, and for the whole


@pytest.mark.slow
def test_the_report_has_no_sample_twice_and_ranks_agree_after_a_move() -> None:
    tables = report(SMALL)
    rows = [row for table in tables.values() for row in table]
    assert [row["samples seen twice"] for row in rows if "samples seen twice" in row] == [0]
    assert {row["ranks that disagree"] for row in rows if "ranks that disagree" in row} == {0}
    wrong = "rows lost", "rows repeated", "runs with unequal steps", "rows that differ from an unkilled run", "documents on two ranks"
    assert [row[name] for row in rows for name in wrong if name in row] == [0] * len(wrong)
    again = {row["elements computed again"] for row in rows if "elements computed again" in row}
    assert again == {2 * SMALL.ranks * SMALL.batch}
    assert all(markdown(table).startswith("| ") for table in tables.values())


@pytest.mark.slow
def test_workers_on_a_virtual_clock_are_all_used_and_a_death_holds_up_an_ordered_feed_only_when_it_is_long() -> None:
    rates = []
    for speeds, options in (
        ([2.0] * 8, {}),
        ([0.2] + [2.0] * 7, {}),
        ([2.0] * 8, {"lifetime_s": 30.0, "again_s": 0.5}),
        ([2.0] * 8, {"lifetime_s": 30.0, "again_s": 60.0}),
    ):
        workers = VirtualWorkers(speeds, **options)
        workers.run(300.0)
        rates.append(workers.elements / workers.now_s / sum(speeds))
    assert rates[0] > 0.97
    assert rates[1] > 0.97
    assert 0.9 < rates[2] <= 1
    assert rates[3] < 0.5


@pytest.mark.slow
def test_in_completion_order_many_thousands_of_elements_go_on_behind_one_that_is_late() -> None:
    workers = VirtualWorkers([100.0] * 16 + [1e-6], ordered=False)
    workers.run(10.0)
    assert workers.elements > 0.97 * 16_000
