"""Which files of this machine patterns name. The one place that looks for files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock._contracts.storage import RemoteFiles, StorageOptions
from penstock._storage.urls import expand, missing_shards, quoted
from penstock._system.failing import attempt, failure_of
from penstock._system.text import redacted, shown
from penstock.errors import PlanError, SourceError

_SIDECAR = ".psidx"
_MAGIC = ("*", "?", "[")


def patterns_of(patterns: Any, caller: str) -> list[str]:
    """Return one or several patterns, or those of `RemoteFiles`, as a list of text.

    Raises:
        PlanError: no pattern, or one that is no path.
    """
    if isinstance(patterns, RemoteFiles):
        patterns = patterns.urls
    given = list(patterns) if isinstance(patterns, (list, tuple)) else [patterns]
    if not given or not all(isinstance(item, (str, os.PathLike)) for item in given):
        raise PlanError(
            f"{redacted(repr(patterns))} is no pattern and no list of patterns", where=caller, fix='give a path such as "images/**/*.jpg"'
        )
    return [path if isinstance(path, str) else os.fsdecode(path) for path in map(os.fspath, given)]


def find_local(patterns: Any, caller: str) -> list[str]:
    """List the files that patterns name, sorted by the bytes of the path; each once.

    A pattern is a path, a glob (`**` stands for any number of folders), or one that `expand` knows. A file whose very name it is comes
    first. Folders, hidden files and indices (NAME.psidx) are not found by globs. Nothing is given to a shell.

    Raises:
        PlanError: no pattern, one that is no path, or one that stands for too many names.
        SourceError: a pattern finds no file, or a glob finds some shards of "-of-00010" and not the others.
    """
    return sorted_paths(path for pattern in patterns_of(patterns, caller) for path in _find(pattern, caller))


def sorted_paths(paths: Iterable[str]) -> list[str]:
    """Sort by bytes, the same on every platform, and drop repeated ones, also in other spellings: `a`, `./a`, `b//a`, the full path.

    Of a file's spellings the first by bytes stays. Links are files of their own, and what leads over `..` is taken as it is written.
    """
    unique = list(set(paths))
    unique.sort(key=None if all(map(str.isascii, unique)) else os.fsencode)
    if not _may_be_repeated(unique):
        return unique
    base, first = os.getcwd(), dict[str, str]()
    for path in unique:
        full = os.path.join(base, path)
        first.setdefault(full if ".." in full else os.path.normpath(full), path)
    return list(first.values())


def _may_be_repeated(paths: list[str]) -> bool:
    """Tell whether two of these may be one file, by a look that costs little for a million."""
    begins = {path[:1] for path in paths}
    mixed = os.sep != "/" or "." in begins or ("/" in begins and len(begins) > 1)
    return mixed or any("//" in path or "/./" in path for path in paths)


def _find(pattern: str, caller: str) -> Iterator[str]:
    if os.path.isfile(pattern):
        yield pattern
        return
    for name in expand(pattern, caller):
        refuse_url(name, caller)
        yield from _find_one(name, caller)


class Location(NamedTuple):
    """A file or folder, whose name is no pattern.

    Attributes:
        name: as it was given, without secrets.
        full: absolute path, or URL.
        is_url: whether it is of a store or web server.
        options: how what is there is read.
    """

    name: str
    full: str
    is_url: bool
    options: StorageOptions

    @property
    def base(self) -> str:
        """Return the folder with a separator at its end."""
        return f"{self.full.rstrip('/')}/" if self.is_url else os.path.join(self.full, "")

    def url_of(self, name: str) -> str:
        """Return the URL of a file in this folder. Web servers get its name quoted, and the query that the folder's URL has."""
        if not self.full.lower().startswith("http"):
            return self.base + name
        path, mark, query = self.full.partition("?")
        return f"{path.rstrip('/')}/{quoted(name)}{mark}{query}"

    def folder(self) -> Location:
        """Return the folder that it is in."""
        head = self.full.partition("?")[0].rpartition("/")[0] if self.is_url else os.path.dirname(self.full)
        return self._replace(name=redacted(head) if self.is_url else head, full=head)


def location_of(given: str | os.PathLike[str] | RemoteFiles, caller: str) -> Location:
    """Return what a path, a URL or `RemoteFiles` of one is. A path that is there is one, whatever it looks like.

    Raises:
        PlanError: it is none of these.
    """
    options: Any = None
    if isinstance(given, RemoteFiles):
        options, (given, *others) = given.options, patterns_of(given, caller)
        if others:
            raise PlanError(f"{len(others) + 1} URLs are given", where=caller, fix="give one file or folder")
    if not isinstance(given, (str, os.PathLike)):
        raise PlanError(f"{given!r:.60} is no path", where=caller, fix="give a str, a pathlib.Path or ps.RemoteFiles")
    name = os.fspath(given)
    is_url = "://" in name and not os.path.exists(name)
    shown_name, full = (redacted(name), name) if is_url else (name, os.path.abspath(name))
    return Location(shown_name, full, is_url, options or StorageOptions())


def refuse_url(name: str, caller: str) -> None:
    """Refuse a URL where a path should be; it may hold a password, which an error for a path would repeat.

    Raises:
        PlanError: it is one.
    """
    if "://" in name:
        raise PlanError(
            f"{shown(redacted(name))} is a URL, which {caller} does not read",
            where=caller,
            fix="give a path of this machine, or copy the file",
        )


def _find_one(pattern: str, caller: str) -> Iterator[str]:
    import fnmatch
    import glob  # 4 ms with re, and only a pattern needs it

    if not any(mark in pattern for mark in _MAGIC):
        found = [pattern] if _is_there(pattern) else []
    else:
        folder, name = os.path.split(pattern)
        if os.sep == "/" and "**" not in pattern and not any(mark in folder for mark in _MAGIC):
            found = _in_folder(folder, name)
        else:
            found = list(_without_folders(path for path in glob.iglob(pattern, recursive=True) if not path.endswith(_SIDECAR)))
        for lacking in missing_shards(found):
            # A glob that would not have found it, such as one for the first half, does not ask for it.
            if fnmatch.fnmatchcase(os.path.basename(lacking), os.path.basename(pattern)):
                raise SourceError(
                    f"shard {shown(lacking)} is missing; {len(found)} files match {shown(pattern)}",
                    where=f"{caller}, in the working directory {shown(os.getcwd())}",
                    fix="get the missing file, or name the files that you want",
                )
    if not found:
        _look_into(pattern, caller)
        is_folder, hint = os.path.isdir(pattern), "check the pattern and the working directory; '**' is needed to look into sub-folders"
        if pattern.startswith("~"):
            hint = "write the home folder out: '~' is not expanded (use os.path.expanduser)"
        raise SourceError(
            f"no file matches {shown(pattern)}{', which is a folder' if is_folder else ''}",
            where=f"{caller}, in the working directory {shown(os.getcwd())}",
            fix=f"write {shown(os.path.join(pattern, '**', '*'))} for all files in it" if is_folder else hint,
        )
    yield from found


def _in_folder(folder: str, pattern: str) -> list[str]:
    """List the files that glob does, without folders and indices: a hundred thousand files in half the time, as the folder is read once."""
    import fnmatch
    import re

    matches, prefix, hidden = re.compile(fnmatch.translate(pattern)).match, os.path.join(folder, ""), pattern.startswith(".")
    try:
        with os.scandir(folder or ".") as entries:
            names = [(entry.name, attempt(entry.is_dir)) for entry in entries if matches(entry.name)]
    except OSError:  # as glob: the caller reports that nothing was found
        return []
    return [prefix + name for name, is_dir in names if not is_dir and (hidden or name[0] != ".") and not name.endswith(_SIDECAR)]


def _without_folders(paths: Iterable[str]) -> Iterator[str]:
    """Leave out folders. Reading each folder once more tells most kinds; asking for each of a million files costs seconds."""
    inside: dict[str, set[str]] = {}
    for path in paths:
        cut = path.rfind("/") + 1 if os.sep == "/" else len(path) - len(os.path.basename(path))
        head, name = path[:cut], path[cut:]
        if head not in inside:
            with os.scandir(head or ".") as entries:
                inside[head] = {entry.name for entry in entries if attempt(entry.is_dir)}  # a link that leads back to itself has no kind
        if name and name not in inside[head]:
            yield path


def _look_into(pattern: str, caller: str) -> None:
    """Raise PermissionError where the folder of a pattern may not be listed."""
    folder, above = pattern, os.path.dirname(pattern)
    while not os.path.isdir(folder) and above != folder:
        folder, above = above or os.curdir, os.path.dirname(above)
    if isinstance(error := failure_of(os.listdir, folder), PermissionError):
        error.add_note(f"looking for the files {shown(pattern)} of {caller}")
        raise error


def _is_there(path: str) -> bool:
    """Tell whether a path leads to something else than a folder, with one call of the system for each of a million shards."""
    try:
        return not stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return os.path.lexists(path)  # a link that leads nowhere: opening it raises
