"""W7: W1 in batches of 32 feeds a stand-in device that takes a fixed time per step and no CPU.

At 50 and 20 ms a step the CPUs can keep up: the share of time that the device works is what counts. At 8 ms they cannot: the
throughput against the limit is what counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import drive
import pairs
import photos
import rounds
from data import Size, jpeg_list, read_listing

_BATCH_SIZE = 32
_WARM_STEPS = 8
_TIMED_S = {"full": 3.0, "quick": 0.6, "tiny": 0.1}


def _feeding(make: Callable[..., photos.Epoch], step_ms: int, endless: bool) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        batches = make(run, _BATCH_SIZE, False, forever=True)() if endless else drive.forever(make(run, _BATCH_SIZE, False))
        # At 8 ms a step takes about twice as long as the device needs, so the timed part lasts longer than asked.
        return drive.device(batches, _WARM_STEPS, max(1, round(_TIMED_S[run.size.name] * 1000 / step_ms)), step_ms / 1000, _BATCH_SIZE)

    return measure


def limit(run: rounds.Run) -> dict[str, Any]:
    """Measure W1's limit with batches of 32."""
    listed = read_listing(photos.listing(run))
    portions = max(1, len(listed) // (2 * _BATCH_SIZE))
    return pairs.limit(photos.limit_work, (listed, _BATCH_SIZE, False), portions, run.size.min_seconds)


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


CLAIM = rounds.Claim(
    name="w7",
    title="W7: a device stand-in fed from JPEG files in batches of 32",
    unit="images/s",
    prepare=_prepare,
    also=("busy",),
    targets=(
        rounds.Target(contestant="penstock_50ms", metric="busy", sense=">=", bound=0.998),
        rounds.Target(contestant="penstock_20ms", metric="busy", sense=">=", bound=0.998),
        rounds.Target(contestant="penstock_8ms", metric="ratio", sense=">=", bound=0.95),
    ),
)

if __name__ == "__main__":
    contestants: dict[str, Callable[[rounds.Run], dict[str, Any]]] = {"limit": limit}
    for milliseconds in (50, 20, 8):
        contestants[f"penstock_{milliseconds}ms"] = _feeding(photos.penstock, milliseconds, endless=True)
        contestants[f"dataloader_{milliseconds}ms"] = _feeding(photos.dataloader, milliseconds, endless=False)
        contestants[f"inline_{milliseconds}ms"] = _feeding(photos.inline, milliseconds, endless=False)
    rounds.main(CLAIM, contestants)
