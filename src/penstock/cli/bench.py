"""`penstock bench`: what this machine can do with the user's own data, where the time goes and what would help.

The figures: cost per operator, ceiling, time to the first batch, wait at several step times.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from penstock._contracts.element import flatten
from penstock._plan.base import wants_rng
from penstock._system.lazy import dataclass
from penstock._system.memory import available_cpus
from penstock.cli.bench_source import Opened, open_source
from penstock.cli.doctor import file_of_figures, write_figures
from penstock.cli.screen import Screen, percent, seconds
from penstock.observe import Snapshot, Stats
from penstock.observe.diagnose import judge
from penstock.observe.progress import Progress

_MAX_SAMPLED = 300
_MAX_STACKED = 64
_STEPS_OF_CEILING = (0.5, 1.0, 1.25, 2.0)

_AHEAD_S = 1e-3
"""A sleep ends 0.1 ms late, or more: steps that are shorter than this are slept several at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Microseconds that one operator takes for one element, in one thread."""

    name: str
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitShare:
    """The share of the time that a device with this step time would wait."""

    step_ms: float
    wait_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything that was measured. `pixels` is the mean size of the decoded images, None without images; `side` what is kept of it."""

    costs: tuple[Cost, ...]
    first_batch_s: float
    ceiling_per_s: float
    waits: tuple[WaitShare, ...]
    batch_size: int
    num_workers: int
    pixels: float | None
    side: int | None
    snapshot: Snapshot

    @property
    def in_line_per_s(self) -> float:
        """Return how many elements per second one thread makes, one after the other."""
        return 1e6 / max(1e-3, sum(cost.us for cost in self.costs))

    def as_json(self) -> dict[str, Any]:
        """Return the figures as plain numbers and lists."""
        return {**asdict(self), "in_line_per_s": self.in_line_per_s}


def measure(opened: Opened, *, batch_size: int, num_workers: int, budget_s: float, steps_ms: tuple[float, ...]) -> Figures:
    """Measure a source; takes about `budget_s` for each of: the operators, the ceiling, every step time.

    Raises:
        PenstockError: an element cannot be read.
    """
    num_steps = len(steps_ms) or len(_STEPS_OF_CEILING)
    with Progress("measuring", budget_s * (2 + num_steps), unit="s") as progress:
        costs, pixels = _costs(opened, budget_s, progress)
        batches = opened.pipeline().repeat().batch(batch_size, drop_remainder=True)
        first_batch_s, ceiling = _flow(batches, num_workers, None, budget_s, progress)
        batch_s = ceiling.consumer.span_s / max(1, ceiling.consumer.num_batches - 1)
        waits = []
        for step_ms in steps_ms or [1000 * batch_s * factor for factor in _STEPS_OF_CEILING]:
            device = Device(step_ms / 1000)
            _flow(batches, num_workers, device, budget_s, progress)
            waits.append(WaitShare(step_ms=step_ms, wait_share=device.wait_share))
    return Figures(
        costs=costs,
        first_batch_s=first_batch_s,
        ceiling_per_s=batch_size / batch_s if batch_s > 0 else float("inf"),
        waits=tuple(waits),
        batch_size=batch_size,
        num_workers=num_workers,
        pixels=pixels,
        side=opened.side,
        snapshot=ceiling,
    )


def _costs(opened: Opened, budget_s: float, progress: Progress) -> tuple[tuple[Cost, ...], float | None]:
    """Run the operators one by one on elements spread over the whole source; the first element warms up and does not count."""
    dataset, length = opened.dataset, len(opened.dataset)
    calls = [_calling(function) for function in opened.operators.values()]
    sums = np.zeros(1 + len(calls))
    last_elements: deque[Any] = deque(maxlen=_MAX_STACKED)
    pixels: list[int] = []
    count = min(length, _MAX_SAMPLED)
    end_s = time.perf_counter() + budget_s
    last_s = time.perf_counter()
    done = 0
    for number, index in enumerate([0, *np.linspace(0, length - 1, count).astype(int).tolist()]):
        rng = np.random.default_rng(index)
        times = [time.perf_counter()]
        element = dataset[index]
        times.append(time.perf_counter())
        try:
            for position, call in enumerate(calls):
                element = call(element, rng)
                times.append(time.perf_counter())
                if position == 0 and opened.side is not None:
                    height, width = element["data"].shape[:2]
                    pixels.append(height * width)
        except Exception as error:
            name = element.get("path", "") if isinstance(element, dict) else ""
            error.add_note(f"operator '{list(opened.operators)[len(times) - 2]}' on element {index} {name}".rstrip())
            raise
        last_elements.append(element)
        if number > 0:
            sums += np.diff(times)
            done += 1
        progress.advance(times[-1] - last_s)
        last_s = times[-1]
        if done and last_s > end_s:
            break
    names = ["read", *opened.operators]
    costs = [Cost(name=name, us=float(total) * 1e6 / done) for name, total in zip(names, sums, strict=True)]
    costs.append(Cost(name="stack", us=_us_to_stack(list(last_elements))))
    return tuple(costs), float(np.mean(pixels)) if pixels else None


def _us_to_stack(elements: list[Any]) -> float:
    """Return the microseconds per element that stacking a batch takes, as a loop that reads in line must."""
    columns = list(zip(*(flatten(element) for element in elements), strict=True))
    times = []
    for _ in range(3):
        start_s = time.perf_counter()
        for column in columns:
            if isinstance(column[0], (np.ndarray, np.generic, int, float)):
                np.stack(column)
        times.append(time.perf_counter() - start_s)
    # The least of three: the first one also pays for memory that is new to the process.
    return min(times) * 1e6 / len(elements)


def _calling(function: Callable[..., Any]) -> Callable[[Any, np.random.Generator], Any]:
    """Return `function` as a call with an element and a generator; whether it wants the generator is decided once."""
    if wants_rng(function):
        return lambda element, rng: function(element, rng=rng)
    return lambda element, _: function(element)


class Device:
    """Stands for a device: it runs the steps that it was given, one behind the other, while the loop that gives them sleeps.

    As on a real one steps are given ahead: up to 1 ms of them, or what lies in the time by which a sleep ended late. So the steps last
    as long as they should on average, however long a sleep takes. Time that passed for want of a batch is never made up for.

    Args:
        step_s: how long a step lasts.
    """

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._done_s: float | None = None
        self._waited_s = self._worked_s = self._late_s = 0.0

    def take(self, now_s: float) -> None:
        """Note that a batch came: the device has waited since its last step ended, unless it was the sleep that kept it."""
        if self._done_s is None:
            self._done_s = now_s
        waited_s = max(0.0, now_s - self._late_s - self._done_s)
        self._waited_s += waited_s
        self._done_s += waited_s

    def step(self) -> None:
        """Give it the step for the batch that came, and sleep when it has enough to do."""
        assert self._done_s is not None
        self._worked_s += self._step_s
        self._done_s += self._step_s
        left_s = self._done_s - time.perf_counter()
        if left_s >= _AHEAD_S:
            time.sleep(left_s)
            self._late_s = max(0.0, time.perf_counter() - self._done_s)
        else:
            self._late_s = min(self._late_s, max(0.0, -left_s))

    @property
    def wait_share(self) -> float:
        """Return the part of the time from the first batch to the last in which no step ran."""
        return self._waited_s / max(1e-9, self._waited_s + self._worked_s)


def _flow(batches: Any, num_workers: int, device: Device | None, budget_s: float, progress: Progress) -> tuple[float, Snapshot]:
    """Take batches for `budget_s`, for a device or for nothing; return the time to the first one and the figures."""
    stats = Stats()
    start_s = time.perf_counter()
    with batches.feed(num_workers=num_workers, listeners=[stats]) as feed:
        first_s = 0.0
        last_s = start_s
        for num_taken, _ in enumerate(feed, start=1):
            now_s = time.perf_counter()
            first_s = first_s or now_s - start_s
            if device is not None:
                device.take(now_s)
            progress.advance(now_s - last_s)
            last_s = now_s
            if num_taken >= 3 and now_s - start_s - first_s > budget_s:
                break
            if device is not None:
                device.step()
        snapshot = stats.snapshot()
    return first_s, snapshot


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and advise. Returns 0.

    Raises:
        PenstockError: the source, the function or an element cannot be used; the text names it.
    """
    json_file = file_of_figures(arguments)
    opened = open_source(arguments.source, root=arguments.root, function=arguments.map, crop=arguments.crop, resize=arguments.resize)
    figures = measure(
        opened,
        batch_size=arguments.batch,
        num_workers=arguments.workers or available_cpus(),
        budget_s=arguments.seconds,
        steps_ms=arguments.step_ms or (),
    )
    advice = advise(figures)
    _print(arguments.source, opened, figures, advice)
    write_figures(json_file, {**figures.as_json(), "source": arguments.source, "advice": advice})
    return 0


def _print(source: str, opened: Opened, figures: Figures, advice: list[str]) -> None:
    screen = Screen(sys.stdout, name_columns=20)
    workers = "1 thread" if figures.num_workers == 1 else f"{figures.num_workers} threads"
    screen.line(f"penstock bench {source}: {len(opened.dataset):,} elements ({opened.kind}), batches of {figures.batch_size}, {workers}")
    screen.heading("Cost per element, one operator after the other in one thread")
    total_us = sum(cost.us for cost in figures.costs)
    for cost in figures.costs:
        screen.bar(cost.name, f"{cost.us:9,.1f} us  {percent(cost.us / total_us)}", cost.us / total_us, 0.0)
    screen.heading("Speed")
    screen.fact("in one thread", f"{figures.in_line_per_s:,.0f} elements/s, one after the other (what a loop that reads in line can reach)")
    times = figures.ceiling_per_s / figures.in_line_per_s
    screen.fact("ceiling", f"{figures.ceiling_per_s:,.0f} elements/s through Penstock with no training step, {times:.2f} times that")
    screen.fact("first batch", f"after {seconds(figures.first_batch_s)}")
    screen.heading("Share of the time that a device would wait, by the length of its step")
    for wait in figures.waits:
        screen.bar(f"{wait.step_ms:,.3g} ms", f"waits {percent(wait.wait_share)}", 1 - wait.wait_share, wait.wait_share)
    screen.heading("What this says")
    for sentence in advice:
        screen.point(sentence)


def advise(figures: Figures) -> list[str]:
    """Return a few sentences with numbers, the most useful first."""
    batch_ms = 1000 * figures.batch_size / figures.ceiling_per_s
    enough = (
        f"a training step of {1.1 * batch_ms:,.3g} ms or longer for {figures.batch_size} elements need not wait on this machine;"
        f" a shorter one waits, down to {batch_ms:,.3g} ms per batch"
    )
    sentences = [enough]
    verdict = judge(figures.snapshot)
    if verdict.kind != "step":
        sentences.append(f"without a training step {verdict.headline}")
    sentences += _about_largest(figures)
    if verdict.kind not in ("gil", "waits", "crowded", "concurrency", "errors", "slow"):
        sentences += _about_scaling(figures)
    return sentences


def _about_largest(figures: Figures) -> list[str]:
    """Say what halving the dearest operator would give, and for images what storing them smaller would."""
    # Stacking is the in-line loop's alone: through Penstock the last operator writes into the batch.
    costs = [cost for cost in figures.costs if cost.name != "stack"]
    total_us = sum(cost.us for cost in costs)
    if total_us <= 0 or len(costs) < 2:
        return []
    largest = max(costs, key=lambda cost: cost.us)
    share = largest.us / total_us
    halved = figures.ceiling_per_s / (1 - share / 2)
    sentence = (
        f"'{largest.name}' takes {percent(share)} of an element's time ({largest.us:,.0f} us):"
        f" at half its cost the ceiling would be about {halved:,.0f} elements/s"
    )
    return [sentence, *_about_size(figures, share)] if largest.name == "decode" else [sentence]


def _about_size(figures: Figures, share: float) -> list[str]:
    """Say what storing the images smaller would give; 1.3 times the kept side leaves room for a random crop."""
    if figures.pixels is None or figures.side is None:
        return []
    side = round(1.3 * figures.side)
    if side**2 >= 0.6 * figures.pixels:
        return []
    gained = figures.ceiling_per_s / (1 - share * (1 - side**2 / figures.pixels))
    sentence = (
        f"the images have {figures.pixels / 1e6:,.2f} million pixels, of which {figures.side}x{figures.side} are kept: stored once with"
        f" about {side} pixels a side they would give about {gained:,.0f} elements/s"
    )
    return [sentence]


def _about_scaling(figures: Figures) -> list[str]:
    """Say so when several threads are hardly faster than one, which means that they exclude each other."""
    gain = figures.ceiling_per_s / figures.in_line_per_s
    threads = min(figures.num_workers, figures.snapshot.num_cpus)
    if threads < 2 or gain >= 1.3:
        return []
    processes = "" if figures.snapshot.no_processes else ' give executor="processes",'
    sentence = (
        f"{figures.num_workers} threads are only {gain:.2f} times as fast as one: an operator holds the GIL or waits for a lock;"
        f"{processes} do more per call with NumPy, or use operators that release the GIL"
    )
    return [sentence]
