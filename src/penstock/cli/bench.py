"""`penstock bench`: what this machine can do with the user's own data, where the time goes and what would help."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.bench_source import Opened, open_source
from penstock.cli.measure import Figures, measure
from penstock.cli.screen import Screen, percent, seconds
from penstock.errors import SourceError
from penstock.observe.diagnose import judge
from penstock.observe.stats import available_cpus

__all__ = ["Settings", "advise", "run", "settings_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to measure, and how long."""

    source: str
    root: str | None
    function: str | None
    crop: int | None
    resize: int | None
    batch_size: int
    num_workers: int
    seconds: float
    steps_ms: tuple[float, ...]
    json_file: Path | None


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the settings that these command-line arguments ask for."""
    return Settings(
        source=arguments.source,
        root=arguments.root,
        function=arguments.map,
        crop=arguments.crop,
        resize=arguments.resize,
        batch_size=arguments.batch,
        num_workers=arguments.workers or available_cpus(),
        seconds=arguments.seconds,
        steps_ms=arguments.step_ms or (),
        json_file=None if arguments.json is None else Path(arguments.json),
    )


def run(settings: Settings) -> int:
    """Measure, print and advise. Returns 0.

    Raises:
        PenstockError: the source, the function or an element cannot be used; the text names it.
    """
    if settings.json_file is not None and not settings.json_file.absolute().parent.is_dir():
        raise SourceError(
            f"the folder of {str(settings.json_file)!r} does not exist", where="penstock bench --json", fix="make the folder first"
        )
    opened = open_source(settings.source, root=settings.root, function=settings.function, crop=settings.crop, resize=settings.resize)
    figures = measure(
        opened,
        batch_size=settings.batch_size,
        num_workers=settings.num_workers,
        budget_s=settings.seconds,
        steps_ms=settings.steps_ms,
    )
    advice = advise(figures)
    _print(settings, opened, figures, advice)
    if settings.json_file is not None:
        settings.json_file.write_text(
            json.dumps({**figures.as_json(), "source": settings.source, "advice": advice}, indent=1) + "\n", "utf-8"
        )
    return 0


def _print(settings: Settings, opened: Opened, figures: Figures, advice: list[str]) -> None:
    screen = Screen(sys.stdout, name_columns=20)
    workers = "1 thread" if settings.num_workers == 1 else f"{settings.num_workers} threads"
    screen.line(
        f"penstock bench {settings.source}: {len(opened.dataset):,} elements ({opened.kind}), batches of {settings.batch_size}, {workers}"
    )
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
    sentence = (
        f"{figures.num_workers} threads are only {gain:.2f} times as fast as one: an operator holds the GIL or waits for a lock;"
        ' give executor="processes", do more per call with NumPy, or use operators that release the GIL'
    )
    return [sentence]
