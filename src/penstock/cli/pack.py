"""`penstock pack`: a source through its operators into shards, once. `penstock inspect`: what is in files of records.

`penstock measure`: numbers of each element of a dataset into a folder, in which `ds.measure` of a training program finds them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock._contracts.policy import Raise, Skip
from penstock._system.failing import add_note, notes_of
from penstock._system.text import size_words
from penstock.cli.bench_source import TFRECORD, imported, imported_function, open_plain, open_records, write_a_module
from penstock.cli.screen import Screen
from penstock.dataset.builder import Dataset
from penstock.dataset.measuring import measure
from penstock.errors import PlanError, SourceError
from penstock.packing.inspect import Inspection, inspect, shown
from penstock.packing.manifest import Manifest
from penstock.packing.packer import estimate, pack
from penstock.packing.reencode import reencoded
from penstock.packing.split import Estimate

_COMMAND, _MEASURE = "penstock pack", "penstock measure"
_MOST_SHOWN = 5
_ELEMENT = ", element "
"""Stands in the note of an error that one element had."""
_OF_IMAGES = ("a list of images", "a folder of images", "image files")


def run(arguments: argparse.Namespace) -> int:
    """Pack, or say what would be written; print what came of it. Returns 0.

    Raises:
        PenstockError, OSError: as `penstock.packing.pack`.
    """
    source, kind = _open(arguments.source, arguments.root)
    dataset = _with_operators(arguments, source, kind)
    screen = Screen(sys.stdout, name_columns=14)
    compression = arguments.compression
    options: dict[str, Any] = {
        "on_error": Skip() if arguments.on_error == "skip" else Raise(),
        "format": arguments.format,
        "compression": None if compression in (None, "none") else {"gzip": "GZIP"}.get(compression.lower(), compression),
        "num_shards": arguments.shards,
        "shard_bytes": arguments.shard_bytes,
        "shuffle": arguments.shuffle,
        "name": arguments.name,
        "dtype": arguments.dtype,
        "measure": _columns(arguments),
    }
    if arguments.dry_run:
        _predict(arguments.source, estimate(dataset, **options), kind, screen)
        return 0
    executor: Literal["processes", "threads"] = "threads" if kind == "arrays" else "processes"
    try:
        manifest = pack(dataset, arguments.dest, num_workers=arguments.num_workers, executor=executor, progress=True, **options)
    except Exception as error:
        if arguments.on_error == "raise" and any(_ELEMENT in note for note in notes_of(error)):
            add_note(error, "penstock: --on-error skip leaves such elements out, and lists them in the manifest; finished shards are kept")
        raise
    _report(arguments.source, manifest, kind, screen)
    return 0


def _with_operators(arguments: argparse.Namespace, dataset: Any, kind: str) -> Any:
    """Return the source with the operators that the arguments ask for.

    Raises:
        SourceError, PlanError, MissingExtra: arguments do not go together, or with the source.
    """
    images = arguments.resize is not None or arguments.quality is not None
    if arguments.map is not None and images:
        raise PlanError(
            "--map and --resize are two ways to make the elements",
            where=f"{_COMMAND} --map",
            fix="resize in your function, or leave it out",
        )
    if arguments.map is not None:
        return dataset.map(imported_function(arguments.map, f"{_COMMAND} --map {arguments.map}"))
    if images:
        if kind not in _OF_IMAGES:
            raise PlanError(
                f"--resize and --quality are for image files, and {arguments.source!r} is {kind}",
                where=f"{_COMMAND} --resize",
                fix="leave them out, and resize in the dataset or with --map",
            )
        usual = None if arguments.format == "decoded" else 90
        return reencoded(dataset, "data", size=arguments.resize, quality=usual if arguments.quality is None else arguments.quality)
    if kind == TFRECORD:
        raise SourceError(
            f"which features the records of {arguments.source!r} have stands nowhere in the files",
            where=f"{_COMMAND} SOURCE",
            fix=write_a_module("read_tfrecord", arguments.source, ", features={...}")
            + "; or give --map a function that takes {'record': bytes}",
        )
    return dataset


def _open(source: str, root: str | None) -> tuple[Any, str]:
    found = open_records(source) if not Path(source).is_dir() else None
    if found is not None:
        if root is not None:
            raise PlanError(f"--root={root!r} is for list files", where=f"{_COMMAND} --root", fix="leave --root out")
        return found
    module, colon, name = source.partition(":")
    if not (colon and name and module.replace(".", "").isidentifier()) or Path(source).exists():
        return open_plain(source, root, "pack")
    return _dataset_at(source, _COMMAND), "a dataset"


def _dataset_at(reference: str, command: str) -> Dataset:
    """Import a dataset, or a function that returns one, by "module:name".

    Raises:
        PlanError: there is no such module or name.
        SourceError: it is something else.
    """
    found = imported(reference, f"{command} {reference}")
    if not isinstance(found, Dataset) and callable(found):
        found = found()
    if not isinstance(found, Dataset):
        raise SourceError(
            f"{reference!r} is a {type(found).__name__}, not a dataset",
            where=f"{command} SOURCE",
            fix="name a ps.Dataset, or a function that returns one",
        )
    return found


def _predict(source: str, found: Estimate, kind: str, screen: Screen) -> None:
    screen.line(f"penstock pack {source}: a look at {found.num_sampled:,} elements of {kind}; nothing was written")
    if found.count is None or found.size is None or found.num_shards is None:
        screen.fact("would write", f"about {size_words(round(found.mean_bytes))} an element; how many a stream has shows at its end")
    else:
        screen.fact("would write", f"{found.count:,} elements, about {size_words(found.size)} in {_files(found.num_shards)}")
    for line in found.fields:
        screen.fact("field", line)


def _report(source: str, manifest: Manifest, kind: str, screen: Screen) -> None:
    screen.line(f"penstock pack {source} ({kind})")
    if manifest.was_there:
        screen.fact("written", "nothing: all was there already, and was verified")
    what = f"{len(manifest):,} elements, {size_words(manifest.num_bytes)} in {_files(len(manifest.shards))}, {manifest.format}"
    screen.fact("there" if manifest.was_there else "written", what)
    screen.fact("manifest", manifest.path)
    for column in manifest.columns:
        screen.fact("field", column.words())
    if manifest.skipped:
        screen.fact("left out", f"{len(manifest.skipped):,} elements, listed in the manifest:")
        for lost in manifest.skipped[:_MOST_SHOWN]:
            screen.point(f"{lost['where'] or lost['key']}: {lost['error']}: {lost['text'].splitlines()[0] if lost['text'] else ''}")


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def look(arguments: argparse.Namespace) -> int:
    """Print what is in files of records. Returns 0, or 1 when something is wrong.

    Raises:
        PenstockError, OSError: there is nothing to look at.
    """
    reports = inspect(arguments.path, verify=arguments.verify, num_samples=max(0, arguments.samples))
    screen = Screen(sys.stdout, name_columns=14)
    for report in reports:
        _print(report, screen)
    problems = sum(len(report.problems) for report in reports)
    nothing = "Nothing wrong was found" + ("" if arguments.verify else " in what was looked at; --verify looks at everything")
    screen.heading(f"{problems} things are wrong" if problems > 1 else "1 thing is wrong" if problems else nothing)
    return 1 if problems else 0


def _print(report: Inspection, screen: Screen) -> None:
    screen.heading(f"{_escaped(report.path)} ({report.kind}, {size_words(report.size)})")
    screen.fact(report.noun.partition(" ")[0], f"{report.count:,}{report.noun.removeprefix(report.noun.partition(' ')[0])}")
    if report.lengths is not None and len(report.lengths):
        least, median, most = np.quantile(report.lengths, (0, 0.5, 1))
        screen.fact("bytes of one", f"{least:,.0f} at least, {median:,.0f} in the median, {most:,.0f} at most")
    for line in report.fields:
        screen.fact("field", line)
    for number, sample in enumerate(report.samples):
        for name, value in sample.items():
            screen.fact(f"sample {number}", f"{_escaped(name)} = {shown(value)}")
    for line in report.remarks:
        screen.fact("", line)
    for line in report.problems:
        screen.fact("WRONG", _escaped(line))


def numbers(arguments: argparse.Namespace) -> int:
    """Measure, and print what is in the folder. Returns 0.

    Raises:
        PenstockError, OSError, BaseException: as `penstock.dataset.measuring.measure`.
    """
    measured = measure(
        _dataset_at(arguments.source, _MEASURE),
        arguments.dest,
        _columns(arguments),
        num_workers=arguments.num_workers,
        on_error=Skip() if arguments.on_error == "skip" else Raise(),
        progress=True,
        version=arguments.version,
        update=arguments.update,
    )
    screen = Screen(sys.stdout, name_columns=14)
    screen.line(f"{_MEASURE} {arguments.source}")
    for column in measured.columns.values():
        screen.fact("column", f"{column.name}: {len(column):,} {'booleans' if column.is_bool else 'numbers'} in {column.path}")
    if measured.failed is not None:
        screen.fact("left out", f"{measured.num_failed:,} elements, marked in {measured.failed.path}")
    return 0


def _columns(arguments: argparse.Namespace) -> dict[str, Any]:
    """Import the functions, by name of a column.

    Raises:
        PlanError: one is not written as NAME=MODULE:FUNCTION, is given twice, or is not there.
    """
    functions: dict[str, Any] = {}
    for given in ([f"length={arguments.length}"] if arguments.length else []) + arguments.column:
        name, _, reference = given.partition("=")
        if not reference or name in functions:
            raise PlanError(
                f"{given!r} is no column" if not reference else f"column {name!r} is given twice",
                where=f"penstock {arguments.command} --column",
                fix="write a name, an equals sign and MODULE:FUNCTION, each name once: length=mycode:num_tokens",
            )
        functions[name] = imported(reference, f"penstock {arguments.command} --column {given}")
    return functions


def _escaped(text: str) -> str:
    """Return a text with everything escaped that a terminal might act on."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text)
