"""`penstock inspect`: what is in a file of records, and whether it can be trusted."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass

from penstock._storage.local import publish
from penstock.cli.screen import Screen
from penstock.errors import SourceError
from penstock.formats.sizes import size_words
from penstock.packing.inspect import Inspection, contact_sheet, images_of, inspect, shown, summary

_ON_SHEET = 48
"""How many images a contact sheet has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to look at."""

    path: str
    verify: bool
    num_samples: int
    sheet: str | None


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the settings that these command-line arguments ask for."""
    return Settings(path=arguments.path, verify=arguments.verify, num_samples=max(0, arguments.samples), sheet=arguments.sheet)


def run(settings: Settings) -> int:
    """Look and print. Returns 0, or 1 when something is wrong.

    Raises:
        PenstockError, OSError: there is nothing to look at, or the sheet cannot be made.
    """
    num_samples = max(settings.num_samples, _ON_SHEET if settings.sheet else 0)
    reports = inspect(settings.path, verify=settings.verify, num_samples=num_samples)
    screen = Screen(sys.stdout, name_columns=14)
    for report in reports:
        _print(report, settings.num_samples, screen)
    if settings.sheet is not None:
        _write_sheet(reports, settings, screen)
    problems = sum(len(report.problems) for report in reports)
    nothing = "Nothing wrong was found" + ("" if settings.verify else " in what was looked at; --verify looks at everything")
    screen.heading(f"{problems} things are wrong" if problems > 1 else "1 thing is wrong" if problems else nothing)
    return 1 if problems else 0


def _print(report: Inspection, num_samples: int, screen: Screen) -> None:
    screen.heading(f"{ascii_safe(report.path)} ({report.kind}, {size_words(report.size)})")
    screen.fact(report.noun.partition(" ")[0], f"{report.count:,}{report.noun.removeprefix(report.noun.partition(' ')[0])}")
    if report.lengths is not None and len(report.lengths):
        least, median, most = summary(report.lengths)
        screen.fact("bytes of one", f"{least:,} at least, {median:,} in the median, {most:,} at most")
    for line in report.fields:
        screen.fact("field", line)
    for number, sample in enumerate(report.samples[:num_samples]):
        for name, value in sample.items():
            screen.fact(f"sample {number}", f"{ascii_safe(name)} = {shown(value)}")
    for line in report.remarks:
        screen.fact("", line)
    for line in report.problems:
        screen.fact("WRONG", ascii_safe(line))


def ascii_safe(text: str) -> str:
    """Return a text with everything escaped that a terminal might act on."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text)


def _write_sheet(reports: list[Inspection], settings: Settings, screen: Screen) -> None:
    path = os.path.abspath(settings.sheet or "")
    if not os.path.isdir(os.path.dirname(path)):
        raise SourceError(f"there is no folder {os.path.dirname(path)!r}", where="penstock inspect --sheet", fix="make it, or give another")
    images = images_of(sample for report in reports for sample in report.samples)[:_ON_SHEET]
    if not images:
        raise SourceError("there are no images in the first records", where="penstock inspect --sheet", fix="leave --sheet out")
    publish(path, contact_sheet(images))
    screen.fact("sheet", f"{len(images)} images in {path}")
