"""Elements that wait for 4 ms without a CPU, as for a server: what the number of threads that is found by itself gives, beside 16."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rounds
from data import Size

_WAIT_S = 0.004
_NUM_WORKERS = 16
_BATCH_SIZE = 16
_SECONDS = {"full": 4.0, "quick": 2.0, "tiny": 0.1}
_WARM_S = {"full": 3.0, "quick": 0.5, "tiny": 0.0}
_MANY = 1 << 33


def wait(number: int) -> int:
    """Wait, as for a server."""
    time.sleep(_WAIT_S)
    return number


@contextmanager
def _feed(**options: Any) -> Iterator[Iterator[Any]]:
    import penstock as ps

    with ps.from_source(range(_MANY)).map(wait).batch(_BATCH_SIZE).feed(**options) as feed:
        yield feed


@contextmanager
def _pool() -> Iterator[Iterator[Any]]:
    """Give batches of a bare pool of threads."""
    with ThreadPoolExecutor(_NUM_WORKERS) as pool:
        yield (list(pool.map(wait, range(first, first + _BATCH_SIZE))) for first in range(0, _MANY, _BATCH_SIZE))


def _measure(run: rounds.Run, batches: Any) -> dict[str, Any]:
    """Return the elements a second, once it has started up."""
    with batches as feed:
        begin_s, count, due_s = 0.0, 0, time.perf_counter() + _WARM_S[run.size.name]
        for batch in feed:
            now_s = time.perf_counter()
            if begin_s:
                count += len(batch)
                if now_s >= begin_s + _SECONDS[run.size.name]:
                    return {"rate": count / (now_s - begin_s)}
            elif now_s >= due_s:
                begin_s = now_s
    raise AssertionError("the source has no end")


def _prepare(size: Size, root: Path) -> None:
    """Make nothing: the elements are numbers."""


CLAIM = rounds.Claim(
    name="waiting",
    title="Elements that wait for 4 ms without a CPU: threads by default, beside 16",
    unit="elements/s",
    prepare=_prepare,
    reference="penstock_16",
    targets=(rounds.Target(contestant="penstock", metric="ratio", sense=">=", bound=0.9),),
)

CONTESTANTS = {
    "penstock": lambda run: _measure(run, _feed(executor="threads")),
    "penstock_16": lambda run: _measure(run, _feed(executor="threads", num_workers=_NUM_WORKERS)),
    "one_call": lambda run: _measure(run, _feed()),
    "pool": lambda run: _measure(run, _pool()),
}

if __name__ == "__main__":
    rounds.main(CLAIM, CONTESTANTS)
