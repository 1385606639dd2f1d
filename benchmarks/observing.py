"""What looking costs: W1 and a run that does nothing, without listeners, with events (always on), with curves, with a timeline."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import photos
import rounds
from data import Size, jpeg_list

_BATCH_SIZE = 128
_NOOP_BATCH = 256


def _silent(feed: Any, folder: Path) -> None:
    feed._run.listeners.clear()  # before the run begins: nothing is announced to anything


def _events(feed: Any, folder: Path) -> None:
    """Leave the feed as it is."""


def _curves(feed: Any, folder: Path) -> None:
    feed.observe(tensorboard=folder)


def _timeline(feed: Any, folder: Path) -> None:
    feed.trace(folder / "timeline.json")


def _noop(value: int) -> int:
    return value


def _noop_dataset(run: rounds.Run) -> Any:
    import penstock as ps

    return ps.from_source(range(run.size.num_integers)).map(_noop).batch(_NOOP_BATCH)


def _w1_dataset(run: rounds.Run) -> Any:
    return photos.dataset(run, min(_BATCH_SIZE, run.size.num_jpegs), False)


def _measured(
    make: Callable[[rounds.Run], Any], look: Callable[[Any, Path], None], batch_size: int
) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        dataset = make(run)
        with tempfile.TemporaryDirectory() as folder, dataset.feed(executor="threads", num_workers=2) as feed:
            look(feed, Path(folder))
            for _ in feed:  # the first epoch warms up
                pass
            begin_s, count = time.perf_counter(), 0
            while not count or time.perf_counter() - begin_s < run.size.min_seconds:
                for _ in feed:
                    count += 1
            rate = count * batch_size / (time.perf_counter() - begin_s)
        return {"rate": rate}

    return measure


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


_LOOKS = {"silent": _silent, "events": _events, "curves": _curves, "timeline": _timeline}
_RUNS = {"w1": (_w1_dataset, _BATCH_SIZE), "noop": (_noop_dataset, _NOOP_BATCH)}

CLAIM = rounds.Claim(
    name="observing",
    title="What looking costs: elements/s beside the same run without listeners, and beside the one that only announces",
    unit="elements/s",
    reference="w1_silent",
    references={f"noop_{look}": "noop_silent" for look in _LOOKS} | {"w1_curves": "w1_events", "w1_timeline": "w1_events"},
    prepare=_prepare,
    targets=(
        rounds.Target(contestant="w1_events", metric="ratio", sense=">=", bound=0.99),
        rounds.Target(contestant="noop_events", metric="ratio", sense=">=", bound=0.97),
        rounds.Target(contestant="w1_curves", metric="ratio", sense=">=", bound=0.97),
        rounds.Target(contestant="w1_timeline", metric="ratio", sense=">=", bound=0.97),
    ),
)

if __name__ == "__main__":
    rounds.main(
        CLAIM,
        {f"{name}_{look}": _measured(make, act, size) for name, (make, size) in _RUNS.items() for look, act in _LOOKS.items()},
    )
