"""Elements that are whole files: those that patterns find, alone or in pairs, images in one sub-folder per class, those of a list file."""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.transform import Scratch
from penstock._storage.listing import find_local, patterns_of, refuse_url
from penstock._system.failing import add_note
from penstock._system.text import shown
from penstock.errors import ListFileError, PlanError, SourceError
from penstock.kernels.library import Ints, Uint8s
from penstock.sources.numbers import KnownNumber
from penstock.sources.paths import PADDING, PathTable, common_folder, join_paths, pack_paths, read_file


class WholeFiles(ABC):
    """Elements {"path": str, "data": bytes}, with "label" where there are labels. A subclass says where they come from, in `describe`."""

    def __init__(self, table: PathTable, labels: Ints | None, field: str = "data") -> None:
        """Serve the files of `table`, their bytes as `field`, with `labels` (int64 [n]) or without."""
        self._table, self._tables = table, {field: table}
        self._labels = labels
        self._field = field

    def _more(self, index: int) -> dict[str, Any]:
        """Return the fields of an element beside path and bytes."""
        return {} if self._labels is None else {"label": self._labels.item(index)}

    @abstractmethod
    def describe(self, index: int) -> str:
        """Name an element's file and where it was named."""

    def __len__(self) -> int:
        return len(self._table)

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        before = len(rows)
        try:
            self._table.read_into(indices, rows, self._field, self._more)
        except (OSError, SourceError) as error:
            add_note(error, f"reading {self.describe(indices[len(rows) - before])}")
            raise

    @property
    def transient_field(self) -> str:
        """Return the name of the bytes' field."""
        return self._field

    def read_transient(self, index: int, scratch: Scratch, ahead: Ints) -> dict[str, Any]:
        """Return one element, its bytes in working memory; where reads wait for a disk, have the system begin with those `ahead`.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        try:
            data = self._table.read_transient(index, scratch, ahead)
            return {"path": self._table.path(index), self._field: data, **self._more(index)}
        except (OSError, SourceError) as error:
            add_note(error, f"reading {self.describe(index)}")
            raise

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file, field by field."""
        return chain.from_iterable(table.all_full() for table in self._tables.values())

    def known_numbers(self) -> dict[str, KnownNumber]:
        """Return "num_bytes": the size of an element's files, asked for at the first use and kept: what goes by it must not change."""
        return {"num_bytes": KnownNumber("num_bytes", self, self._num_bytes)}

    @cached_property
    def _sizes(self) -> Ints:
        sizes: Ints = np.fromiter(map(os.path.getsize, WholeFiles.input_files(self)), np.int64).reshape(-1, len(self)).sum(0)
        return sizes

    def _num_bytes(self, indices: Ints) -> Ints:
        return self._sizes[indices]


# -- files that a pattern finds ---------------------------------------------------------------------------------------------------

_Pattern = str | os.PathLike[str]


class FilesSource(WholeFiles):
    """Serve {"path": str, "data": bytes} of every file that a pattern finds, sorted by the bytes of the path.

    Folders are left out, and a file that several patterns find comes once. Names that begin with a dot need a pattern that does so too.
    Relative patterns are resolved against the working directory of now; the paths stay as the pattern gives them.

    Args:
        pattern: glob pattern, or several; `**` stands for any number of folders.

    Raises:
        PlanError: no pattern was given, or one that is not a path.
        SourceError: a pattern finds no file.
    """

    def __init__(self, pattern: _Pattern | Sequence[_Pattern]) -> None:
        self._patterns = patterns_of(pattern, "read_files")
        super().__init__(pack_paths(find_local(self._patterns, "read_files"), os.path.join(os.getcwd(), "")), None)

    def describe(self, index: int) -> str:
        """Name the file."""
        return f"file {shown(self._table.path(index))}"

    def by_file(self) -> tuple[Ints, dict[str, Any]]:
        """Return 0..n: each file is one element, and depends on nothing else."""
        return np.arange(len(self) + 1), {"kind": "files"}

    def fingerprint(self) -> dict[str, Any]:
        """Return count, a check sum of all paths below their common folder, and one of both ends of up to 64 files."""
        first, last = (os.fsencode(self._table.path(index)) for index in (0, len(self) - 1))
        return self._table.fingerprint("files", skip=common_folder(first, last))

    def label(self) -> str:
        """Return the call with the number of files."""
        return f"read_files({', '.join(map(shown, self._patterns))}, {len(self)} elements)"


class PairsSource(WholeFiles):
    """Serve {"path": str, field: bytes, ...} of files that belong together, one for each field, sorted by the bytes of the first path.

    Args:
        patterns: two fields or more, with a pattern or several each, as `FilesSource` takes them.
        missing: what to do with a file without its partners: "error", or "drop" to leave it out.

    Raises:
        PlanError: fewer than two fields, one that is named "path", another `missing`, or a pattern that is none.
        SourceError: a pattern finds no file, two files of a field have the same name, or a file has no partner.
    """

    def __init__(self, patterns: Mapping[str, _Pattern | Sequence[_Pattern]], missing: str) -> None:
        if len(patterns) < 2 or "path" in patterns or missing not in ("error", "drop"):
            raise PlanError(
                f"the fields are {', '.join(patterns) or 'none'}, and missing is {missing!r}",
                where="read_pairs",
                fix='name two fields or more, none of them "path", each with a pattern; missing is "error" or "drop"',
            )
        pairs, self._num_left_out = _find_pairs(patterns, missing)
        base = os.path.join(os.getcwd(), "")
        tables = {field: join_paths(paths, base) for field, paths in zip(patterns, zip(*pairs, strict=True), strict=True)}
        first = next(iter(patterns))
        super().__init__(tables[first], None, first)
        self._tables = tables

    def _more(self, index: int) -> dict[str, Any]:
        return {field: read_file(table.full(table.path(index))) for field, table in self._tables.items() if field != self._field}

    def describe(self, index: int) -> str:
        """Name the files."""
        return f"files {', '.join(shown(table.path(index)) for table in self._tables.values())}"

    def fingerprint(self) -> dict[str, Any]:
        """Return that of `FilesSource` for each field."""
        prints: dict[str, Any] = {"kind": "pairs"}
        for field, table in self._tables.items():
            paths = sorted(os.fsencode(table.path(index)) for index in range(len(table)))
            prints[field] = table.fingerprint("files", skip=common_folder(paths[0], paths[-1]))
        return prints

    def label(self) -> str:
        """Return the call with the numbers of elements and of files that were left out."""
        left_out = f", {self._num_left_out} files left out" if self._num_left_out else ""
        return f"read_pairs({', '.join(self._tables)}, {len(self)} elements{left_out})"


def _find_pairs(patterns: Mapping[str, _Pattern | Sequence[_Pattern]], missing: str) -> tuple[list[tuple[bytes, ...]], int]:
    """Return the paths that belong together, a tuple for each pair, in order; and the number of files without a partner."""
    found = [_by_wildcards(patterns_of(given, "read_pairs")) for given in patterns.values()]
    names = set.intersection(*map(set, found))
    lone = [path for paths in found for name, path in paths.items() if name not in names]
    if not names or (lone and missing == "error"):
        raise SourceError(
            f"{len(lone)} files have no partner: {', '.join(map(shown, lone[:3]))}{', ...' * (len(lone) > 3)}",
            where=f"read_pairs, {len(names)} pairs",
            fix='files belong together where the wildcards stand for the same text; missing="drop" leaves out those without a partner',
        )
    return sorted(tuple(os.fsencode(paths[name]) for paths in found) for name in names), len(lone)


_WILDCARDS = ((r"\\\*\\\*/", "(?:(.*)/)?"), (r"\\\*\\\*", "(.*)"), (r"\\[*?]|\\\[.*?\\\]|\\\{.*?\\\}", "([^/]*)"))
"""What `re.escape` makes of the wildcards of a pattern, and a group for the text for which each stands."""


def _by_wildcards(patterns: Sequence[str]) -> dict[str, str]:
    """Return the files that patterns find, by the text for which the wildcards stand. The suffix of the last dot is no part of it."""
    import re  # as in `find_local`

    found = dict[str, str]()
    for pattern in patterns:
        expression = re.escape(_stem(pattern))
        for wildcard, group in _WILDCARDS:
            expression = re.sub(wildcard, group, expression)
        for path in find_local(pattern, "read_pairs"):
            match = re.fullmatch(expression, _stem(path), re.DOTALL)
            name = "/".join(filter(None, match.groups())) if match else _stem(path)
            if found.setdefault(name, path) != path:
                raise SourceError(
                    f"{shown(found[name])} and {shown(path)} have the same name, {shown(name)}",
                    where=f"read_pairs, {shown(pattern)}",
                    fix="give a pattern that finds one of them",
                )
    return found


def _stem(path: str) -> str:
    return os.path.splitext(os.path.normpath(path))[0].replace(os.sep, "/")


def missing_path(path: str, call: str, kind: str) -> SourceError:
    """Return the error of a path at which there is nothing, or something else than a folder."""
    where = f"{call}, in the working directory {shown(os.getcwd())}"
    found = "a file" if os.path.exists(path) else "not there"
    return SourceError(f"{kind} {shown(path)} is {found}", where=where, fix="check the path and the working directory")


# -- images in one sub-folder per class -------------------------------------------------------------------------------------------

_EXTENSIONS = frozenset((".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".jp2", ".j2k"))


class ImageFolderSource(WholeFiles):
    """Serve {"path": str, "data": bytes, "label": int} of every image in the sub-folders of a folder.

    The sub-folders are the classes, numbered in the order of the bytes of their names; images may lie deeper in them. Hidden files and
    folders are left out, and links to folders below a class are not entered. Elements come sorted by the bytes of their path, relative to
    the folder.

    Args:
        folder: the folder above the class folders.

    Attributes:
        folder: as given.

    Raises:
        OSError: the folder cannot be read.
        PlanError: a URL in place of a path.
        SourceError: there is no such folder, no class folder in it, or one without an image.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        if not os.path.exists(self.folder):
            refuse_url(self.folder, "read_images")
        base = os.path.join(os.path.abspath(self.folder), "")
        self._ignored = Counter[str]()
        try:
            names = sorted(self._class_folders(base), key=os.fsencode)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise missing_path(self.folder, "read_images", "folder") from error
        if not names:
            raise SourceError(
                f"no sub-folder in {shown(self.folder)}",
                where=f"read_images({shown(self.folder)}), which is {shown(base)}",
                fix="put the images of each class into a sub-folder with its name, or use read_files or read_list",
            )
        self.class_names = names
        found: list[str] = []
        for name in names:
            before = len(found)
            found.extend(self._images(base, name))
            if len(found) == before:
                raise SourceError(
                    f"class folder {shown(name)} holds no image",
                    where=f"read_images({shown(self.folder)}), which is {shown(base)}",
                    fix=f"remove the folder, or put files ending in {', '.join(sorted(_EXTENSIONS))} into it",
                )
        table = pack_paths(found, base)
        numbers = {name: number for number, name in enumerate(names)}
        labels = (numbers[table.path(index).split(os.sep, 1)[0]] for index in range(len(table)))
        super().__init__(table, np.fromiter(labels, np.int64, len(table)))

    @property
    def notice(self) -> str:
        """What was left out, by suffix; empty where nothing was."""
        counts = ", ".join(f"{count} {suffix or 'without a suffix'}" for suffix, count in self._ignored.most_common())
        return f"read_images({shown(self.folder)}) left out files that are no images by their suffix: {counts}" if counts else ""

    def _entries(self, folder: str) -> Iterator[tuple[os.DirEntry[str], str]]:
        """Yield what lies in a folder and is not hidden, with its suffix."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    yield entry, os.path.splitext(entry.name)[1].lower()

    def _class_folders(self, base: str) -> Iterator[str]:
        for entry, suffix in self._entries(base):
            if entry.is_dir():
                yield entry.name
            else:
                self._ignored[suffix] += 1

    def _images(self, base: str, relative: str) -> Iterator[str]:
        for entry, suffix in self._entries(base + relative):
            path = os.path.join(relative, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield from self._images(base, path)
            elif suffix in _EXTENSIONS:
                yield path
            else:
                self._ignored[suffix] += 1

    def describe(self, index: int) -> str:
        """Name the file and its folder."""
        return f"image {shown(self._table.path(index))} of {shown(self.folder)}"

    def fingerprint(self) -> dict[str, Any]:
        """Return class names' and paths' check sums, the count, and sizes and a check sum of both ends of up to 64 files."""
        return {**self._table.fingerprint("images"), "num_classes": len(self.class_names)}

    def label(self) -> str:
        """Return the call with the numbers of images, classes and ignored files."""
        ignored = f", {self._ignored.total()} other files ignored" if self._ignored else ""
        return f"read_images({shown(self.folder)}, {len(self)} elements, {len(self.class_names)} classes{ignored})"


_POLICIES = ("keep", "drop", "error")


class ListSource(WholeFiles):
    """Serve {"path": str, "data": bytes, "label": int} of every line "path label" of a list file.

    UTF-8 with or without a byte order mark, LF or CRLF. Blank lines and lines that begin with '#' are skipped; spaces and tabs
    around a line are not part of it. The label is what stands behind the last tab, or behind the last space where there is no tab; the
    path may hold spaces. The file is read once, now: it takes its own size and 24 bytes per line in memory.

    Args:
        list_file: the list.
        root: folder that relative paths stand in, and that no path may leave; None is the list's own folder, without that check.
        label: False for a list of paths alone.
        duplicates: what to do with a path that stands in the list more than once: "keep" it, "drop" all but the first, or "error".

    Raises:
        OSError: the list cannot be read.
        ListFileError: a line is wrong, or there is none.
        SourceError: the list is not there or no regular file, or `root` is no folder.
        PlanError: `duplicates` is not one of the three, or a URL in place of a path.
    """

    def __init__(
        self,
        list_file: str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        *,
        label: bool = True,
        num_classes: int | None = None,
        duplicates: str = "keep",
    ) -> None:
        if duplicates not in _POLICIES:
            raise PlanError(f"duplicates={duplicates!r} is not known", where="read_list", fix=f"give one of {', '.join(_POLICIES)}")
        self._name = os.fspath(list_file)
        full_name = os.path.abspath(self._name)
        for path in (self._name, os.fspath(root or "")):
            if not os.path.exists(path):
                refuse_url(path, "read_list")
        base = os.path.dirname(full_name) if root is None else os.path.abspath(os.fspath(root))
        if not os.path.isdir(base):
            raise SourceError(
                f"root {shown(base)} is not a folder", where=f"read_list({shown(self._name)})", fix="give the folder that holds the files"
            )
        base = os.path.join(base, "")
        try:
            blob = read_file(full_name) + PADDING
        except (FileNotFoundError, NotADirectoryError) as error:
            raise missing_path(self._name, "read_list", "file") from error
        except (OSError, SourceError) as error:
            error.add_note(f"reading the list of read_list({shown(self._name)})")
            raise
        lines = parse_list(blob, name=self._name, has_label=label, root=base if root is not None else None)
        super().__init__(PathTable(blob=blob, starts=lines.starts, ends=lines.ends, base=base), lines.labels if label else None)
        if num_classes is not None:
            self._check_labels(num_classes)
        self._duplicates: int | None = None
        if duplicates != "keep":
            self._settle_duplicates(duplicates)

    def _check_labels(self, num_classes: int) -> None:
        labels = self._labels if self._labels is not None else np.empty(0, np.int64)
        wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
        if wrong.size:
            index = int(wrong[0])
            raise ListFileError(
                f"line {self.line_number(index)}: label {labels[index]} is outside 0..{num_classes - 1}",
                where=f"line {self.line_number(index)} of {shown(self._name)}; {len(wrong)} such lines in all",
                fix=f"correct the labels, or num_classes={num_classes}",
            )

    def _settle_duplicates(self, policy: str) -> None:
        again = _repeated(self._table)
        self._duplicates = 0
        if not again.size:
            return
        if policy == "error":
            index = int(again[0])
            raise ListFileError(
                f"line {self.line_number(index)}: path {shown(self._table.path(index))} stands in the list a second time",
                where=f"line {self.line_number(index)} of {shown(self._name)}; {len(again)} such lines in all",
                fix='remove the line, or give duplicates="keep" or duplicates="drop"',
            )
        keep = np.ones(len(self._table), bool)
        keep[again] = False
        table = self._table
        self._table = PathTable(blob=table.blob, starts=table.starts[keep], ends=table.ends[keep], base=table.base)
        self._tables = {self._field: self._table}
        self._labels = self._labels[keep] if self._labels is not None else None

    @property
    def num_duplicates(self) -> int:
        """Count the elements whose path stood in the list before; found on first use, about 0.3 s per million lines."""
        if self._duplicates is None:
            self._duplicates = len(_repeated(self._table))
        return self._duplicates

    def line_number(self, index: int) -> int:
        """Return the line of element `index`, counted from 1 over all lines of the file."""
        return self._table.blob.count(b"\n", 0, int(self._table.starts[index])) + 1

    def describe(self, index: int) -> str:
        """Name line, list and path."""
        return f"line {self.line_number(index)} of {shown(self._name)} ({shown(self._table.path(index))})"

    def fingerprint(self) -> dict[str, Any]:
        """Return count, check sums of all paths and labels, and sizes and a check sum of both ends of up to 64 files."""
        record = self._table.fingerprint("list")
        if self._labels is not None:
            record["labels_crc32"] = zlib.crc32(self._labels.astype("<i8", copy=False).tobytes())
        return record

    def label(self) -> str:
        """Return the call with the numbers of lines and of repeated paths."""
        repeated = f", {self.num_duplicates} duplicates" if self.num_duplicates else ""
        return f"read_list({shown(self._name)}, {len(self)} elements{repeated})"


def _repeated(table: PathTable) -> Ints:
    """Return the elements whose path an earlier element has, in order."""
    hashes = table.hashes()
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    return np.sort(order[1:][ordered[1:] == ordered[:-1]])


# -- the text of a list -----------------------------------------------------------------------------------------------------------

_CHUNK_BYTES = 4 << 20
_MAX_JUDGED = 10_000
_BOM = b"\xef\xbb\xbf"
_WHITE = b" \t\r"

_TAB, _SLASH, _DOT, _HASH, _PLUS, _MINUS, _ZERO = 9, 47, 46, 35, 43, 45, 48
_IS_WHITE = np.zeros(256, bool)
_IS_WHITE[list(_WHITE)] = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParsedList:
    """The places of the paths in the file's bytes, int64 [n] each, and the labels (zeros for a list without labels)."""

    starts: Ints
    ends: Ints
    labels: Ints


@dataclass(slots=True)
class _Problem:
    """The first line that is wrong, and how many there are."""

    count: int = 0
    offset: int = 0
    what: str = ""
    fix: str = ""


class _BadLine(Exception):
    """A line is wrong; args are (what, fix)."""


def parse_list(blob: bytes, *, name: str, has_label: bool, root: str | None) -> ParsedList:
    """Parse a list file.

    Args:
        blob: the file's bytes and PADDING behind them.
        name: the file, for messages.
        has_label: whether lines are "path label" or just "path".
        root: folder with a separator at its end that no path may leave, or None.

    Raises:
        ListFileError: a line is wrong (the first one is named, and how many there are), or there is no line.
    """
    data: Uint8s = np.frombuffer(blob, np.uint8)
    begin = len(_BOM) if blob.startswith(_BOM) else 0
    parts: list[tuple[Ints, Ints, Ints]] = []
    problem = _Problem()
    while begin < len(blob):
        stop = blob.find(b"\n", min(begin + _CHUNK_BYTES, len(blob) - 1)) + 1 or len(blob)
        parts.append(_parse_chunk(blob, data, begin, stop, has_label, root, problem))
        begin = stop
        if problem.count >= _MAX_JUDGED:
            break
    if problem.count:
        raise _list_error(blob, name, problem)
    columns = zip(*parts, strict=True)
    starts, ends, labels = (np.concatenate(column) for column in columns)
    if not len(starts):
        raise ListFileError(
            f"the list {shown(name)} holds no line with a path",
            where=f"read_list({shown(name)}), {len(blob) - len(PADDING)} bytes, nothing but blank lines and comments",
            fix="write one `path label` per line" if has_label else "write one path per line",
        )
    return ParsedList(starts=starts, ends=ends, labels=labels)


def _parse_chunk(
    blob: bytes, data: Uint8s, begin: int, stop: int, has_label: bool, root: str | None, problem: _Problem
) -> tuple[Ints, Ints, Ints]:
    """Parse the whole lines of blob[begin:stop]."""
    view = data[begin:stop]
    newlines = np.flatnonzero(view == 10) + begin
    starts = np.concatenate(([begin], newlines[:-1] + 1)) if len(newlines) else np.array([begin])
    ends = newlines if len(newlines) else np.array([stop])
    starts, ends = _strip(data, starts, ends, left=True), _strip(data, starts, ends, left=False)
    used = np.flatnonzero(starts < ends)
    used = used[data[starts[used]] != _HASH]
    starts, ends = starts[used], ends[used]
    if has_label:
        path_ends, labels, odd = _split_labels(data, starts, ends)
    else:
        path_ends, labels, odd = ends.copy(), np.zeros(len(starts), np.int64), np.zeros(len(starts), bool)
    odd |= _suspects(blob, view, begin, starts, ends, path_ends, root)
    for index in np.flatnonzero(odd).tolist():
        try:
            start, end, label = _judge(blob, int(starts[index]), has_label, root)
            starts[index], path_ends[index], labels[index] = start, end, label
        except _BadLine as bad:
            if not problem.count:
                problem.offset = int(starts[index])
                problem.what, problem.fix = bad.args
            problem.count += 1
            if problem.count >= _MAX_JUDGED:
                break
    return starts, path_ends, labels


def _strip(data: Uint8s, starts: Ints, ends: Ints, *, left: bool) -> Ints:
    """Return the starts of lines behind white space, or their ends before it. One round per column of it, on the lines that have some."""
    begins, stops = starts.copy(), ends.copy()
    moved, step, before = (begins, 1, 0) if left else (stops, -1, -1)
    active = np.flatnonzero(begins < stops)
    while active.size:
        active = active[_IS_WHITE[data[moved[active] + before]]]
        moved[active] += step
        active = active[begins[active] < stops[active]]
    return moved


def _split_labels(data: Uint8s, starts: Ints, ends: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Read each line's number from its end backwards; what does not fit white space, sign, up to 18 digits is odd."""
    labels = np.zeros(len(starts), np.int64)
    places = ends - 1
    active = np.arange(len(starts))
    scale = 1
    for _ in range(18):
        digits = data[places[active]] - np.uint8(_ZERO)
        is_digit = digits < 10
        active = active[is_digit]
        if not active.size:
            break
        labels[active] += digits[is_digit].astype(np.int64) * scale
        places[active] -= 1
        active = active[places[active] >= starts[active]]
        scale *= 10
    odd = places == ends - 1
    before = data[places]
    signed = np.flatnonzero((before == _MINUS) | (before == _PLUS))
    if signed.size:
        negative = signed[before[signed] == _MINUS]
        labels[negative] = -labels[negative]
        places[signed] -= 1
    odd |= places <= starts
    odd |= ~_IS_WHITE[data[places]]
    return _strip(data, starts, places, left=False), labels, odd


def _suspects(blob: bytes, view: Uint8s, begin: int, starts: Ints, ends: Ints, path_ends: Ints, root: str | None) -> NDArray[np.bool_]:
    """Mark the lines that need a closer look: NUL, a tab that is not the separator, and, below a root, '..' and absolute paths."""
    odd = np.zeros(len(starts), bool)
    if not len(starts):
        return odd

    def lines_of(places: Ints) -> Ints:
        return np.maximum(np.searchsorted(starts, places, side="right") - 1, 0)

    tabs = np.flatnonzero(view == _TAB) + begin
    if tabs.size:
        lines = lines_of(tabs)
        odd[lines[(tabs < path_ends[lines]) | (tabs >= ends[lines])]] = True
    nuls = np.flatnonzero(view == 0) + begin
    odd[lines_of(nuls)] = True
    if root is not None:
        dots = np.flatnonzero((view[:-1] == _DOT) & (view[1:] == _DOT)) + begin
        odd[lines_of(dots)] = True
        folder = os.fsencode(root)
        absolute = np.flatnonzero(view[starts - begin] == _SLASH)
        if absolute.size:
            inside = [blob.startswith(folder, start) for start in starts[absolute].tolist()]
            odd[absolute[~np.array(inside)]] = True
    return odd


def _judge(blob: bytes, offset: int, has_label: bool, root: str | None) -> tuple[int, int, int]:
    """Parse one line the slow way: return start and end of its path and its label.

    Raises:
        _BadLine: with what is wrong and how to mend it.
    """
    begin = blob.rfind(b"\n", 0, offset) + 1
    line = blob[begin : blob.find(b"\n", offset)]
    if b"\0" in line:
        raise _BadLine("a NUL byte", "save the list as UTF-8 text (UTF-16 and binary files hold NUL bytes)")
    if begin == 0 and line.startswith(_BOM):
        line, begin = line[len(_BOM) :], len(_BOM)
    path, label = _columns(line) if has_label else (line.strip(_WHITE), 0)
    if b"\t" in path:
        columns = path.count(b"\t") + 1 + has_label
        raise _BadLine(f"{columns} columns between tabs", f"keep {1 + has_label}; a path in a list cannot hold a tab")
    if root is not None:
        _check_inside(path, root)
    start = begin + line.index(path)
    return start, start + len(path), label


def _columns(line: bytes) -> tuple[bytes, int]:
    """Split a line at its last tab, or without one at its last space."""
    fix = "write `path label`, with a space or tab between"
    stripped = line.strip(_WHITE)
    head, separator, tail = stripped.rpartition(b"\t") if b"\t" in stripped else stripped.rpartition(b" ")
    path, tail = head.strip(_WHITE), tail.strip(_WHITE)
    if not separator or (b"\t" not in stripped and b"\t" in line[len(line) - len(line.lstrip(_WHITE)) :]):
        if line[:1] in (b" ", b"\t") and stripped.isdigit():
            raise _BadLine("the path is empty", fix)
        raise _BadLine("no label", fix + "; for a list of paths alone give label=False")
    digits = tail[1:] if tail[:1] in (b"+", b"-") else tail
    if not digits.isdigit():
        raise _BadLine(f"label {shown(tail)} is not an integer", "number the classes 0, 1, 2, ...")
    if len(digits.lstrip(b"0")) > 19 or not -(2**63) <= int(tail) < 2**63:
        raise _BadLine(f"label {shown(tail)} does not fit into int64", "number the classes 0, 1, 2, ...")
    return path, int(tail)


def _check_inside(path: bytes, root: str) -> None:
    folder = os.fsencode(root)
    if path.startswith(folder) and b".." not in path:
        return
    full = os.path.normpath(os.path.join(folder, path))
    if not full.startswith(folder):
        raise _BadLine(f"path {shown(path)} is outside root {shown(root)}", "move the file below root, or give another root")


def _list_error(blob: bytes, name: str, problem: _Problem) -> ListFileError:
    number = blob.count(b"\n", 0, problem.offset) + 1
    begin = blob.rfind(b"\n", 0, problem.offset) + 1
    line = blob[begin : blob.find(b"\n", problem.offset)].removeprefix(_BOM).removesuffix(b"\r")
    more = "at least " if problem.count >= _MAX_JUDGED else ""
    return ListFileError(
        f"line {number}: {problem.what}",
        where=f"line {number} of {shown(name)}: {shown(line)}; {more}{problem.count} bad lines in all",
        fix=problem.fix,
    )
