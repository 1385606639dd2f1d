"""Which workers there are, and what they run."""

from __future__ import annotations

import penstock as ps
from penstock._engine.chunk import Token
from penstock._engine.lowering import lower
from penstock._engine.segment import READER, SHARED, Segment, awaited_in, pool_of, pools_of


async def fetch(x: int) -> int:
    return x


def test_each_stage_with_a_concurrency_has_a_pool_and_an_async_one_a_single_worker_that_claims() -> None:
    ds = ps.from_source(range(9)).map(lambda x: x, concurrency=3).map(fetch, concurrency=64).batch(2)
    program = lower(ds._root)
    segments = [Segment(number, plan, 1, Token((0, 0)), at_once=False, elsewhere=False) for number, plan in enumerate(program.segments)]
    assert sorted(pools_of(program).values()) == [0, 1, 3]
    assert pools_of(program)[SHARED] == 0
    (pool,) = awaited_in(segments)
    assert pools_of(program)[pool] == 1
    assert awaited_in(segments)[pool].concurrency == 64
    assert {pool_of(segments[0], stage) for stage in range(len(program.segments[0].stages))} <= pools_of(program).keys()


def test_a_generator_has_one_reader() -> None:
    assert pools_of(lower(ps.from_generator(lambda: iter(range(3)))._root)) == {SHARED: 0, READER: 1}
