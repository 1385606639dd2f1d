"""A module that computes with PyTorch where it is imported, in as many threads as it may, as some do to warm up."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

WARM = float((torch.ones(1000, 1000) + 1).sum())


def look(element: int) -> Any:
    """Compute in parallel; tell the process, its threads and a number that it draws."""
    time.sleep(0.001)  # so that other workers have their share
    total = float((torch.ones(1000, 1000) * element).sum())
    return {"total": total, "pid": os.getpid(), "threads": torch.get_num_threads(), "drawn": int(torch.randint(1 << 40, ()))}
