"""`penstock index`: builds the sidecar indices of files, whose formats are known by names and by the names of files."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock._storage import open_storage
from penstock.cli.screen import seconds, size
from penstock.errors import PlanError
from penstock.sources.csvrecords import CsvRecords
from penstock.sources.indexing import IndexReport, open_indices
from penstock.sources.records import RecordFormat
from penstock.sources.tar import TarFormat
from penstock.sources.text import JsonLines, TextLines
from penstock.sources.tfrecord import TFRecordFormat

_CALLER = "penstock index"
_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One format with its default options.

    Attributes:
        name: its kind.
        endings: of the names of its files, in lower case; the longest that fits decides.
        make: returns the format.
        noun: what a record is called.
    """

    name: str
    endings: tuple[str, ...]
    make: Callable[[], RecordFormat]
    noun: str = "record"


KINDS: tuple[Kind, ...] = (
    Kind(name="text", endings=(".txt", ".text", ".log"), make=TextLines, noun="line"),
    Kind(name="tar", endings=(".tar",), make=TarFormat, noun="sample"),
    Kind(name="tfrecord", endings=(".tfrecord", ".tfrecords", ".tfrec"), make=TFRecordFormat),
    Kind(name="jsonl", endings=(".jsonl", ".ndjson"), make=JsonLines, noun="line"),
    Kind(name="csv", endings=(".csv",), make=CsvRecords),
)
"""New ones are added here."""


def format_for(name: str | None, path: str, caller: str) -> Kind:
    """Return the format of a name, or for None that of a file's name.

    Raises:
        PlanError: there is none of this name, or the file's name says nothing.
    """
    names = ", ".join(kind.name for kind in KINDS)
    if name is not None:
        for kind in KINDS:
            if kind.name == name:
                return kind
        raise PlanError(f"{name!r} is no format", where=caller, fix=f"give one of {names}")
    lower = os.path.basename(path).lower()
    fitting = [
        (len(ending), kind) for kind in KINDS for ending in kind.endings if ending in (lower[-len(ending) :], _stem_end(lower, ending))
    ]
    if not fitting:
        raise PlanError(f"the name of {path!r} does not say which format it has", where=caller, fix=f"name it with --format: {names}")
    return max(fitting, key=lambda pair: pair[0])[1]


def _stem_end(lower: str, ending: str) -> str:
    """Return `ending` for a shard name such as "train.tfrecord-00003-of-00010"."""
    return ending if f"{ending}-" in lower and "-of-" in lower else ""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Build the index of each file (.penstock/NAME.psidx beside it, or in the cache folder), so that any record can be read at any time."
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
