from __future__ import annotations

import asyncio
from typing import Any

import pytest
from _engine.engines import engine_of

import penstock as ps
from penstock._workers.inline import InlineExecutor


def test_an_interrupted_generator_is_a_prompt_interrupt() -> None:
    def rows() -> Any:
        yield 1
        raise KeyboardInterrupt

    engine = engine_of(ps.from_generator(rows))
    executor = InlineExecutor(engine)

    def run() -> None:
        while True:
            executor.wait()

    with pytest.raises(KeyboardInterrupt):
        run()
    engine.stop()
    engine.dispose()


@pytest.mark.parametrize("batched", [False, True])
def test_as_many_calls_are_in_flight_as_were_asked_for_however_slow_they_are(batched: bool) -> None:
    now, most = 0, []

    async def fetch(x: int) -> int:
        nonlocal now
        now += 1
        most.append(now)
        await asyncio.sleep(0.03)
        now -= 1
        return x

    ds = ps.from_source(range(200)).map(fetch, concurrency=50)
    with (ds.batch(25) if batched else ds).feed(executor="inline") as feed:
        assert len(list(feed)) == (8 if batched else 200)
    assert max(most) == (25 if batched else 50)
    assert sum(count == max(most) for count in most) >= 4
