"""Elements that are whole files: those that patterns find, alone or in pairs, images in one sub-folder per class, those of a list file."""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import RemoteFiles
from penstock._contracts.transform import Scratch
from penstock._storage import Patterns, open_urls
from penstock._storage.listing import Location, find_local, location_of, patterns_of
from penstock._storage.urls import is_url
from penstock._system.failing import add_note
from penstock._system.lazy import dataclass
from penstock._system.text import redacted, shown
from penstock.errors import ListFileError, PlanError, SourceError
from penstock.kernels.library import Ints, Uint8s
from penstock.sources.numbers import KnownNumber
from penstock.sources.paths import PADDING, PathTable, common_folder, join_paths, objects_named, objects_of, pack_paths, read_located


class WholeFiles(ABC):
    """Elements {"path": str, "data": bytes}, with "label" where there are labels. A subclass says where they come from, in `describe`."""

    def __init__(self, table: PathTable, labels: Ints | None, field: str = "data") -> None:
        """Serve the files of `table`, their bytes as `field`, with `labels` (int64 [n]) or without."""
        self._table, self._tables = table, {field: table}
        self._labels = labels
        self._field = field

    def _more_of(self, indices: Sequence[int]) -> Callable[[int], dict[str, Any]]:
        """Return what gives the fields of elements beside path and bytes, of these in their order."""
        return self._more

    def _more(self, index: int) -> dict[str, Any]:
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
            self._table.read_into(indices, rows, self._field, self._more_of(indices))
        except (OSError, SourceError) as error:
            add_note(error, f"reading {self.describe(indices[len(rows) - before])}")
            raise

    @property
    def transient_field(self) -> str:
        """Return the name of the bytes' field."""
        return self._field

    @property
    def rows_at_once(self) -> int:
        """Return how many elements should be asked for at once, at least: some 16 MB of them where the files are far away."""
        return max(table.rows_at_once for table in self._tables.values())

    def read_transient(self, index: int, scratch: Scratch, ahead: Ints) -> dict[str, Any]:
        """Return one element, its bytes in working memory; where reads wait for a disk, have the system begin with those `ahead`.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        try:
            data = self._table.read_transient(index, scratch, ahead)
            return {"path": self._table.path(index), self._field: data, **self._more_of([index])(index)}
        except (OSError, SourceError) as error:
            add_note(error, f"reading {self.describe(index)}")
            raise

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file of this machine, field by field."""
        return chain.from_iterable(table.all_full() for table in self._tables.values())

    def known_numbers(self) -> dict[str, KnownNumber]:
        """Return "num_bytes", the size of an element's files, asked for at the first use and kept: it must not change; and "label"."""
        found = {"num_bytes": KnownNumber("num_bytes", self, self._num_bytes)}
        if self._labels is not None and self._labels.min(initial=0) >= 0:
            found["label"] = KnownNumber("label", self, self._labels.__getitem__)
        return found

    @cached_property
    def _sizes(self) -> Ints:
        return sum((table.sizes() for table in self._tables.values()), np.zeros(len(self), np.int64))

    def _num_bytes(self, indices: Ints) -> Ints:
        return self._sizes[indices]


# -- files that a pattern finds ---------------------------------------------------------------------------------------------------


def find_files(patterns: Patterns, caller: str) -> PathTable:
    """Return the files that patterns and URLs name, sorted by the bytes of the path, or by those of the URL without secrets.

    Raises:
        PlanError, SourceError, StorageError, MissingExtra: as `open_storage`.
    """
    storage = open_urls(patterns, caller)
    if storage is not None:
        return objects_of(storage)
    return join_paths([*map(os.fsencode, find_local(patterns, caller))], os.path.join(os.getcwd(), ""))


class FilesSource(WholeFiles):
    """Serve {"path": str, "data": bytes} of every file that a pattern finds, sorted by the bytes of the path.

    Folders are left out, and a file that several patterns find comes once. Names that begin with a dot need a pattern that does so too.
    Relative patterns are resolved against the working directory of now; the paths stay as the pattern gives them.

    Args:
        pattern: glob pattern or URL, or several; `**` stands for any number of folders.

    Raises:
        PlanError, SourceError, StorageError, MissingExtra: as `find_files`.
    """

    def __init__(self, pattern: Patterns) -> None:
        self._patterns = patterns_of(pattern, "read_files")
        super().__init__(find_files(pattern, "read_files"), None)

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
        return f"read_files({', '.join(map(_plain, self._patterns))}, {len(self)} elements)"


class PairsSource(WholeFiles):
    """Serve {"path": str, field: bytes, ...} of files that belong together, one for each field, sorted by the bytes of the first path.

    Args:
        patterns: two fields or more, with a pattern or several each, as `FilesSource` takes them.
        missing: what to do with a file without its partners: "error", or "drop" to leave it out.

    Raises:
        PlanError: fewer than two fields, one that is named "path", another `missing`, or a pattern that is none.
        SourceError: a pattern finds no file, two files of a field have the same name, or a file has no partner.
        StorageError, MissingExtra: as `find_files`.
    """

    def __init__(self, patterns: Mapping[str, Patterns], missing: str) -> None:
        if len(patterns) < 2 or "path" in patterns or missing not in ("error", "drop"):
            raise PlanError(
                f"the fields are {', '.join(patterns) or 'none'}, and missing is {missing!r}",
                where="read_pairs",
                fix='name two fields or more, none of them "path", each with a pattern; missing is "error" or "drop"',
            )
        tables, self._num_left_out = _find_pairs(patterns, missing)
        first = next(iter(patterns))
        super().__init__(tables[first], None, first)
        self._tables = tables

    @property
    def transient_field(self) -> str:
        """Return the name of the first field; none where objects have to be asked for with their partners, many at a time."""
        return "" if self.rows_at_once > 1 else self._field

    def _more_of(self, indices: Sequence[int]) -> Callable[[int], dict[str, Any]]:
        others = {field: table.each(indices) for field, table in self._tables.items() if field != self._field}
        return lambda index: {field: next(data) for field, data in others.items()}

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


def _find_pairs(patterns: Mapping[str, Patterns], missing: str) -> tuple[dict[str, PathTable], int]:
    """Return the paths that belong together, as a table for each field, in order; and the number of files without a partner."""
    tables = {field: find_files(given, "read_pairs") for field, given in patterns.items()}
    found = [_by_wildcards(patterns_of(given, "read_pairs"), tables[field]) for field, given in patterns.items()]
    names = set.intersection(*map(set, found))
    lone = [
        table.path(at) for table, places in zip(tables.values(), found, strict=True) for name, at in places.items() if name not in names
    ]
    if not names or (lone and missing == "error"):
        raise SourceError(
            f"{len(lone)} files have no partner: {', '.join(map(shown, lone[:3]))}{', ...' * (len(lone) > 3)}",
            where=f"read_pairs, {len(names)} pairs",
            fix='files belong together where the wildcards stand for the same text; missing="drop" leaves out those without a partner',
        )
    pairs = np.array(sorted(tuple(numbers[name] for numbers in found) for name in names)).T
    return {field: table.chosen(chosen) for (field, table), chosen in zip(tables.items(), pairs, strict=True)}, len(lone)


_WILDCARDS = ((r"\\\*\\\*/", "(?:(.*)/)?"), (r"\\\*\\\*", "(.*)"), (r"\\[*?]|\\\[.*?\\\]|\\\{.*?\\\}", "([^/]*)"))
"""What `re.escape` makes of the wildcards of a pattern, and a group for the text for which each stands."""


def _by_wildcards(patterns: Sequence[str], table: PathTable) -> dict[str, int]:
    """Return the files that patterns found, by the text for which the wildcards stand. The suffix of the last dot is no part of it."""
    import re  # as in `find_local`

    expressions = []
    for pattern in patterns:
        expression = re.escape(_stem(pattern))
        for wildcard, group in _WILDCARDS:
            expression = re.sub(wildcard, group, expression)
        expressions.append(re.compile(expression, re.DOTALL))
    found = dict[str, int]()
    for number in range(len(table)):
        stem = _stem(table.path(number))
        match = next(filter(None, (expression.fullmatch(stem) for expression in expressions)), None)
        name = "/".join(filter(None, match.groups())) if match else stem
        if found.setdefault(name, number) != number:
            raise SourceError(
                f"{shown(table.path(found[name]))} and {shown(table.path(number))} have the same name, {shown(name)}",
                where=f"read_pairs, {', '.join(map(_plain, patterns))}",
                fix="give a pattern that finds one of them",
            )
    return found


def _stem(path: str) -> str:
    return os.path.splitext(os.path.normpath(path))[0].replace(os.sep, "/")


def _plain(pattern: str | bytes) -> str:
    """Quote a path for a message, or a URL without its secrets."""
    text = pattern if isinstance(pattern, str) else os.fsdecode(pattern)
    return shown(redacted(text) if "://" in text else text)


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
        folder: the folder above the class folders, or its URL in a bucket.

    Attributes:
        folder: as given, without secrets.

    Raises:
        OSError: the folder cannot be read.
        PlanError: the URL of a web server, which has no listing.
        SourceError: there is no such folder, no class folder in it, or one without an image.
        StorageError, MissingExtra: as `open_storage`.
    """

    def __init__(self, folder: str | os.PathLike[str] | RemoteFiles) -> None:
        location = location_of(folder, "read_images")
        self.folder = location.name
        self._ignored = Counter[str]()
        self._sep = "/" if location.is_url else os.sep
        names, table = self._listed(location) if location.is_url else self._walked(location)
        counts = Counter(table.path(index).split(self._sep, 1)[0] for index in range(len(table)))
        where = f"read_images({shown(self.folder)}), which is {_plain(location.base)}"
        if not names:
            raise SourceError(
                f"no sub-folder in {shown(self.folder)}",
                where=where,
                fix="put the images of each class into a sub-folder with its name, or use read_files or read_list",
            )
        for name in names:
            if not counts[name]:
                raise SourceError(
                    f"class folder {shown(name)} holds no image",
                    where=where,
                    fix=f"remove the folder, or put files ending in {', '.join(sorted(_EXTENSIONS))} into it",
                )
        self.class_names = names
        numbers = {name: number for number, name in enumerate(names)}
        labels = (numbers[table.path(index).split(self._sep, 1)[0]] for index in range(len(table)))
        super().__init__(table, np.fromiter(labels, np.int64, len(table)))

    def _walked(self, location: Location) -> tuple[list[str], PathTable]:
        """Return the class folders, and the images in them."""
        try:
            names = sorted(self._class_folders(location.base), key=os.fsencode)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise missing_path(self.folder, "read_images", "folder") from error
        return names, pack_paths((path for name in names for path in self._images(location.base, name)), location.base)

    def _listed(self, location: Location) -> tuple[list[str], PathTable]:
        """Do the same with one listing of a bucket."""
        from glob import escape

        base = escape(location.base).replace("{", "?")  # braces in the name of a folder are no words to choose from
        storage = open_urls(RemoteFiles(f"{base}**", location.options), "read_images")
        assert storage is not None
        table, images, names = objects_of(storage, len(os.fsencode(location.base))), list[int](), set[str]()
        for index in range(len(table)):
            path = table.path(index)
            suffix = os.path.splitext(path)[1].lower()
            names.update(path.split("/")[:-1][:1])
            if suffix in _EXTENSIONS and "/" in path:
                images.append(index)
            else:
                self._ignored[suffix] += 1
        return sorted(names, key=os.fsencode), table.chosen(images)

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
        list_file: the list, or its URL. Its paths may be URLs, all of them.
        root: folder that relative paths stand in, and that no path may leave; None is the list's own folder, without that check. It may be
            a URL; its options are those of the objects.
        label: False for a list of paths alone.
        duplicates: what to do with a path that stands in the list more than once: "keep" it, "drop" all but the first, or "error".

    Raises:
        OSError: the list cannot be read.
        ListFileError: a line is wrong, or there is none.
        SourceError: the list is not there or no regular file, or `root` is no folder.
        PlanError: `duplicates` is not one of the three, or a URL is none that is read.
        StorageError, MissingExtra: as `open_storage`.
    """

    def __init__(
        self,
        list_file: str | os.PathLike[str] | RemoteFiles,
        root: str | os.PathLike[str] | RemoteFiles | None = None,
        *,
        label: bool = True,
        num_classes: int | None = None,
        duplicates: str = "keep",
    ) -> None:
        if duplicates not in _POLICIES:
            raise PlanError(f"duplicates={duplicates!r} is not known", where="read_list", fix=f"give one of {', '.join(_POLICIES)}")
        file = location_of(list_file, "read_list")
        self._name = file.name
        folder = file.folder() if root is None else location_of(root, "read_list")
        if not folder.is_url and not os.path.isdir(folder.full):
            raise SourceError(
                f"root {shown(folder.full)} is not a folder",
                where=f"read_list({shown(self._name)})",
                fix="give the folder that holds the files",
            )
        try:
            blob = read_located(file, "read_list") + PADDING
        except (FileNotFoundError, NotADirectoryError) as error:
            raise missing_path(self._name, "read_list", "file") from error
        except (OSError, SourceError) as error:
            error.add_note(f"reading the list of read_list({shown(self._name)})")
            raise
        starts, ends, labels = parse_list(blob, name=self._name, has_label=label, root=None if root is None else folder.base)
        self._lines = PathTable(blob=blob, starts=starts, ends=ends, base=folder.base)
        super().__init__(self._lines, labels if label else None)
        if num_classes is not None:
            self._check_labels(num_classes)
        self._duplicates: int | None = None
        if duplicates != "keep":
            self._settle_duplicates(duplicates)
        self._table = self._objects(folder, blob)
        self._tables = {self._field: self._table}

    def _objects(self, folder: Location, blob: bytes) -> PathTable:
        """Return the table of what is read: objects, if the paths are URLs or the folder is one."""
        lines = self._lines
        if not folder.is_url:
            kinds = [is_url(lines.path(index)) for index in range(len(lines))] if b"://" in blob else [False]
            if not any(kinds):
                return lines
            if not all(kinds):
                index = kinds.index(False)
                raise ListFileError(
                    f"line {self.line_number(index)}: path {shown(lines.path(index))} is no URL, and others are",
                    where=f"line {self.line_number(index)} of {shown(self._name)}",
                    fix="give root= a URL, or make one list of each, and join the datasets",
                )
        return objects_named(lines, folder, "read_list")

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
        again = _repeated(self._lines)
        self._duplicates = 0
        if not again.size:
            return
        if policy == "error":
            index = int(again[0])
            raise ListFileError(
                f"line {self.line_number(index)}: path {_plain(self._lines.path(index))} stands in the list a second time",
                where=f"line {self.line_number(index)} of {shown(self._name)}; {len(again)} such lines in all",
                fix='remove the line, or give duplicates="keep" or duplicates="drop"',
            )
        keep = np.ones(len(self._lines), bool)
        keep[again] = False
        self._lines = self._lines.chosen(keep)
        self._labels = self._labels[keep] if self._labels is not None else None

    @property
    def num_duplicates(self) -> int:
        """Count the elements whose path stood in the list before; found on first use, about 0.3 s per million lines."""
        if self._duplicates is None:
            self._duplicates = len(_repeated(self._lines))
        return self._duplicates

    def line_number(self, index: int) -> int:
        """Return the line of element `index`, counted from 1 over all lines of the file."""
        return self._lines.blob.count(b"\n", 0, int(self._lines.starts[index])) + 1

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

_TAB, _SLASH, _DOT, _HASH, _PLUS, _MINUS, _ZERO, _COLON = 9, 47, 46, 35, 43, 45, 48, 58
_IS_WHITE = np.zeros(256, bool)
_IS_WHITE[list(_WHITE)] = True


@dataclass(slots=True)
class _Problem:
    """The first line that is wrong, and how many there are."""

    count: int = 0
    offset: int = 0
    what: str = ""
    fix: str = ""


class _BadLine(Exception):
    """A line is wrong; args are (what, fix)."""


def parse_list(blob: bytes, *, name: str, has_label: bool, root: str | None) -> tuple[Ints, Ints, Ints]:
    """Parse a list file.

    Returns:
        int64 [n] each: where the paths begin and end in the file's bytes, and the labels (zeros for a list without labels).

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
    return starts, ends, labels


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
    """Mark the lines that need a closer look: NUL, a tab that is not the separator, and, below a root, '..', absolute paths and URLs."""
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
        folder, urls = os.fsencode(root), np.flatnonzero((view[:-2] == _COLON) & (view[1:-1] == _SLASH) & (view[2:] == _SLASH)) + begin
        odd[lines_of(urls)] = True
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
    if is_url(root) or is_url(os.fsdecode(path)):
        rest = path.removeprefix(folder)
        is_inside = not (rest.startswith(b"/") or is_url(os.fsdecode(rest)) or b".." in rest.split(b"/"))
    else:
        is_inside = os.path.normpath(os.path.join(folder, path)).startswith(folder)
    if not is_inside:
        raise _BadLine(f"path {_plain(path)} is outside root {_plain(root)}", "move the file below root, or give another root")


def _list_error(blob: bytes, name: str, problem: _Problem) -> ListFileError:
    number = blob.count(b"\n", 0, problem.offset) + 1
    begin = blob.rfind(b"\n", 0, problem.offset) + 1
    line = blob[begin : blob.find(b"\n", problem.offset)].removeprefix(_BOM).removesuffix(b"\r")
    more = "at least " if problem.count >= _MAX_JUDGED else ""
    return ListFileError(
        f"line {number}: {problem.what}",
        where=f"line {number} of {shown(name)}: {_plain(line)}; {more}{problem.count} bad lines in all",
        fix=problem.fix,
    )
