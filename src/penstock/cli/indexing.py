"""`penstock index`: builds the sidecar indices of files."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field

from penstock._storage import open_storage
from penstock.cli.screen import seconds, size
from penstock.sources.indexing import IndexReport, open_indices
from penstock.sources.kinds import KINDS, format_for

__all__ = ["add_arguments", "run"]

_CALLER = "penstock index"
_EVERY_S = 0.2


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Build the index of each file (NAME.psidx, beside it or in the cache folder), so that any record can be read at any time."
    )
    parser.add_argument(
        "patterns", nargs="+", metavar="PATTERN", help="paths or quoted patterns: 'train-*.tfrecord', 'a-{000..146}.tar', name@10"
    )
    parser.add_argument(
        "--format", choices=[kind.name for kind in KINDS], help="what the files are (default: by the ending of the first name)"
    )
    parser.add_argument("--rebuild", action="store_true", help="build also those that are there and fit")
    parser.add_argument("--index-folder", metavar="DIR", help="for indices that cannot stand beside their data (default: the cache folder)")


def run(arguments: Namespace) -> int:
    """Build what is missing, print what was done, return 0."""
    storage = open_storage(arguments.patterns, _CALLER)
    kind = format_for(arguments.format, storage.name(0), _CALLER)
    progress = _Progress(num_files=len(storage), noun=kind.noun)
    start = time.monotonic()
    try:
        open_indices(
            storage,
            kind.make(),
            _CALLER,
            rebuild=arguments.rebuild,
            cache_folder=arguments.index_folder,
            on_file=lambda report: progress.add(report, storage.name(report.file), storage.size(report.file)),
        )
    finally:
        progress.end_line()
    progress.finish(time.monotonic() - start)
    return 0


@dataclass
class _Progress:
    """Counts, and one line on a terminal that is written over again."""

    num_files: int
    noun: str
    done: int = 0
    records: int = 0
    file_bytes: int = 0
    index_bytes: int = 0
    built: int = 0
    built_bytes: int = 0
    unwritten: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    shown_s: float = 0.0
    open_line: bool = False

    def add(self, report: IndexReport, name: str, file_bytes: int) -> None:
        """Count one file; called from one thread at a time."""
        self.done += 1
        self.records += report.count
        self.file_bytes += file_bytes
        self.index_bytes += report.index_bytes
        self.unwritten += report.path is None
        if report.reason is not None:
            self.built += 1
            self.built_bytes += file_bytes
            self.reasons[report.reason] = self.reasons.get(report.reason, 0) + 1
            if report.reason not in ("missing", "asked for"):
                self.end_line()
                print(f"   {name}: built again, {report.reason}")
        now = time.monotonic()
        if sys.stderr.isatty() and now - self.shown_s > _EVERY_S:
            self.shown_s, self.open_line = now, True
            print(f"\r   {self.done} of {self.num_files} files, {self.records:,} {self.noun}s", end="", file=sys.stderr, flush=True)

    def end_line(self) -> None:
        """Leave the line that is written over."""
        if self.open_line:
            print(file=sys.stderr)
            self.open_line = False

    def finish(self, took_s: float) -> None:
        """Print the sums."""
        print(f"{self.done} files, {self.records:,} {self.noun}s, {size(self.file_bytes)}; indices {size(self.index_bytes)}")
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(self.reasons.items()))
        rate = f", {size(int(self.built_bytes / took_s))}/s" if self.built_bytes and took_s > 0 else ""
        print(
            f"built {self.built} in {seconds(took_s)}{rate} ({why})" if self.built else "all indices were there and fit; nothing was built"
        )
        if self.unwritten:
            print(f"{self.unwritten} could be written neither beside their data nor to the cache folder: give --index-folder")
