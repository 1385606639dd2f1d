"""The advice to a loop that waits for functions: what it says that `num_workers=` or threads give, beside what they give, in 12 pipelines.

Each contestant is a pipeline: it runs as `feed()` gives it, as the notice says, and as at first. "off" is the larger of the gains said and
measured over the smaller. A pipeline that gets no notice is said to gain nothing, and is measured with two workers.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import photos
import rounds
from data import Size, jpeg_list

_SECONDS = {"full": 4.0, "quick": 4.0, "tiny": 0.05}
_WARM_S = {"full": 1.0, "quick": 1.0, "tiny": 0.0}
_MANY = 1 << 33
_DATA = bytes(400_000)
_BATCH_SIZE = 16
_WITH_WORKERS = re.compile(r"feed\(num_workers=(\d+)\).*?about ([\d.]+) times")
_WITH_THREADS = re.compile(r'feed\(executor="threads"(?:, num_workers=(\d+))?\).*?about ([\d.]+) times')


def turns(number: int, count: int = 14_000) -> int:
    """Compute for about 1 ms, with the interpreter lock."""
    total = number
    for one in range(count):
        total = (total * 31 + one) & 0xFFFF
    return total


def sort(number: int) -> Any:
    """Sort for about 2 ms, without the lock."""
    return np.sort(np.random.default_rng(number).integers(0, 1 << 30, 100_000))[:8]


def nap(number: int) -> int:
    """Wait 2 ms, as for a server."""
    time.sleep(0.002)
    return number


def label(element: dict[str, Any]) -> dict[str, Any]:
    """Add what takes about 2 ms of Python to an image."""
    return {"data": element["data"][:64, :64], "label": turns(element["label"], 28_000)}


def collate(elements: list[int]) -> Any:
    """Make a batch in about 8 ms."""
    return np.array([turns(element, 7_000) for element in elements])


def scaled(batch: Any) -> Any:
    """Compute with a batch for about 10 ms, most of it without the lock."""
    values = np.repeat(batch.astype(np.float64), 40_000)
    return np.sqrt(np.sin(values) ** 2 + 1)[:: len(values) // 64]


def numbers() -> Iterator[int]:
    """Count on, in Python."""
    yield from range(_MANY)


class Digests:
    """A source of the user's: each element takes about 0.25 ms without the lock."""

    def __len__(self) -> int:
        return _MANY

    def __getitem__(self, index: int) -> int:
        return hashlib.sha256(_DATA + bytes([index & 7])).digest()[0]


def large(number: int) -> Any:
    """Fill 0.6 MB."""
    return np.random.default_rng(number).random((3, 160, 160))


def short(number: int) -> int:
    """Take 1 us."""
    return 3 * number + 1


def often(number: int) -> bool:
    """Drop every second element, after 0.5 ms."""
    return turns(number, 7_000) >= 0 and number % 2 == 0


class _Pipeline(NamedTuple):
    make: Callable[[rounds.Run], Any]
    step_s: float = 0.0


def _source() -> Any:
    import penstock as ps

    return ps.from_source(range(_MANY))


def _decoded(run: rounds.Run) -> Any:
    import penstock as ps

    path = photos.listing(run)
    decoded = ps.read_list(path, root=path.parent).shuffle(seed=7).map(ps.image.decode("data"))
    return decoded.map(ps.image.random_resized_crop("data", photos.CROP), seed=1).map(label).repeat().batch(_BATCH_SIZE)


def _generated(run: rounds.Run) -> Any:
    import penstock as ps

    return ps.from_generator(numbers).map(turns).batch(_BATCH_SIZE)


def _digested(run: rounds.Run) -> Any:
    import penstock as ps

    return ps.from_source(Digests()).batch(_BATCH_SIZE)


PIPELINES = {
    "python": _Pipeline(lambda run: _source().map(turns).batch(_BATCH_SIZE)),
    "numpy": _Pipeline(lambda run: _source().map(sort).batch(_BATCH_SIZE)),
    "sleeping": _Pipeline(lambda run: _source().map(nap).batch(_BATCH_SIZE)),
    "decoding": _Pipeline(_decoded),
    "collate_fn": _Pipeline(lambda run: _source().batch(_BATCH_SIZE, collate_fn=collate)),
    "after_batch": _Pipeline(lambda run: _source().batch(_BATCH_SIZE).map(scaled)),
    "generator": _Pipeline(_generated),
    "source": _Pipeline(_digested, step_s=0.002),
    "large": _Pipeline(lambda run: _source().map(large).batch(_BATCH_SIZE)),
    "tiny": _Pipeline(lambda run: _source().map(short).batch(256)),
    "slow_loop": _Pipeline(lambda run: _source().map(turns).batch(_BATCH_SIZE), step_s=0.04),
    "filter": _Pipeline(lambda run: _source().filter(often).map(turns).batch(_BATCH_SIZE)),
}


def _rate(pipeline: _Pipeline, run: rounds.Run, **options: Any) -> tuple[float, str]:
    """Return the batches a second of a feed that has started up, and the advice that it gave."""
    with pipeline.make(run).feed(**options) as feed:
        begin_s, count, due_s = 0.0, 0, time.perf_counter() + _WARM_S[run.size.name]
        for count in itertools.count():
            next(feed)
            if pipeline.step_s:
                time.sleep(pipeline.step_s)
            now_s = time.perf_counter()
            if not begin_s and now_s >= due_s:
                begin_s, first = now_s, count
            if begin_s and now_s >= begin_s + _SECONDS[run.size.name] and count > first:
                break
        notices = feed.stats().notices
    return (count - first) / (now_s - begin_s), next((text for text in notices if " in this program, and the loop waits " in text), "")


def _measure(pipeline: _Pipeline, run: rounds.Run) -> dict[str, Any]:
    before, text = _rate(pipeline, run)
    found, threads = _WITH_WORKERS.search(text), _WITH_THREADS.search(text)
    num_workers, said = (int(found[1]), float(found[2])) if found else (2, 1.0)
    advised = _rate(pipeline, run, num_workers=num_workers)[0]
    threaded = _rate(pipeline, run, executor="threads", num_workers=int(threads[1] or 0) or "auto")[0] if threads else 0.0
    rate = (before + _rate(pipeline, run)[0]) / 2
    result = {"rate": rate, "num_workers": num_workers, "said": said, "gain": advised / rate, "off": _off(said, advised / rate)}
    if threads:
        said, gain = float(threads[2]), threaded / rate
        result |= {"threads_said": said, "threads_gain": gain, "threads_off": _off(said, gain)}
    return result


def _off(said: float, gain: float) -> float:
    return max(said / gain, gain / said)


def _prepare(size: Size, root: Path) -> None:
    jpeg_list(root, size.num_jpegs)


CLAIM = rounds.Claim(
    name="advice",
    title="The gain that the advice says beside the gain measured, in 12 pipelines",
    unit="times",
    prepare=_prepare,
    metric="off",
    reference="none",
    also=("num_workers", "said", "gain", "threads_said", "threads_gain", "threads_off"),
    targets=tuple(rounds.Target(contestant=name, metric="off", sense="<=", bound=1.25) for name in PIPELINES),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {name: lambda run, pipeline=pipeline: _measure(pipeline, run) for name, pipeline in PIPELINES.items()})
