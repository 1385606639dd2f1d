"""Turns the figures of `penstock bench` into sentences: what limits, what would help and by how much. Pure."""

from __future__ import annotations

from penstock.cli.measure import Figures
from penstock.cli.screen import percent
from penstock.observe.diagnose import judge

__all__ = ["advise"]


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
        " do more per call with NumPy, or use operators that release the GIL"
    )
    return [sentence]
