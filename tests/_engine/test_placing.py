"""A program whose functions of the user's are given to one thread of the program."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock as ps
from penstock._engine.lowering import lower
from penstock._engine.placing import apart, functions_in, names_of_users, together
from penstock._engine.program import IN_PROGRAM, SHARED, Program, Workers

FLIP = ps.image.random_flip("x")
ARRAYS = ps.from_arrays({"x": np.zeros((8, 2, 2, 3), np.uint8)})


def mine(element: Any) -> Any:
    return element


def other(element: Any) -> Any:
    return element


class Rows:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return {"x": np.zeros((2, 2, 3), np.uint8)}


def placed(dataset: ps.Dataset) -> Program:
    return apart(lower(dataset._root))


def stages(dataset: ps.Dataset) -> list[tuple[str, bool]]:
    return [(stage.name, stage.workers == IN_PROGRAM) for segment in placed(dataset).segments for stage in segment.stages]


def test_stages_are_cut_where_functions_of_the_user_begin_and_end() -> None:
    ds = ARRAYS.map(FLIP).map(mine).map(other).map(FLIP, name="again").batch(4)
    assert [there for _, there in stages(ds)] == [False, True, False]
    assert stages(ds)[1] == ("mine+other", True)


def test_reading_from_memory_goes_with_the_function_behind_it_and_reading_an_object_is_a_function() -> None:
    assert stages(ARRAYS.map(mine)) == [("read+mine", True)]
    assert stages(ps.from_source([1, 2]).map(mine)) == [("read+mine", True)]
    assert [there for _, there in stages(ps.from_source(Rows()).map(FLIP))] == [True, False]


def test_nothing_is_cut_where_there_is_no_function_of_the_user() -> None:
    ds = ARRAYS.shuffle(seed=1).map(FLIP).batch(4)
    assert placed(ds) == lower(ds._root)
    assert names_of_users(placed(ds)) == []


def test_filters_and_flat_maps_are_functions_in_the_order_of_their_steps() -> None:
    ds = ARRAYS.map(FLIP, name="own").filter(mine).map(FLIP, name="own too").flat_map(other).batch(4)
    assert [there for _, there in stages(ds)][:4] == [False, True, False, True]
    (first, *_) = placed(ds).segments
    assert [len(stage.filter_steps) for stage in first.stages] == [0, 1, 1, 1]
    assert [first.steps_before(number) for number in range(4)] == [0, 0, 1, 2]


def test_a_branch_with_a_function_is_one_task_where_the_function_runs() -> None:
    assert stages(ARRAYS.zip(ARRAYS.map(mine)).map(mine)) == [("read+mine", True)]


def test_batches_that_a_function_makes_are_made_by_the_same_thread() -> None:
    assert [one.finisher for one in placed(ARRAYS.map(FLIP).batch(4, collate_fn=mine)).segments] == [IN_PROGRAM.pool]
    assert [one.finisher for one in placed(ARRAYS.map(FLIP).batch(4).map(mine)).segments] == [IN_PROGRAM.pool]
    assert [one.finisher for one in placed(ARRAYS.map(FLIP).batch(4).map(FLIP)).segments] == [""]


def test_functions_with_workers_of_their_own_keep_them_and_the_shared_workers_make_the_batches() -> None:
    ds = ARRAYS.map(mine, concurrency=2).batch(4, collate_fn=other)
    for program in (placed(ds), together(lower(ds._root))):
        assert program.segments[0].stages[-1].workers == Workers(2, "threads")
    assert together(lower(ds._root)).segments[0].finisher == SHARED


def test_a_generator_of_the_user_is_read_by_the_same_thread() -> None:
    assert placed(ps.from_generator(lambda: iter([1])).map(mine)).segments[0].reader == IN_PROGRAM.pool


def test_functions_are_named_from_the_source_up() -> None:
    ds = ps.from_source(Rows()).map(FLIP).map(mine).filter(other).batch(4, collate_fn=mine).map(other, name="last")
    assert names_of_users(lower(ds._root)) == ["Rows", "mine", "other", "collate_fn", "last"]
    assert mine in list(functions_in(lower(ds._root).segments))
