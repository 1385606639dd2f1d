"""`penstock inspect`: what is in a file of records, and whether it can be trusted."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np

from penstock.cli.screen import Screen
from penstock.formats.sizes import size_words
from penstock.packing.inspect import Inspection, inspect, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to look at."""

    path: str
    verify: bool
    num_samples: int


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the settings that these command-line arguments ask for."""
    return Settings(path=arguments.path, verify=arguments.verify, num_samples=max(0, arguments.samples))


def run(settings: Settings) -> int:
    """Look and print. Returns 0, or 1 when something is wrong.

    Raises:
        PenstockError, OSError: there is nothing to look at.
    """
    reports = inspect(settings.path, verify=settings.verify, num_samples=settings.num_samples)
    screen = Screen(sys.stdout, name_columns=14)
    for report in reports:
        _print(report, screen)
    problems = sum(len(report.problems) for report in reports)
    nothing = "Nothing wrong was found" + ("" if settings.verify else " in what was looked at; --verify looks at everything")
    screen.heading(f"{problems} things are wrong" if problems > 1 else "1 thing is wrong" if problems else nothing)
    return 1 if problems else 0


def _print(report: Inspection, screen: Screen) -> None:
    screen.heading(f"{ascii_safe(report.path)} ({report.kind}, {size_words(report.size)})")
    screen.fact(report.noun.partition(" ")[0], f"{report.count:,}{report.noun.removeprefix(report.noun.partition(' ')[0])}")
    if report.lengths is not None and len(report.lengths):
        least, median, most = np.quantile(report.lengths, (0, 0.5, 1))
        screen.fact("bytes of one", f"{least:,.0f} at least, {median:,.0f} in the median, {most:,.0f} at most")
    for line in report.fields:
        screen.fact("field", line)
    for number, sample in enumerate(report.samples):
        for name, value in sample.items():
            screen.fact(f"sample {number}", f"{ascii_safe(name)} = {shown(value)}")
    for line in report.remarks:
        screen.fact("", line)
    for line in report.problems:
        screen.fact("WRONG", ascii_safe(line))


def ascii_safe(text: str) -> str:
    """Return a text with everything escaped that a terminal might act on."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text)
