"""`penstock pack`: a source through its operators into shards, once."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock._contracts.failing import add_note, notes_of
from penstock._contracts.memory import available_cpus
from penstock._contracts.policy import Policy, Raise, Skip
from penstock.cli.bench_source import TFRECORD, imported, open_plain, open_records, write_a_module
from penstock.cli.screen import Screen
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError, SourceError
from penstock.formats.sizes import size_words
from penstock.packing import Manifest, estimate, pack
from penstock.packing.reencode import reencoded

_COMMAND = "penstock pack"
_MOST_SHOWN = 5
_ELEMENT = ", element "
"""Stands in the note of an error that one element had."""
_OF_IMAGES = ("a list of images", "a folder of images", "image files")


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
            "name": arguments.name,
        },
        dry_run=arguments.dry_run,
    )


def run(settings: Settings) -> int:
    """Pack, or predict; print what came of it. Returns 0.

    Raises:
        PenstockError, OSError: as `penstock.packing.pack`.
    """
    source, kind = _open(settings.source, settings.root)
    dataset = _with_operators(settings, source, kind)
    screen = Screen(sys.stdout, name_columns=14)
    executor: Literal["processes", "threads"] = "threads" if kind == "arrays" else "processes"
    if settings.dry_run:
        _predict(settings, dataset, kind, screen)
        return 0
    try:
        manifest = pack(
            dataset,
            settings.dest,
            num_workers=settings.num_workers,
            executor=executor,
            on_error=settings.on_error,
            progress=True,
            **settings.options,
        )
    except Exception as error:
        if isinstance(settings.on_error, Raise) and any(_ELEMENT in note for note in notes_of(error)):
            add_note(error, "penstock: --on-error skip leaves such elements out, and lists them in the manifest; finished shards are kept")
        raise
    _report(settings, manifest, kind, screen)
    return 0


def _encodes(settings: Settings) -> bool:
    return settings.resize is not None or settings.quality is not None


def _with_operators(settings: Settings, dataset: Any, kind: str) -> Any:
    """Return the source with the operators that the settings ask for.

    Raises:
        SourceError, PlanError, MissingExtra: arguments do not go together, or with the source.
    """
    images = _encodes(settings)
    if settings.function is not None and images:
        raise PlanError(
            "--map and --resize are two ways to make the elements",
            where=f"{_COMMAND} --map",
            fix="resize in your function, or leave it out",
        )
    if settings.function is not None:
        function = imported(settings.function, f"{_COMMAND} --map {settings.function}")
        if not callable(function):
            raise PlanError(
                f"{settings.function!r} is no function", where=f"{_COMMAND} --map", fix="name a function that takes and returns an element"
            )
        return dataset.map(function)
    if images:
        if kind not in _OF_IMAGES:
            raise PlanError(
                f"--resize and --quality are for image files, and {settings.source!r} is {kind}",
                where=f"{_COMMAND} --resize",
                fix="leave them out, and resize in the dataset or with --map",
            )
        return reencoded(dataset, "data", size=settings.resize, quality=90 if settings.quality is None else settings.quality)
    if kind == TFRECORD:
        raise SourceError(
            f"which features the records of {settings.source!r} have stands nowhere in the files",
            where=f"{_COMMAND} SOURCE",
            fix=write_a_module("read_tfrecord", settings.source, ", features={...}")
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
        dataset, kind = open_plain(source, root, "pack")
        return dataset, kind
    found = imported(source, f"{_COMMAND} {source}")
    if not isinstance(found, Dataset) and callable(found):
        found = found()
    if not isinstance(found, Dataset):
        raise SourceError(
            f"{source!r} is a {type(found).__name__}, not a dataset",
            where=f"{_COMMAND} SOURCE",
            fix="name a ps.Dataset, or a function that returns one",
        )
    return found, "a dataset"


def _predict(settings: Settings, dataset: Any, kind: str, screen: Screen) -> None:
    found = estimate(dataset, on_error=settings.on_error, **settings.options)
    screen.line(f"penstock pack {settings.source}: a look at {found.num_sampled:,} elements of {kind}; nothing was written")
    if found.count is None or found.size is None or found.num_shards is None:
        screen.fact("would write", f"about {size_words(round(found.mean_bytes))} an element; how many a stream has shows at its end")
    else:
        screen.fact("would write", f"{found.count:,} elements, about {size_words(found.size)} in {_files(found.num_shards)}")
    for line in found.fields:
        screen.fact("field", line)


def _report(settings: Settings, manifest: Manifest, kind: str, screen: Screen) -> None:
    screen.line(f"penstock pack {settings.source} ({kind})")
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
