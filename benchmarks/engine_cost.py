"""What the engine costs by itself: time per element of a no-op map beyond a plain loop that calls the same function, and per tiny batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import machine
import rounds
from data import Size

_TINY_BATCH = 4


def _noop(value: int) -> int:
    return value


def _consume(stream: Iterable[Any]) -> tuple[float, int, float]:
    """Return seconds, how many items came, and how many cores other processes used meanwhile."""
    everybody, own, start, count = machine.busy_s(), time.process_time(), time.perf_counter(), 0
    for _ in stream:
        count += 1
    seconds = time.perf_counter() - start
    other_s = machine.busy_s() - everybody - (time.process_time() - own)
    return seconds, count, max(0.0, other_s / seconds)


def _loop_s(num_integers: int) -> float:
    start = time.perf_counter()
    for value in range(num_integers):
        _noop(value)
    return time.perf_counter() - start


def _elements(executor: str, batch_size: int | None) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        count = run.size.num_integers
        dataset = ps.from_source(range(count)).map(_noop)
        if batch_size:
            dataset = dataset.batch(batch_size)
        expected = -(-count // batch_size) if batch_size else count
        loop_s = _loop_s(count)
        with dataset.feed(executor=executor) as feed:
            seconds, delivered, other_cores = _consume(feed)
        if delivered != expected:
            raise RuntimeError(f"{delivered} items came where {expected} were expected")
        return {
            "cost_us": (seconds - loop_s) / count * 1e6,
            "all_us": seconds / count * 1e6,
            "loop_us": loop_s / count * 1e6,
            "other_cores": other_cores,
        }

    return measure


def _tiny_batches(executor: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        num_batches = max(10, run.size.num_integers // 50)
        dataset = ps.from_source(range(num_batches * _TINY_BATCH)).map(_noop).batch(_TINY_BATCH)
        with dataset.feed(executor=executor) as feed:
            seconds, delivered, other_cores = _consume(feed)
        if delivered != num_batches:
            raise RuntimeError(f"{delivered} batches came where {num_batches} were expected")
        return {"cost_us": seconds / num_batches * 1e6, "other_cores": other_cores}

    return measure


def _loop(run: rounds.Run) -> dict[str, Any]:
    return {"cost_us": _loop_s(run.size.num_integers) / run.size.num_integers * 1e6}


def _dataloader(run: rounds.Run) -> dict[str, Any]:
    """Measure the same in the DataLoader without workers (its cheapest), on a twentieth of the integers."""
    count = max(256, run.size.num_integers // 20)
    source = [_noop(value) for value in range(count)]
    loader = rounds.torch().utils.data.DataLoader(source, batch_size=256, num_workers=0)
    loop_s = _loop_s(count)
    seconds, _, other_cores = _consume(loader)
    return {"cost_us": (seconds - loop_s) / count * 1e6, "other_cores": other_cores}


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="engine_cost",
    title="Engine: us per element beyond the user's function (no-op map over integers), and us per batch of 4",
    unit="us",
    metric="cost_us",
    prepare=_nothing,
    reference="loop_itself",
    also=("all_us",),
    targets=(
        rounds.Target(contestant="threads_batches_of_256", metric="cost_us", sense="<=", bound=1.0),
        rounds.Target(contestant="threads_elements", metric="cost_us", sense="<=", bound=1.0),
        rounds.Target(contestant="inline_batches_of_256", metric="cost_us", sense="<=", bound=0.6),
        rounds.Target(contestant="inline_elements", metric="cost_us", sense="<=", bound=0.6),
        rounds.Target(contestant="threads_batches_of_4_per_batch", metric="cost_us", sense="<=", bound=50.0),
        rounds.Target(contestant="inline_batches_of_4_per_batch", metric="cost_us", sense="<=", bound=50.0),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "loop_itself": _loop,
            "threads_batches_of_256": _elements("threads", 256),
            "threads_elements": _elements("threads", None),
            "inline_batches_of_256": _elements("inline", 256),
            "inline_elements": _elements("inline", None),
            "threads_batches_of_4_per_batch": _tiny_batches("threads"),
            "inline_batches_of_4_per_batch": _tiny_batches("inline"),
            "dataloader_batches_of_256": _dataloader,
        },
    )
