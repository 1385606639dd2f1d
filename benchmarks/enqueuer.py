"""What it costs to hand a batch of 19 MB from one of two processes to the loop: GeneratorEnqueuer beside the queues of Python and PyTorch.

Each process gives the same array again and again, so nothing is measured but the way from it to the loop. The loop keeps one batch while
it asks for the next.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
import numpy as np
import rounds
from data import Size

_SHAPE = (32, 224, 224, 3)
_WORKERS = 2
_QUEUE_SIZE = 10
_FEWEST = 20


def _batch() -> Any:
    return np.random.default_rng(1).random(_SHAPE, np.float32)


def _same_batch() -> Iterator[Any]:
    batch = _batch()
    while True:
        yield batch


def _measure(run: rounds.Run, batches: Iterator[Any]) -> dict[str, Any]:
    """Take batches for a while, behind as many as are made ahead."""
    for _ in range(2 * _QUEUE_SIZE + 4):
        kept = next(batches)
    if tuple(kept.shape) != _SHAPE or float(kept[-1, -1, -1, -1]) != float(_batch()[-1, -1, -1, -1]):
        raise RuntimeError(f"another batch came: {kept.shape}")
    everybody, taken = machine.busy_s(), 0
    own, start = machine.session_cpu_s(os.getsid(0)), time.perf_counter()
    while taken < _FEWEST or time.perf_counter() - start < run.size.min_seconds:
        kept = next(batches)
        taken += 1
    seconds = time.perf_counter() - start
    other_s = machine.busy_s() - everybody - (machine.session_cpu_s(os.getsid(0)) - own)
    return {
        "rate": taken / seconds,
        "batch_ms": 1e3 * seconds / taken,
        "other_cores": max(0.0, other_s / seconds),
        "batch": f"{kept.numpy().dtype if hasattr(kept, 'numpy') else kept.dtype}{list(kept.shape)}",
    }


def _penstock(run: rounds.Run) -> dict[str, Any]:
    import penstock as ps

    with ps.GeneratorEnqueuer(_same_batch, use_multiprocessing=True) as enqueuer:
        enqueuer.start(_WORKERS, _QUEUE_SIZE)
        return _measure(run, enqueuer.get())


def _put_for_ever(queue: Any, tensor: bool) -> None:
    for batch in _same_batch():
        if tensor:
            import torch

            queue.put(torch.from_numpy(batch))  # a new tensor each time, so its bytes are copied to shared memory each time
        else:
            queue.put(batch)


def _through_queue(run: rounds.Run, context: Any, tensor: bool) -> dict[str, Any]:
    queue = context.Queue(_QUEUE_SIZE)
    workers = [context.Process(target=_put_for_ever, args=(queue, tensor), daemon=True) for _ in range(_WORKERS)]
    for worker in workers:
        worker.start()
    try:
        return _measure(run, (queue.get() for _ in itertools.count()))
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _python_queue(run: rounds.Run) -> dict[str, Any]:
    return _through_queue(run, multiprocessing.get_context("forkserver"), False)


def _torch_queue(run: rounds.Run) -> dict[str, Any]:
    rounds.torch()
    import torch.multiprocessing

    return _through_queue(run, torch.multiprocessing.get_context("forkserver"), True)


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="enqueuer",
    title="batches of 19 MB from two processes to the loop",
    unit="batches/s",
    prepare=_nothing,
    reference="mp_queue",
    also=("batch_ms",),
    targets=(rounds.Target(contestant="penstock", metric="ratio", sense=">=", bound=10.0),),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"penstock": _penstock, "mp_queue": _python_queue, "dataloader_queue": _torch_queue})
