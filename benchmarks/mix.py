"""What `mix` costs: elements per second through a no-op map over 35 in-memory sources, beside the same over one source of all elements."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import rounds
from data import Size

_NUM_SOURCES = 35


def _noop(value: int) -> int:
    return value


def _one(count: int) -> Any:
    import penstock as ps

    return ps.from_source(range(count))


def _mixed(count: int) -> Any:
    import penstock as ps

    first, *others = [ps.from_source(range(count // _NUM_SOURCES)) for _ in range(_NUM_SOURCES)]
    return first.mix(*others)


def _elements(source: Callable[[int], Any], executor: str, batch_size: int | None) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        count = run.size.num_integers // _NUM_SOURCES * _NUM_SOURCES
        dataset = source(count).map(_noop)
        if batch_size:
            dataset = dataset.batch(batch_size)
        delivered = 0
        everybody, own, start = machine.busy_s(), time.process_time(), time.perf_counter()
        with dataset.feed(executor=executor) as feed:
            for item in feed:
                delivered += len(item) if batch_size else 1
        seconds = time.perf_counter() - start
        other_s = machine.busy_s() - everybody - (time.process_time() - own)
        if count - delivered > _NUM_SOURCES:  # a mix ends with the first source that ends
            raise RuntimeError(f"{delivered} elements came where {count} were expected")
        return {"rate": delivered / seconds, "cost_us": seconds / delivered * 1e6, "other_cores": max(0.0, other_s / seconds)}

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


_WAYS = (("threads", 256), ("threads", None), ("inline", 256), ("inline", None))


def _name(source: str, executor: str, batch_size: int | None) -> str:
    return f"{source}_{executor}_{f'batches_of_{batch_size}' if batch_size else 'elements'}"


CLAIM = rounds.Claim(
    name="mix",
    title="mix of 35 sources beside one source: no-op map over integers",
    unit="elements/s",
    prepare=_nothing,
    reference=_name("one", "threads", 256),
    references={_name("mix", *way): _name("one", *way) for way in _WAYS},
    also=("cost_us",),
    targets=tuple(rounds.Target(contestant=_name("mix", *way), metric="ratio", sense=">=", bound=1.0) for way in _WAYS),
)

if __name__ == "__main__":
    sources: dict[str, Callable[[int], Any]] = {"one": _one, "mix": _mixed}
    rounds.main(CLAIM, {_name(name, *way): _elements(source, *way) for way in _WAYS for name, source in sources.items()})
