"""A program whose functions of the user's are given to one thread of the program."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock as ps
from penstock._engine.lowering import lower
from penstock._engine.placing import apart, functions_in, names_of_users
from penstock._engine.program import IN_PROGRAM, Program

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


def test_a_branch_with_a_function_is_one_task_where_the_function_runs() -> None:
    assert stages(ARRAYS.zip(ARRAYS.map(mine)).map(mine)) == [("read+mine", True)]


def test_batches_that_a_function_makes_are_made_by_the_same_thread() -> None:
    assert [one.finisher for one in placed(ARRAYS.map(FLIP).batch(4, collate_fn=mine)).segments] == [IN_PROGRAM.pool]
    assert [one.finisher for one in placed(ARRAYS.map(FLIP).batch(4).map(mine)).segments] == [IN_PROGRAM.pool]
    assert [one.finisher for one in placed(ARRAYS.map(FLIP).batch(4).map(FLIP)).segments] == [""]


def test_functions_are_named_from_the_source_up() -> None:
    ds = ps.from_source(Rows()).map(FLIP).map(mine).filter(other).batch(4, collate_fn=mine).map(other, name="last")
    assert names_of_users(lower(ds._root)) == ["Rows", "mine", "other", "collate_fn", "last"]
    assert mine in list(functions_in(lower(ds._root).segments))
