"""Packing a stream: one reader makes its elements in order, and writes one file behind the other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from penstock._contracts.event import ElementLost, Event, Listener
from penstock._contracts.failing import add_note, text_of
from penstock._contracts.policy import Policy, Skip, final
from penstock._plan.facts import length_of
from penstock.dataset import Dataset
from penstock.errors import PackError, PlanError, SourceError, SpecError
from penstock.formats.sizes import size_words
from penstock.packing.columns import Column, columns_of
from penstock.packing.disk import Disk, NoDisk, OutFile
from penstock.packing.encoders import open_encoder
from penstock.packing.folder import Folder, lock_folder
from penstock.packing.manifest import Manifest, found_in, lost_record, read_manifest, record_of, sealed, with_notes
from penstock.packing.options import PackOptions, Watching
from penstock.packing.origin import changed, check_apart, look, origin_of_stream
from penstock.packing.sampling import MOST, Sample, declared_of, encoded_bytes
from penstock.packing.schema import Schema, alike, schema_of
from penstock.packing.splitting import check_ends, check_losses, for_part, policy_of

__all__ = ["StreamPacking"]

_WHERE = "pack()"
_LEFT_FREE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """A file without a name: its path, and its note."""

    path: str
    note: dict[str, Any]


class StreamPacking:
    """A dataset whose elements only reading tells, with all that decides the bytes. Nothing runs before `run` or `sample`.

    It is read by this process, from its beginning, in the threads of one feed. Shards get their names when all are complete, so an
    interrupted run leaves none, and a rerun begins again. A rerun for a finished folder reads the stream, and compares what it would write.
    """

    def __init__(self, dataset: Dataset, options: PackOptions, on_error: Policy | None) -> None:
        """Check.

        Raises:
            PlanError: it has no end; an option is for datasets with positions.
        """
        check_ends(dataset._root)
        if options.shuffle is not None:
            raise PlanError(
                "the input can only be read from its beginning, and shuffle= reads it in any order",
                where="pack(shuffle=...)",
                fix="pack it as it is; what was packed can be shuffled when it is read, or packed again with shuffle=",
            )
        if (options.num_shards or 1) > 1:
            raise PlanError(
                "the input can only be read from its beginning, and how many elements belong to each of several shards shows at its end",
                where=f"pack(num_shards={options.num_shards})",
                fix="give shard_bytes=, or pack what was packed again with num_shards=",
            )
        self.options = options
        self.policy = policy_of(dataset._options, on_error)
        self._dataset = dataset if options.variants == 1 else dataset.repeat(options.variants)
        self._lost: list[dict[str, Any]] = []

    def sample(self) -> Sample:
        """Look at the first elements, 64 at most, in the caller's thread."""
        begun_s = time.perf_counter()
        with self._opened(0, []) as elements:
            first = list(islice(elements, MOST + 1))
        whole, first = len(first) <= MOST, first[:MOST]
        schema, columns = self._columns(first)
        rows = list(self._rows(schema, first))
        num_bytes = encoded_bytes(columns, self.options, rows)
        return Sample(
            schema=schema,
            columns=columns,
            total_bytes=num_bytes if whole else None,
            total_count=len(rows) if whole else None,
            mean_bytes=num_bytes / max(1, len(rows)),
            element_s=(time.perf_counter() - begun_s) / max(1, len(rows)),
            num_sampled=len(first),
        )

    def run(self, dest: str, *, num_workers: int, executor: Any, watching: Watching, disk: Disk) -> Manifest:
        """Pack to a folder; see `pack`."""
        root = self._dataset._root
        check_apart(root, dest)
        inputs = look(root)
        folder, name = Folder(dest, disk), self.options.manifest_name()
        origin, record = origin_of_stream(inputs), record_of(self.options, self.policy, root)
        disk.make_folder(dest)
        lock = lock_folder(dest, shared=False)
        try:
            earlier = found_in(folder, self.options, record, origin)
            if earlier is None:
                folder.prepare(record, self.options.file_names(1), origin)
            elif earlier.missing():
                raise self._other(dest, earlier.missing()[0], "restore that file, or remove what is there and pack the stream again")
            try:
                shards, columns = self._shards(folder.work, disk if earlier is None else NoDisk(), num_workers, watching)
                self._check(shards, changed(root, inputs))
            except BaseException as error:
                if earlier is None:
                    _clear(folder, error)
                raise
            full = self._full(shards, columns)
            if earlier is None:
                folder.give_names([shard.path for shard in shards], [note["name"] for note in full["shards"]])
                folder.write_origin(name, origin)
                folder.write_manifest(name, sealed(full))
            elif earlier.record["sha256"] != sealed(full)["sha256"]:
                what = "the elements of the stream, or what is written of them, have changed"
                raise self._other(dest, what, "give another folder or name=, or remove what is there")
            if folder.is_of(record, origin):
                folder.clear()
            return read_manifest(folder.file(name)) if earlier is None else replace(earlier, was_there=True)
        finally:
            os.close(lock)

    def _other(self, dest: str, what: str, fix: str) -> PackError:
        return PackError(
            f"the folder holds a packed dataset {self.options.name!r} already, and {what}", where=f"{_WHERE} to {dest!r}", fix=fix
        )

    def _shards(self, folder: str, disk: Disk, num_workers: int, watching: Watching) -> tuple[list[_Shard], tuple[Column, ...]]:
        """Read the stream and write it to files without a name."""
        listener = watching.listener("pack")
        with ExitStack() as stack:
            total = length_of(self._dataset._root)
            advance = stack.enter_context(watching.bar("packing", None if total is None else int(total)))
            elements = stack.enter_context(self._opened(num_workers, [] if listener is None else [listener]))
            first = list(islice(elements, MOST))
            schema, columns = self._columns(first)
            rows = self._rows(schema, chain(first, elements))
            if advance is not None:
                rows = _told(rows, advance)
            shards: list[_Shard] = []
            for row in rows:
                if not isinstance(disk, NoDisk):
                    _check_left(folder, sum(shard.note["size"] for shard in shards))
                path = os.path.join(folder, f"{self.options.name}-{len(shards)}.part")
                shards.append(self._shard(OutFile(disk, path), columns, len(shards), chain([row], rows)))
            return shards, columns

    def _shard(self, out: OutFile, columns: Sequence[Column], number: int, rows: Iterator[Sequence[Any]]) -> _Shard:
        """Write a file, up to the size of a shard."""
        most = None if self.options.num_shards == 1 else self.options.aimed_bytes()
        count = 0
        try:
            encoder = open_encoder(self.options.format, columns, self.options.compression, out, number)
            for row in rows:
                encoder.add(row)
                count += 1
                if most is not None and out.size >= most:
                    break
            encoder.finish()
            out.seal()
        except OSError as error:
            add_note(error, f"penstock: writing {out.path!r}; nothing of it stays, as a stream is packed from its beginning")
            raise
        finally:
            out.close()
        return _Shard(path=out.path, note={"count": count, "size": out.size, "sha256": out.sha256, "positions": count, "skipped": []})

    def _full(self, shards: Sequence[_Shard], columns: Sequence[Column]) -> dict[str, Any]:
        """Return the manifest."""
        notes, first = [], 0
        for shard, name in zip(shards, self.options.file_names(len(shards)), strict=True):
            notes.append({**shard.note, "name": name, "first": first})
            first += shard.note["count"]
        counts = {"num_shards": len(shards), "num_positions": first + len(self._lost)}
        return with_notes(record_of(self.options, self.policy, self._dataset._root, columns, counts), notes, self._lost)

    def _check(self, shards: Sequence[_Shard], error: SourceError | None) -> None:
        if error is not None:
            raise error
        check_losses(self.policy, self._lost, sum(shard.note["count"] for shard in shards))

    @contextmanager
    def _opened(self, num_workers: int, listeners: list[Listener]) -> Iterator[Iterator[Any]]:
        """Give the elements; those that the policy leaves out are noted."""
        self._lost = []

        def listen(event: Event) -> None:
            if isinstance(event, ElementLost):
                self._lost.append(lost_record(event))

        given = self._dataset._options
        fixed: dict[str, Any] = {"ordered": True, "quarantine": None, "record": None, "replay": None, "on_error": for_part(self.policy)}
        if given.executor != "inline" and given.num_workers != 0:
            fixed |= {"executor": "threads" if num_workers else "inline", "num_workers": num_workers}
        with self._dataset.feed(listeners=[listen, *listeners], **fixed) as feed:
            feed._warns_when_empty = False
            yield iter(feed)

    def _columns(self, first: Sequence[Any]) -> tuple[Schema, tuple[Column, ...]]:
        """Find the fields from the first elements.

        Raises:
            SourceError: there is no element.
            SpecError: they differ in their fields, or have some that cannot be written; it names the first.
        """
        if not first:
            raise SourceError("no element is left to write", where=_WHERE, fix="look at the filter, and at what on_error leaves out")
        declared, usual = declared_of(self._dataset._root), alike(first)
        taken = usual if self._skips_what_differs() else first
        try:
            schema = schema_of(taken, declared)
        except SpecError:
            if len(usual) < len(first):
                list(self._rows(schema_of(usual, declared), first))
            raise
        return schema, columns_of(schema, self.options.format, schema.values(taken[0]))

    def _skips_what_differs(self) -> bool:
        last = final(self.policy)
        return isinstance(last, Skip) and issubclass(SpecError, last.errors)

    def _rows(self, schema: Schema, elements: Iterable[Any]) -> Iterator[list[Any]]:
        """Give what is written of each element; what does not fit the fields is raised, or left out and noted."""
        for number, element in enumerate(elements):
            try:
                yield schema.values(element)
            except SpecError as error:
                where = f"element {number} of {self._dataset._root.line()}"
                if not self._skips_what_differs():
                    add_note(error, f"penstock: {where}")
                    raise
                record = {"where": where, "stage": "pack", "error": "SpecError", "text": text_of(error)}
                self._lost.append({"key": [[0, number, 0]], **record, "retries": 0})


def _told(rows: Iterator[Any], advance: Any) -> Iterator[Any]:
    for row in rows:
        advance(1)
        yield row


def _clear(folder: Folder, error: BaseException) -> None:
    """Remove unfinished files; an error of that is a note of the error that made it necessary."""
    try:
        folder.clear()
    except OSError as other:
        add_note(error, f"penstock: and then, removing {folder.work!r}: {other}")


def _check_left(folder: str, num_bytes: int) -> None:
    """Stop before the disk is full: a stream without an end would fill it, and others need it too.

    Raises:
        PackError: less than a twentieth of it is free.
    """
    status = os.statvfs(os.path.dirname(folder))
    if status.f_bavail < _LEFT_FREE * status.f_blocks:
        raise PackError(
            f"{size_words(num_bytes)} of a stream were written, and the disk is nearly full: "
            f"{size_words(status.f_bavail * status.f_frsize)} are free",
            where=f"{_WHERE} in {os.path.dirname(folder)!r}",
            fix="make room; if the stream has no end, give it one with take(n)",
        )
