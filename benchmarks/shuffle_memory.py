"""What a global shuffle of 10^9 elements needs beside one of 10^3: peak memory of the process, and time to the first batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import machine
import rounds
from data import Size

_BATCH_SIZE = 250


def _penstock(num_elements: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        start, first_s = time.perf_counter(), 0.0
        dataset = ps.from_source(range(num_elements)).shuffle(seed=7).batch(_BATCH_SIZE).repeat()
        with dataset.feed() as feed:
            for count, _ in enumerate(islice(feed, max(4, run.size.num_integers // 10_000))):
                first_s = first_s if count else time.perf_counter() - start
        return {"peak_mb": machine.peak_rss_mb(), "first_batch_s": first_s}

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="shuffle_memory",
    title="Peak memory (VmHWM) of a global shuffle, by the number of elements",
    unit="MB",
    metric="peak_mb",
    prepare=_nothing,
    reference="penstock_thousand",
    # The same peak up to the noise of the allocator: 2 % of some 60 MB is about one MB, a table of 10^9 keys would be 8,000.
    also=("first_batch_s",),
    targets=(rounds.Target(contestant="penstock_billion", metric="ratio", sense="<=", bound=1.02),),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"penstock_thousand": _penstock(10**3), "penstock_billion": _penstock(10**9)})
