"""`penstock pack`: a source through its operators into shards, once, and what that bought in samples per second of a training loop."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock import image
from penstock._contracts.failing import add_note, notes_of
from penstock._contracts.memory import available_cpus
from penstock._contracts.policy import Policy, Raise, Skip
from penstock.cli.bench_source import TFRECORD, imported, open_plain, open_records, write_a_module
from penstock.cli.screen import Screen, seconds
from penstock.dataset.builder import Dataset
from penstock.errors import PlanError, SourceError, SpecError
from penstock.formats.sizes import size_words
from penstock.packing import Manifest, estimate, pack, read_packed
from penstock.packing.reencode import reencoded
from penstock.packing.sampling import has_positions

_SECONDS = 2.0
_LEAST_SECONDS = 0.5
_BATCH_SIZE = 32
_LEAST_BATCHES = 8
"""In a pass. A batch of 32 elements that take 0.4 s each would be a long wait: of a small dataset a batch is an eighth at most."""

_SIDE = 224
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Samples per second, both in shuffled batches and with the same number of threads, and what was done to each sample."""

    raw_per_s: float
    packed_per_s: float
    num_workers: int
    batch_size: int = _BATCH_SIZE
    raw_words: str = "through the same operators"
    packed_words: str = "read"

    @property
    def times(self) -> float:
        """Return how many times as fast the packed data are."""
        return self.packed_per_s / self.raw_per_s

    @property
    def pays_after_epochs(self) -> float | None:
        """Return after how many epochs the time of packing, one epoch over the raw source, is won back; None for never."""
        return None if self.times <= 1 else 1 / (1 - 1 / self.times)


def measured(dataset: Any, manifest: Manifest, num_workers: int, on_error: Policy, resized: tuple[Any, int | None] | None = None) -> Gain:
    """Read both for a few seconds as a training loop would: shuffled, in batches, over and over.

    A shuffle is over all elements where these have positions, else over a buffer of two batches, which is filled before the measurement.

    Args:
        dataset: what was packed.
        manifest: of the packed data.
        num_workers: threads for each.
        on_error: the policy for each.
        resized: where images were encoded again, the source without that, and the size of the shorter side or None. Batches of pixels of
            one size are taken of both, as a training loop needs them: the central square, or without a size the image resized to 224x224.

    Raises:
        PenstockError: the packed data cannot be read.
    """
    batch_size = max(1, min(_BATCH_SIZE, len(manifest) // _LEAST_BATCHES))
    raw, packed, words = dataset, read_packed(manifest.path), {}
    raw_steps: list[Any] = []
    packed_steps: list[Any] = []
    if resized is not None:
        raw, size = resized
        alike = image.resize("data", (_SIDE, _SIDE)) if size is None else image.center_crop("data", size)
        packed_steps = [image.decode("data"), alike]
        raw_steps = packed_steps if size is None else [image.decode("data"), image.resize("data", size), alike]
        words = {
            "raw_words": f"decoded, resized to {_SIDE}x{_SIDE}" if size is None else "decoded, resized and cropped",
            "packed_words": f"read, decoded, resized to {_SIDE}x{_SIDE}" if size is None else "read, decoded and cropped",
        }
    shuffled = [_with(_shuffled(raw, batch_size), raw_steps), _with(_shuffled(packed, batch_size), packed_steps)]

    def rates(batched: Callable[[Any], Any]) -> list[float]:
        return [_rate(batched(one.repeat()), len(manifest), batch_size, num_workers, on_error) for one in shuffled]

    try:
        raw_per_s, packed_per_s = rates(lambda one: one.batch(batch_size))
    except SpecError:  # lengths vary
        raw_per_s, packed_per_s = rates(lambda one: one.padded_batch(batch_size))
    return Gain(raw_per_s=raw_per_s, packed_per_s=packed_per_s, num_workers=num_workers, batch_size=batch_size, **words)


def _shuffled(dataset: Any, batch_size: int) -> Any:
    try:
        return dataset.shuffle(seed=_SEED)
    except PlanError:  # no positions
        return dataset.shuffle(2 * batch_size, seed=_SEED)


def _with(dataset: Any, steps: list[Any]) -> Any:
    for step in steps:
        dataset = dataset.map(step)
    return dataset


def _rate(batches: Any, num_elements: int, batch_size: int, num_workers: int, on_error: Policy) -> float:
    """Return the samples per second of a feed at work, behind a first pass, or two seconds of it, that is not measured.

    Measured is a whole pass of two seconds at most, and so many passes over a small dataset as make half a second; but one batch at least.
    """
    with batches.feed(num_workers=num_workers, on_error=on_error) as feed:
        taken = iter(feed)
        _count(taken, num_elements // batch_size, 0.0)
        begun_s = time.perf_counter()
        count = _count(taken, num_elements // batch_size, _LEAST_SECONDS)
        return count * batch_size / max(1e-9, time.perf_counter() - begun_s)


def _count(batches: Iterator[Any], least: int, least_s: float) -> int:
    """Take so many batches at least, for so long at least, but not for more than two seconds, and return how many they were."""
    begun_s, count = time.perf_counter(), 0
    for _ in batches:
        count += 1
        taken_s = time.perf_counter() - begun_s
        if taken_s >= _SECONDS or (count >= least and taken_s >= least_s):
            break
    return count


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
    measure: bool
    trace: str | None


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
        trace=arguments.trace,
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
            trace=settings.trace,
            **settings.options,
        )
    except Exception as error:
        if isinstance(settings.on_error, Raise) and any(_ELEMENT in note for note in notes_of(error)):
            add_note(error, "penstock: --on-error skip leaves such elements out, and lists them in the manifest; finished shards are kept")
        raise
    _report(settings, manifest, kind, screen)
    if settings.measure and not has_positions(dataset._root):
        screen.point("What this bought was not measured: the source has no positions, and is read once.")
    elif settings.measure:
        resized = (source, settings.resize) if _encodes(settings) else None
        _bought(measured(dataset, manifest, settings.num_workers, settings.on_error, resized), screen)
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
    found = estimate(dataset, num_workers=settings.num_workers, on_error=settings.on_error, **settings.options)
    screen.line(f"penstock pack {settings.source}: a look at {found.num_sampled:,} elements of {kind}; nothing was written")
    if found.count is None or found.size is None or found.num_shards is None or found.seconds is None:
        screen.fact("would write", f"about {size_words(round(found.mean_bytes))} an element; how many a stream has shows at its end")
        screen.fact("would take", f"about {seconds(found.element_s)} an element, in one process")
    else:
        screen.fact("would write", f"{found.count:,} elements, about {size_words(found.size)} in {_files(found.num_shards)}")
        screen.fact("would take", f"about {seconds(found.seconds)} with {_workers_words(settings.num_workers)}, once they have started")
    for line in found.fields:
        screen.fact("field", line)
    if found.num_shards is not None and found.num_shards < settings.num_workers and has_positions(dataset._root):
        screen.point(
            "A shard is written by one process. There are fewer shards than workers, so each process would have several threads, of which "
            f"one at a time runs Python code: if most of the work is such code, give --shards {settings.num_workers} or more."
        )


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


def _bought(gain: Gain, screen: Screen) -> None:
    screen.heading(f"What this bought, measured on this machine as a training loop reads: shuffled, in batches of {gain.batch_size}")
    screen.fact("raw source", f"{gain.raw_per_s:,.0f} samples/s, {gain.raw_words}, with {_workers_words(gain.num_workers, 'threads')}")
    screen.fact("packed", f"{gain.packed_per_s:,.0f} samples/s, {gain.packed_words}: {gain.times:,.1f} times as many")
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
