"""What a policy costs while nothing fails: the no-op run and photographs under each policy, beside the same run that raises, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import photos
import rounds
from data import Size, jpeg_list

_BATCH_SIZE = 256
_TURNS = 6
_MOST = 0.03


def _noop(value: int) -> int:
    return value


def _integers(run: rounds.Run) -> Any:
    import penstock as ps

    return ps.from_source(range(run.size.num_integers)).map(_noop).batch(_BATCH_SIZE)


def _photos(run: rounds.Run) -> Any:
    return photos.dataset(run, 128, False)


def _options(policy: str) -> dict[str, Any]:
    import penstock as ps

    policies = {"retry": ps.Retry(2), "skip": ps.Skip(), "replace": ps.Replace()}
    watch = {"stall_timeout_s": 60.0 if policy == "watchdog" else None}
    return {**watch, "on_error": policies[policy]} if policy in policies else watch


def _seconds(dataset: Any, options: dict[str, Any]) -> float:
    start = time.perf_counter()
    with dataset.feed(**options) as feed:
        for _ in feed:
            pass
    return time.perf_counter() - start


def _beside_raise(make: Callable[[rounds.Run], Any], policy: str, executor: str) -> Callable[[rounds.Run], dict[str, Any]]:
    """Run by the policy and by `Raise()` without the watchdog in turns, every other turn the other way round."""

    def measure(run: rounds.Run) -> dict[str, Any]:
        dataset = make(run)
        ways = {name: {**_options(name), "executor": executor} for name in (policy, "raise")}
        for options in ways.values():
            _seconds(dataset, options)
        everybody, own, start = machine.busy_s(), time.process_time(), time.perf_counter()
        extra, took = [], []
        for turn in range(_TURNS):
            order = list(ways) if turn % 2 else list(ways)[::-1]
            seconds = {name: _seconds(dataset, ways[name]) for name in order}
            extra.append(seconds[policy] / seconds["raise"] - 1)
            took.append(seconds[policy])
        wall_s = time.perf_counter() - start
        other_s = machine.busy_s() - everybody - (time.process_time() - own)
        return {"seconds": statistics.median(took), "extra": statistics.median(extra), "other_cores": max(0.0, other_s / wall_s)}

    return measure


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


_POLICIES = ("raise", "retry", "skip", "replace", "watchdog")
_RUNS = {
    f"{policy}_{kind}_{executor}": _beside_raise(make, policy, executor)
    for kind, make, executor in (("noop", _integers, "threads"), ("noop", _integers, "inline"), ("w1", _photos, "threads"))
    for policy in _POLICIES
}

CLAIM = rounds.Claim(
    name="policies",
    title=f"Policies while nothing fails: no-op map in batches of {_BATCH_SIZE}, and W1; extra time beside Raise without a watchdog",
    unit="s",
    metric="seconds",
    prepare=_prepare,
    reference="raise_noop_threads",
    references={name: name.replace(name.partition("_")[0], "raise", 1) for name in _RUNS},
    also=("extra",),
    targets=tuple(
        rounds.Target(contestant=name, metric="extra", sense="<=", bound=_MOST) for name in _RUNS if not name.startswith("raise")
    ),
)

if __name__ == "__main__":
    rounds.main(CLAIM, _RUNS)
