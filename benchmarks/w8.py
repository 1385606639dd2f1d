"""W8: from the start of a Python process to its first batch of W1. The programs are the files first_batch_*.py."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import photos
import rounds
from data import Size, jpeg_list


def _starting(program: str, needs: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        if importlib.util.find_spec(needs) is None:
            raise rounds.Missing(f"{needs} is not installed")
        command = [sys.executable, str(Path(__file__).with_name(program)), str(photos.listing(run))]
        subprocess.run(command, check=True, stdout=subprocess.PIPE)  # writes the bytecode and fills the page cache
        start_ns = time.monotonic_ns()
        # The program prints the time of its first batch on the same clock; its shutdown is not counted.
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        return {"first_batch_s": (int(printed[0]) - start_ns) / 1e9, "batch": printed[1]}

    return measure


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


CLAIM = rounds.Claim(
    name="w8",
    title="W8: process start to first batch of W1",
    unit="s",
    metric="first_batch_s",
    prepare=_prepare,
    reference="inline",
    targets=(rounds.Target(contestant="penstock", metric="ratio", sense="<=", bound=1.0),),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "inline": _starting("first_batch_inline.py", "simplejpeg"),
            "penstock": _starting("first_batch_penstock.py", "penstock"),
            "dataloader": _starting("first_batch_dataloader.py", "torch"),
        },
    )
