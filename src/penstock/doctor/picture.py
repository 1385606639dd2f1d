"""Draws the pipe of each feed: its operators from the source to the training loop, with time and memory at each. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.doctor.report import FeedFigures, OperatorFigures, Report, short_name, size_words, time_words
from penstock.errors import MissingExtra

__all__ = ["draw", "require_matplotlib"]

_TIME, _MEMORY, _STEP, _WAIT, _BOX = "#3d6fb6", "#b6743d", "#1f9d62", "#e4572e", "#eef2f7"
_ROW = 0.52
"""Inches of one operator."""


def draw(report: Report, path: str | Path) -> None:
    """Write a PNG: for each feed its pipe from the top down, beside each operator bars of its time and its memory.

    The memory is the peak of one call where it was measured, else what one call returned. The last box of a pipe is the training loop:
    its steps and its waiting.

    Args:
        report: with at least one operator.
        path: the file; replaced when it exists.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure_class, canvas_class = _matplotlib()
    pipes = [(feed, [one for one in report.pipeline if one.feed == feed.number]) for feed in report.feeds]
    heights = [len(operators) + 1 for _, operators in pipes]
    figure = figure_class(figsize=(11.0, 1.0 + _ROW * sum(heights) + 0.75 * len(pipes)), dpi=100, layout="constrained")
    canvas_class(figure)
    axes = figure.subplots(len(pipes), 3, squeeze=False, width_ratios=[1.2, 1.5, 1.2], height_ratios=heights)
    longest_s = max([one.wall_s for one in report.operators] + [feed.step_s + feed.wait_s + feed.first_wait_s for feed in report.feeds])
    largest = max([_memory(one) for one in report.operators] + [1.0])
    for row, (feed, operators) in zip(axes, pipes, strict=True):
        _draw_pipe(row[0], feed, operators, several=len(pipes) > 1)
        _draw_time(row[1], feed, operators, longest_s)
        _draw_memory(row[2], operators, largest, peak=report.sorted_by == "memory")
        for axis in row:
            axis.set_ylim(len(operators) + 0.6, -0.6)
            axis.set_yticks([])
    figure.suptitle(f"{Path(report.script[0]).name}: {time_words(report.elapsed_s)}", fontsize=12, fontweight="bold")
    figure.savefig(path, format="png")


def _draw_pipe(axis: Any, feed: FeedFigures, operators: list[OperatorFigures], *, several: bool) -> None:
    axis.set_xlim(0, 1)
    axis.axis("off")
    axis.set_title(f"feed {feed.number}" if several else "the pipe", fontsize=10, loc="left")
    names = [short_name(one, 34, several=False) for one in operators]
    for place, name in enumerate([*names, "training loop"]):
        box = {"boxstyle": "round,pad=0.35", "facecolor": _BOX, "edgecolor": "0.6"}
        axis.text(0.5, place, name, ha="center", va="center", fontsize=9, bbox=box)
        if place:
            axis.annotate("", (0.5, place - 0.28), (0.5, place - 0.72), arrowprops={"arrowstyle": "->", "color": "0.4"})


def _draw_time(axis: Any, feed: FeedFigures, operators: list[OperatorFigures], longest_s: float) -> None:
    axis.set_title("time in all threads", fontsize=10, loc="left")
    for place, one in enumerate(operators):
        axis.barh(place, one.wall_s, height=0.5, color=_TIME)
        axis.text(one.wall_s, place, f"  {time_words(one.wall_s)}, {one.share_percent:.1f} %", va="center", fontsize=8)
    waited_s, place = feed.wait_s + feed.first_wait_s, len(operators)
    axis.barh(place, feed.step_s, height=0.5, color=_STEP)
    axis.barh(place, waited_s, left=feed.step_s, height=0.5, color=_WAIT)
    words = f"  steps {time_words(feed.step_s)}, {'making' if feed.in_consumer else 'waiting'} {time_words(waited_s)}"
    axis.text(feed.step_s + waited_s, place, words, va="center", fontsize=8)
    _finish(axis, longest_s)


def _draw_memory(axis: Any, operators: list[OperatorFigures], largest: float, *, peak: bool) -> None:
    axis.set_title("peak memory of one call" if peak else "bytes returned by one call", fontsize=10, loc="left")
    for place, one in enumerate(operators):
        if one.kind != "penstock":
            axis.barh(place, _memory(one), height=0.5, color=_MEMORY)
            axis.text(_memory(one), place, f"  {size_words(round(_memory(one)))}", va="center", fontsize=8)
    _finish(axis, largest)


def _finish(axis: Any, largest: float) -> None:
    axis.set_xlim(0, 1.7 * largest or 1.0)
    axis.set_xticks([])
    axis.spines[["top", "right", "bottom"]].set_visible(False)


def _memory(one: OperatorFigures) -> float:
    return one.bytes_out / max(1, one.num_calls) if one.peak_bytes is None else one.peak_bytes


def require_matplotlib() -> None:
    """Check that a picture can be drawn, before the script runs for minutes.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    _matplotlib()


def _matplotlib() -> tuple[Any, Any]:
    """Return the Figure and Agg canvas classes, which keep no state and open no window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib is not installed", where="penstock doctor --picture", fix="pip install 'penstock[demo]'") from error
    return Figure, FigureCanvasAgg
