"""Draws runs as timelines: when the step ran, when it waited, and how many batches were ready. Needs matplotlib (extra `demo`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import MissingExtra

__all__ = ["Lane", "draw", "require_matplotlib"]

_STEP, _WAIT, _FILL = "#1f9d62", "#e4572e", "#3d6fb6"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One run to draw. All times are seconds since its start.

    Attributes:
        title: what ran.
        steps: (start, end) of every training step, in order; what lies between them is waiting.
        ready: (time, number of batches ready) at every hand-over; empty when nothing is read ahead.
        total_s: how long the run took.
    """

    title: str
    steps: Sequence[tuple[float, float]]
    ready: Sequence[tuple[float, int]]
    total_s: float

    @property
    def waits(self) -> list[tuple[float, float]]:
        """Return (start, end) of every wait, the first one from the start of the run."""
        ends = [0.0, *(end for _, end in self.steps)]
        return [(end, start) for end, (start, _) in zip(ends, self.steps, strict=False) if start > end]

    @property
    def busy_share(self) -> float:
        """Return the part of the run, from its very start, in which a step was running."""
        return sum(end - start for start, end in self.steps) / self.total_s if self.total_s > 0 else 0.0


def draw(path: str | Path, lanes: Sequence[Lane], *, title: str, window_s: float | None = None) -> None:
    """Write a PNG with one panel per lane, all on one time axis.

    Args:
        path: the file to write; replaced when it exists.
        lanes: the runs, drawn from top to bottom.
        title: the heading of the picture.
        window_s: draw only this many seconds from the start, so that single steps can be seen; None draws everything.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure_class, canvas_class = _matplotlib()
    figure = figure_class(figsize=(10.5, 1.2 + 2.05 * len(lanes)), dpi=100, layout="constrained")
    canvas_class(figure)
    axes = figure.subplots(2 * len(lanes), 1, sharex=True, squeeze=False, height_ratios=[1.0, 0.75] * len(lanes))[:, 0]
    longest_s = max(lane.total_s for lane in lanes)
    shown_s = longest_s if window_s is None else min(window_s, longest_s)
    highest = max((count for lane in lanes for _, count in lane.ready), default=0)
    for index, lane in enumerate(lanes):
        _draw_steps(axes[2 * index], lane, shown_s)
        _draw_ready(axes[2 * index + 1], lane, shown_s, highest)
    axes[-1].set_xlim(0, shown_s)
    axes[-1].set_xlabel("seconds since the start" + ("" if shown_s >= longest_s else f" (the first {shown_s:.1f} s of each run)"))
    figure.suptitle(title, fontsize=12, fontweight="bold")
    figure.savefig(path)


def _draw_steps(axis: Any, lane: Lane, shown_s: float) -> None:
    for spans, colour, label in ((lane.steps, _STEP, "step"), (lane.waits, _WAIT, "wait")):
        bars = [(start, end - start) for start, end in spans if start < shown_s]
        axis.broken_barh(bars, (0.0, 1.0), facecolors=colour, edgecolor="white", linewidth=0.4 if label == "step" else 0.0, label=label)
    axis.set_ylim(0, 1)
    axis.set_yticks([])
    axis.set_ylabel("device", rotation=0, ha="right", va="center", fontsize=9)
    axis.set_title(f"{lane.title}: {lane.total_s:.1f} s in all, device busy {_percent(lane.busy_share)} of it", loc="left", fontsize=10)
    axis.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2, fontsize=8, frameon=False, borderaxespad=0.1)
    axis.spines[["top", "right", "left"]].set_visible(False)


def _draw_ready(axis: Any, lane: Lane, shown_s: float, highest: int) -> None:
    times = [time for time, _ in lane.ready if time < shown_s]
    counts = [count for time, count in lane.ready if time < shown_s]
    axis.set_ylim(0, max(1, highest) * 1.15)
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.set_ylabel("batches\nready", rotation=0, ha="right", va="center", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    if times:
        axis.fill_between(times, counts, step="post", color=_FILL, alpha=0.35, linewidth=0)
        axis.step(times, counts, where="post", color=_FILL, linewidth=1.2)
    else:
        axis.text(0.5, 0.5, "nothing is read ahead", transform=axis.transAxes, ha="center", va="center", fontsize=9, color="0.45")
        axis.set_yticks([])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _matplotlib() -> tuple[Any, Any]:
    """Return the Figure and Agg canvas classes: used without pyplot, matplotlib keeps no state of ours and opens no window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib is not installed", where="drawing the timeline", fix='pip install "penstock[demo]"') from error
    return Figure, FigureCanvasAgg


def require_matplotlib() -> None:
    """Check that a picture can be drawn, before minutes are spent on what it would show.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    _matplotlib()
