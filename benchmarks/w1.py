"""W1 and W1u: JPEG files, shuffled, decoded, random-resized crop 224, flip; normalised float32 CHW, or uint8 HWC with `--uint8`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drive
import pairs
import photos
import rounds
from data import Size, jpeg_list, read_listing

_BATCH_SIZE = 128
_FLAG = "--uint8"


def _contestants(as_uint8: bool) -> rounds.Contestants:
    def epochs(make: Callable[..., photos.Epoch]) -> Callable[[rounds.Run], dict[str, Any]]:
        return lambda run: drive.epochs(make(run, _BATCH_SIZE, as_uint8), _BATCH_SIZE, run.size.min_seconds)

    def limit(run: rounds.Run) -> dict[str, Any]:
        listed = read_listing(photos.listing(run))
        portions = max(1, len(listed) // (2 * _BATCH_SIZE))
        return pairs.limit(photos.limit_work, (listed, _BATCH_SIZE, as_uint8), portions, run.size.min_seconds)

    def crop_only(run: rounds.Run, batch_size: int, as_uint8: bool) -> photos.Epoch:
        return photos.penstock(run, batch_size, as_uint8, crop_only=True)

    def antialiased(run: rounds.Run, batch_size: int, as_uint8: bool) -> photos.Epoch:
        return photos.penstock(run, batch_size, as_uint8, antialias=True)

    def steady(run: rounds.Run) -> dict[str, Any]:
        batches = photos.penstock(run, _BATCH_SIZE, as_uint8, forever=True)()
        return drive.steady(batches, run.size.num_jpegs // _BATCH_SIZE, _BATCH_SIZE, run.size.min_seconds)

    return {
        "limit": limit,
        "penstock": epochs(photos.penstock),
        "penstock_crop_only": epochs(crop_only),
        "penstock_antialiased": epochs(antialiased),
        "penstock_repeat": steady,
        "dataloader": epochs(photos.dataloader),
        "two_threads": epochs(photos.two_threads),
        "inline": epochs(photos.inline),
    }


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


def _claim(as_uint8: bool) -> rounds.Claim:
    form = "uint8 HWC" if as_uint8 else "float32 CHW"
    targets = [rounds.Target(contestant="penstock", metric="ratio", sense=">=", bound=0.97 if as_uint8 else 0.95)]
    if not as_uint8:
        targets.append(rounds.Target(contestant="penstock", metric="peak_pss_mb", sense="<=", bound=300.0))
    return rounds.Claim(
        name="w1u" if as_uint8 else "w1",
        title=f"{'W1u' if as_uint8 else 'W1'}: JPEG files to {form} batches of {_BATCH_SIZE}",
        unit="images/s",
        prepare=_prepare,
        targets=tuple(targets),
        memory_round=True,
    )


if __name__ == "__main__":
    uint8 = _FLAG in sys.argv
    if uint8:
        sys.argv.remove(_FLAG)
    rounds.main(_claim(uint8), _contestants(uint8), (_FLAG,) if uint8 else ())
