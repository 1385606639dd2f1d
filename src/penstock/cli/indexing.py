"""`penstock index`: builds the sidecar indices of files, whose formats are known by names and by the names of files."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from typing import Any, NamedTuple

from penstock._contracts.storage import Storage
from penstock._storage import open_storage
from penstock._system.text import size_words
from penstock.cli.screen import seconds
from penstock.errors import PlanError
from penstock.observe.progress import Progress
from penstock.sources.csvrecords import CsvRecords
from penstock.sources.indexing import IndexReport, open_indices
from penstock.sources.tar import TarFormat
from penstock.sources.text import JsonLines, TextLines
from penstock.sources.tfrecord import TFRecordFormat

_CALLER = "penstock index"


class Kind(NamedTuple):
    """One format with its default options.

    Attributes:
        endings: of the names of its files, in lower case; the longest that fits decides.
        make: the class of the format, whose kind is its name.
        noun: what a record is called.
    """

    endings: tuple[str, ...]
    make: Any
    noun: str = "record"


KINDS: tuple[Kind, ...] = (
    Kind((".txt", ".text", ".log"), TextLines, "line"),
    Kind((".tar",), TarFormat, "sample"),
    Kind((".tfrecord", ".tfrecords", ".tfrec"), TFRecordFormat),
    Kind((".jsonl", ".ndjson"), JsonLines, "line"),
    Kind((".csv",), CsvRecords),
)
"""New ones are added here."""


def format_for(name: str | None, path: str, caller: str) -> Kind:
    """Return the format of a name, or for None that of a file's name.

    Raises:
        PlanError: the file's name says nothing.
    """
    if name is not None:
        return next(kind for kind in KINDS if kind.make.kind == name)
    lower = os.path.basename(path).lower()
    is_shard = "-of-" in lower  # such as "train.tfrecord-00003-of-00010"
    fitting = [
        (len(ending), kind) for kind in KINDS for ending in kind.endings if lower.endswith(ending) or (is_shard and f"{ending}-" in lower)
    ]
    if not fitting:
        names = ", ".join(kind.make.kind for kind in KINDS)
        raise PlanError(f"the name of {path!r} does not say which format it has", where=caller, fix=f"name it with --format: {names}")
    return max(fitting, key=lambda pair: pair[0])[1]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Build the index of each file (.penstock/NAME.psidx beside it, or in the cache folder), so that any record can be read at any time."
    )
    parser.add_argument(
        "patterns", nargs="+", metavar="PATTERN", help="paths or quoted patterns: 'train-*.tfrecord', 'a-{000..146}.tar', name@10"
    )
    parser.add_argument(
        "--format", choices=[kind.make.kind for kind in KINDS], help="what the files are (default: by the ending of the first name)"
    )
    parser.add_argument("--rebuild", action="store_true", help="build also those that are there and fit")
    parser.add_argument("--index-folder", metavar="DIR", help="for indices that cannot stand beside their data (default: the cache folder)")


def run(arguments: Namespace) -> int:
    """Build what is missing, print what was done, return 0."""
    storage = open_storage(arguments.patterns, _CALLER)
    kind = format_for(arguments.format, storage.name(0), _CALLER)
    reports: list[IndexReport] = []
    start = time.monotonic()
    with Progress("indexing", len(storage), unit="files") as progress:

        def note(report: IndexReport) -> None:
            reports.append(report)
            if report.reason not in (None, "missing", "asked for"):
                print(f"   {storage.name(report.file)}: built again, {report.reason}")
            progress.advance()

        open_indices(storage, kind.make(), rebuild=arguments.rebuild, cache_folder=arguments.index_folder, on_file=note)
    took_s = time.monotonic() - start
    built = [report for report in reports if report.reason is not None]
    records, num_bytes = sum(report.count for report in reports), _bytes_of(storage, reports)
    index_bytes = sum(report.index_bytes for report in reports)
    print(f"{len(reports)} files, {records:,} {kind.noun}s, {size_words(num_bytes)}; indices {size_words(index_bytes)}")
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(str(report.reason) for report in built).items()))
    rate = f", {size_words(int(_bytes_of(storage, built) / took_s))}/s" if built and took_s > 0 else ""
    print(f"built {len(built)} in {seconds(took_s)}{rate} ({why})" if built else "all indices were there and fit; nothing was built")
    unwritten = sum(report.path is None for report in reports)
    if unwritten:
        print(f"{unwritten} could be written neither beside their data nor to the cache folder: give --index-folder")
    return 0


def _bytes_of(storage: Storage, reports: list[IndexReport]) -> int:
    return sum(storage.size(report.file) for report in reports)
