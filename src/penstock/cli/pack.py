"""`penstock pack`: a source through its operators into shards, once, and what that bought."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock._contracts.policy import Policy, Raise, Skip
from penstock.cli.bench_source import imported, open_plain
from penstock.cli.gain import Gain, measured
from penstock.cli.screen import Screen, seconds
from penstock.dataset import Dataset
from penstock.errors import PlanError, SourceError
from penstock.formats.sizes import size_words
from penstock.observe.stats import available_cpus
from penstock.packing import Manifest, estimate, pack
from penstock.packing.reencode import reencoded

__all__ = ["Settings", "add_arguments", "run", "settings_from"]

_COMMAND = "penstock pack"
_MOST_SHOWN = 5
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to pack, where to and how. `options` are those of `penstock.packing.PackOptions`."""

    source: str
    dest: str
    root: str | None
    function: str | None
    resize: int | None
    quality: int | None
    num_workers: int
    on_error: Policy
    options: dict[str, Any]
    dry_run: bool
    measure: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Write a source, through your preprocessing, to files that need no more work: TFRecord, WebDataset tar or Parquet. The files are the "
        "same for any number of workers; after a kill, the same command goes on."
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a list file of `path label` lines, a folder of images, a quoted glob, .npy/.npz, or module:dataset",
    )
    parser.add_argument("dest", metavar="DEST", help="the folder to write to")
    parser.add_argument("--root", metavar="DIR", help="the folder that the paths of a list file start from (default: the list's own)")
    parser.add_argument("--map", metavar="MODULE:FUNCTION", help="your own function on each element")
    parser.add_argument("--resize", type=int, metavar="N", help="decode images, resize the shorter side to N pixels, encode as JPEG")
    parser.add_argument("--quality", type=int, metavar="Q", help="of these JPEGs, 1 to 100 (default: 90)")
    parser.add_argument("--format", choices=("tfrecord", "tar", "parquet"), default="tfrecord", help="default: %(default)s")
    parser.add_argument("--compression", metavar="NAME", help="GZIP for tfrecord, zstd for parquet (default: none)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--shards", type=int, metavar="N", help="number of files")
    size.add_argument("--shard-bytes", type=_size, metavar="SIZE", help="size of a file to aim at, such as 256MB (default)")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="write the elements in a random order")
    parser.add_argument("--variants", type=int, default=1, metavar="K", help="write each element K times, with other random numbers")
    parser.add_argument("--name", default="data", help="what the names of the files begin with (default: %(default)s)")
    parser.add_argument("--num-workers", type=_workers, default="auto", metavar="N", help='processes, or "auto" (default): one per CPU')
    parser.add_argument("--on-error", choices=("raise", "skip"), default="raise", help="what becomes of a bad element (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="predict size and time from a sample, write nothing")
    parser.add_argument("--no-measure", action="store_true", help="do not measure, at the end, what packing bought")


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the settings that these command-line arguments ask for."""
    given = arguments.compression
    compression = None if given in (None, "none") else {"gzip": "GZIP"}.get(given.lower(), given)
    return Settings(
        source=arguments.source,
        dest=arguments.dest,
        root=arguments.root,
        function=arguments.map,
        resize=arguments.resize,
        quality=arguments.quality,
        num_workers=available_cpus() if arguments.num_workers == "auto" else arguments.num_workers,
        on_error=Skip() if arguments.on_error == "skip" else Raise(),
        options={
            "format": arguments.format,
            "compression": compression,
            "num_shards": arguments.shards,
            "shard_bytes": arguments.shard_bytes,
            "shuffle": arguments.shuffle,
            "variants": arguments.variants,
            "name": arguments.name,
        },
        dry_run=arguments.dry_run,
        measure=not arguments.no_measure,
    )


def run(settings: Settings) -> int:
    """Pack, or predict; print what came of it. Returns 0.

    Raises:
        PenstockError, OSError: as `penstock.packing.pack`.
    """
    dataset, kind = opened(settings)
    screen = Screen(sys.stdout, name_columns=14)
    executor: Literal["processes", "threads"] = "threads" if kind == "arrays" else "processes"
    if settings.dry_run:
        _predict(settings, dataset, kind, screen)
        return 0
    manifest = pack(
        dataset,
        settings.dest,
        num_workers=settings.num_workers,
        executor=executor,
        on_error=settings.on_error,
        progress=True,
        **settings.options,
    )
    _report(settings, manifest, kind, screen)
    if settings.measure:
        _bought(measured(dataset, manifest, settings.num_workers, settings.on_error), screen)
    return 0


def opened(settings: Settings) -> tuple[Any, str]:
    """Open SOURCE with its operators, and say in a few words what it is.

    Raises:
        SourceError, PlanError, MissingExtra: it cannot be opened, or arguments do not go together.
    """
    dataset, kind = _open(settings.source, settings.root)
    images = settings.resize is not None or settings.quality is not None
    if settings.function is not None and images:
        raise PlanError(
            "--map and --resize are two ways to make the elements", where=f"{_COMMAND} --map", fix="resize in your function, or leave it out"
        )
    if settings.function is not None:
        function = imported(settings.function, f"{_COMMAND} --map {settings.function}")
        if not callable(function):
            raise PlanError(
                f"{settings.function!r} is no function", where=f"{_COMMAND} --map", fix="name a function that takes and returns an element"
            )
        return dataset.map(function), kind
    if images:
        if kind in ("arrays", "a dataset"):
            raise PlanError(
                f"--resize and --quality are for image files, and {settings.source!r} is {kind}",
                where=f"{_COMMAND} --resize",
                fix="leave them out, and resize in the dataset or with --map",
            )
        return reencoded(dataset, "data", size=settings.resize, quality=settings.quality or 90), kind
    return dataset, kind


def _open(source: str, root: str | None) -> tuple[Any, str]:
    module, colon, name = source.partition(":")
    if not (colon and name and module.replace(".", "").isidentifier()) or Path(source).exists():
        dataset, kind = open_plain(source, root, "pack")
        return dataset, kind
    found = imported(source, f"{_COMMAND} {source}")
    if not isinstance(found, Dataset) and callable(found):
        found = found()
    if not isinstance(found, Dataset):
        raise SourceError(
            f"{source!r} is a {type(found).__name__}, not a dataset", where=f"{_COMMAND} SOURCE", fix="name a ps.Dataset, or a function that returns one"
        )
    return found, "a dataset"


def _predict(settings: Settings, dataset: Any, kind: str, screen: Screen) -> None:
    found = estimate(dataset, num_workers=settings.num_workers, on_error=settings.on_error, **settings.options)
    screen.line(f"penstock pack {settings.source}: a look at {found.num_sampled:,} elements of {kind}; nothing was written")
    screen.fact("would write", f"{found.count:,} elements, about {size_words(found.size)} in {_files(found.num_shards)}")
    screen.fact("would take", f"about {seconds(found.seconds)} with {_workers_words(settings.num_workers)}")
    for line in found.fields:
        screen.fact("field", line)


def _report(settings: Settings, manifest: Manifest, kind: str, screen: Screen) -> None:
    screen.line(f"penstock pack {settings.source} ({kind})")
    screen.fact("written", f"{len(manifest):,} elements, {size_words(manifest.num_bytes)} in {_files(len(manifest.shards))}, {manifest.format}")
    screen.fact("manifest", manifest.path)
    for column in manifest.columns:
        screen.fact("field", column.words())
    if manifest.skipped:
        screen.fact("left out", f"{len(manifest.skipped):,} elements, listed in the manifest:")
        for lost in manifest.skipped[:_MOST_SHOWN]:
            screen.point(f"{lost['where'] or lost['key']}: {lost['error']}: {lost['text'].splitlines()[0] if lost['text'] else ''}")


def _bought(gain: Gain, screen: Screen) -> None:
    screen.heading("What this bought, measured on this machine")
    screen.fact("raw source", f"{gain.raw_per_s:,.0f} samples/s, through the same operators, with {_workers_words(gain.num_workers, 'threads')}")
    screen.fact("packed", f"{gain.packed_per_s:,.0f} samples/s: {gain.times:,.1f} times as many")
    if gain.pays_after_epochs is None:
        screen.point("Packing did not make this source faster to read here: its elements cost little to make.")
    else:
        screen.point(
            f"Of what an epoch over the raw source takes, {100 / gain.times:.2g} % are left. Both were read from files in the "
            "system's cache as far as it held them; from a cold disk both are slower."
        )


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _workers_words(count: int, noun: str = "workers") -> str:
    return f"1 {noun[:-1]}" if count == 1 else f"{count} {noun}"


def _size(text: str) -> int:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(number) :].strip().lower()
    try:
        size = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 256MB")
    return size


def _workers(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is neither "auto" nor a whole number >= 1')
    return int(text)
