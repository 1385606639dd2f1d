from __future__ import annotations

from typing import Any

import numpy as np

from penstock._engine.async_calls import begun, ended, failed_call, gather_alone
from penstock._engine.chunk import Chunk, Claim, Failure, Outcome
from penstock._ops.block import Block
from penstock._ops.map import AwaitedOp, CallResult


def block_of(rows: list[Any], origins: list[int] | None = None) -> Block:
    count = len(rows)
    block = Block(np.zeros(count, np.int64), np.arange(count), np.zeros(count, np.uint64), rows=rows)
    block.origins = None if origins is None else np.array(origins, np.int64)
    return block


def chunk_of(num_rows: int, given: Block | None = None) -> Chunk:
    return Chunk(seq=0, pass_number=0, first=0, sizes=None, num_rows=num_rows, given=given)


def outcomes(*values: Any) -> list[CallResult]:
    return [CallResult(None, value, 4) if isinstance(value, Exception) else CallResult(value, None) for value in values]


def test_a_task_begins_with_its_block_or_with_its_part_of_what_the_chunk_was_given() -> None:
    block = block_of([1, 2])
    assert begun(Claim(0, 1, chunk_of(9), 3, 5, block)) is block
    given = begun(Claim(0, 0, chunk_of(4, block_of([5, 6, 7, 8])), 1, 3, None))
    assert given is not None
    assert given.rows() == [6, 7]


def test_a_task_behind_a_failure_does_not_begin() -> None:
    chunk = chunk_of(9)
    chunk.fail(Failure(3, LookupError(), "fn", 0))
    assert begun(Claim(0, 1, chunk, 3, 5, block_of([1, 2]))) is None
    assert begun(Claim(0, 1, chunk, 2, 4, block_of([1, 2]))) is not None
    chunk.progress.finishing = True
    assert begun(Claim(0, 1, chunk, 2, 4, block_of([1, 2]))) is None


def test_all_values_go_on_with_the_rows_they_came_from() -> None:
    end, out, failure, *_ = ended(Claim(0, 1, chunk_of(9), 3, 7, None), block_of([1, 2], [0, 2]), outcomes(10, 20), "fn")
    assert out is not None
    assert out.origins is not None
    assert (out.rows(), out.origins.tolist(), end, failure) == ([10, 20], [0, 2], 7, None)


def test_what_comes_before_a_failure_goes_on() -> None:
    error = LookupError("x")
    task = Claim(0, 1, chunk_of(9), 3, 7, None)
    end, out, failure, *_ = ended(task, block_of([1, 2, 3, 4]), outcomes(10, 20, error), "fn")
    assert out is not None
    assert (out.rows(), end, failure) == ([10, 20], 5, Failure(5, error, "fn", 4))
    assert ended(task, block_of([1, 2]), outcomes(error), "fn") == Outcome(3, None, Failure(3, error, "fn", 4))


def test_behind_a_filter_or_flat_map_the_row_that_failed_goes_as_a_whole() -> None:
    error = LookupError("x")
    task = Claim(0, 1, chunk_of(9), 3, 7, None)
    end, out, failure, *_ = ended(task, block_of([1, 2, 3, 4], [0, 2, 2, 3]), outcomes(10, 20, error), "fn")
    assert out is not None
    assert out.origins is not None
    assert (out.rows(), out.origins.tolist(), end) == ([10], [0], 5)
    assert failure == Failure(5, error, "fn", 4)
    end, out, failure, *_ = ended(task, block_of([3, 4], [2, 3]), outcomes(error), "fn")
    assert out is not None
    assert (out.rows(), end) == ([], 5)


def test_the_failure_of_a_block_is_that_of_its_last_call() -> None:
    op = AwaitedOp(abs, "fn", 0, 0, False, 1, gather_alone)
    error = LookupError("x")
    failed = failed_call(op, outcomes(10, error))
    assert failed is not None
    assert (failed.stage, failed.error) == ("fn", error)
    assert failed_call(op, outcomes(10)) is None
    assert failed_call(op, []) is None
