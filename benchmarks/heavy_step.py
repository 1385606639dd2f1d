"""A training step that holds the interpreter lock for 30 ms and waits 20 ms for a device, fed with W1 in batches of 32.

"no_input" makes the same steps with one batch that is there. What an input pipeline takes of the CPUs or of the lock, the step lacks.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import rounds
from data import Size, jpeg_list
from functions import Photos

_BATCH, _WARM = 32, 8
_STEPS = {"full": 100, "quick": 20, "tiny": 3}
_DEVICE_S, _PYTHON_MS = 0.02, 30.0


def _python(rows: int) -> int:
    total = 0
    for number in range(rows):
        total = (total * 31 + number) & 0xFFFF
    return total


def _rows() -> int:
    """Return how many turns of `_python` take 30 ms on this machine, undisturbed."""
    begin_s = time.perf_counter()
    _python(1_000_000)
    return int(1_000_000 * _PYTHON_MS / 1e3 / (time.perf_counter() - begin_s))


def _train(batches: Iterable[Any], run: rounds.Run, num_rows: int) -> dict[str, Any]:
    count, begin_s = 0, 0.0
    for number, _ in enumerate(itertools.islice(batches, _WARM + _STEPS[run.size.name])):
        if number == _WARM:
            begin_s = time.perf_counter()
        _python(num_rows)
        time.sleep(_DEVICE_S)
        count += number >= _WARM
    return {"rate": count / (time.perf_counter() - begin_s), "python_ms": _PYTHON_MS}


def _no_input(run: rounds.Run) -> dict[str, Any]:
    return _train(itertools.repeat(None), run, _rows())


def _penstock(executor: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        import penstock as ps

        num_rows, dataset = _rows(), ps.from_source(Photos(run)).shuffle(seed=7).repeat().batch(_BATCH)
        with dataset.feed(executor=executor, num_workers=2) as feed:  # type: ignore[arg-type]
            return _train(feed, run, num_rows)

    return measure


def _dataloader(num_workers: int) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        num_rows, items = _rows(), Photos(run)
        options: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if num_workers else {}
        loader = rounds.torch().utils.data.DataLoader(items, _BATCH, shuffle=True, num_workers=num_workers, **options)
        return _train(itertools.chain.from_iterable(itertools.repeat(loader)), run, num_rows)

    return measure


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


CLAIM = rounds.Claim(
    name="heavy_step",
    title="A training step of 30 ms of Python and 20 ms of device, fed from JPEG files",
    unit="steps/s",
    prepare=_prepare,
    reference="no_input",
    targets=(rounds.Target(contestant="processes", metric="ratio", sense=">=", bound=0.9),),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {
            "no_input": _no_input,
            "processes": _penstock("processes"),
            "threads": _penstock("threads"),
            "dataloader": _dataloader(2),
            "dataloader_no_workers": _dataloader(0),
        },
    )
