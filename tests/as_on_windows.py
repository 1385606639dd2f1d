"""A program that hides what Windows does not have, says that it is Windows, and then runs pytest or a program, as its arguments tell.

Which names these are mypy's stubs of the standard library tell. Python's own library and what the tests need beside Penstock is imported
before: it has decided by then on which system it is. Penstock is imported behind, and finds none of it. `os.open` refuses folders, and
whatever would be opened as text; files that are open are neither renamed nor removed.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import errno
import importlib
import io
import mmap
import os
import re
import runpy
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
PARTS = ("os", "faulthandler", "mmap", "select", "signal", "socket", "time")
BEFORE = (
    "asyncio", "cloudpickle", "concurrent.futures.process", "concurrent.futures.thread", "ctypes.util", "email.mime.text", "google_crc32c",
    "http.client", "http.server", "importlib.metadata", "logging.handlers", "multiprocessing.connection",
    "multiprocessing.forkserver", "multiprocessing.managers", "multiprocessing.pool", "multiprocessing.popen_fork",
    "multiprocessing.popen_forkserver", "multiprocessing.popen_spawn_posix", "multiprocessing.queues", "multiprocessing.resource_tracker",
    "multiprocessing.shared_memory", "multiprocessing.spawn", "multiprocessing.synchronize", "numpy.ma", "numpy.testing", "obstore", "pdb",
    "platform", "psutil", "pydoc", "pytest", "selectors", "shutil", "socketserver", "sqlite3", "ssl", "statistics", "subprocess", "tarfile",
    "tempfile", "unittest.mock", "urllib.request", "uuid", "webbrowser", "xml.etree.ElementTree", "zipfile", "zoneinfo", "PIL.Image",
    "PIL.ImageDraw", "PIL.ImageOps", "PIL.features", "cv2", "pyarrow.compute", "pyarrow.csv", "pyarrow.dataset", "pyarrow.fs",
    "pyarrow.json", "pyarrow.parquet", "rich.live", "simplejpeg",
)  # fmt: skip
"""Imported before anything is hidden. Some of it need not be installed."""

NO_FOLDERS = ("/proc/", "/sys/", "/dev/shm", "/dev/fd")
_BINARY, _NO_INHERIT = 0x8000, 0x80


def names_on_windows(module: str) -> set[str]:
    """Return the names that a module of the standard library has on Windows, as its stub tells."""
    stubs = Path(next(iter(find_spec("mypy").submodule_search_locations))) / "typeshed/stdlib"  # type: ignore[union-attr, arg-type]
    path = stubs / module / "__init__.pyi" if (stubs / module).is_dir() else stubs / f"{module}.pyi"
    return set(_names(ast.parse(path.read_text()).body))


def _names(body: list[ast.stmt]) -> Iterator[str]:
    space = {"sys": type("Sys", (), {"platform": "win32", "version_info": sys.version_info})}
    for node in body:
        if isinstance(node, ast.If):
            yield from _names(node.body if eval(compile(ast.Expression(node.test), "stub", "eval"), space) else node.orelse)
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module in ("_socket", "_mmap"):
            yield from names_on_windows(node.module)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (name.asname or name.name for name in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(base) or "Flag" in ast.unparse(base) for base in node.bases):
                yield from _names(node.body)
        elif isinstance(node, (ast.AnnAssign, ast.Assign)):
            yield from (ast.unparse(target) for target in ([node.target] if isinstance(node, ast.AnnAssign) else node.targets))


class _Hidden:
    """Finds no module that Windows lacks."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class _Map(mmap.mmap):
    """A map without `flags`, `prot` and `madvise`."""

    def __new__(cls, fileno: int, length: int, tagname: str | None = None, access: int = mmap.ACCESS_DEFAULT, offset: int = 0) -> Any:
        return super().__new__(cls, fileno, length, access=access, offset=offset)

    @property
    def madvise(self) -> Any:
        raise AttributeError("'mmap.mmap' object has no attribute 'madvise'")


def hide() -> list[str]:
    """Take away what Windows does not have, and return the names."""
    for name in BEFORE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Hidden())
    pair, stream = socket.socketpair, socket.SOCK_STREAM
    unix = socket.AF_UNIX
    hidden = list(MODULES)
    for name in PARTS:
        module, there = importlib.import_module(name), names_on_windows(name)
        for gone in [gone for gone in vars(module) if not gone.startswith("_") and gone not in there]:
            if type(getattr(module, gone)) is not type(sys) and gone not in ("st",):
                hidden.append(f"{name}.{gone}")
                delattr(module, gone)
    socket.socketpair = lambda *_: pair(unix, stream)  # type: ignore[assignment]
    selectors.DefaultSelector = subprocess._PopenSelector = selectors.SelectSelector  # type: ignore[attr-defined, misc]
    tempfile._O_TMPFILE_WORKS = shutil._use_fd_functions = False  # type: ignore[attr-defined]
    mmap.mmap = _Map  # type: ignore[misc]
    sys.platform, io._WindowsConsoleIO = "win32", ()  # type: ignore[attr-defined]
    os.O_BINARY, os.O_NOINHERIT = _BINARY, _NO_INHERIT  # type: ignore[attr-defined]
    _guard_files()
    return hidden


def _guard_files() -> None:
    opened = os.open

    def looked_at(path: Any) -> None:
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(NO_FOLDERS):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def open_there(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        looked_at(path)
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if not flags & _BINARY and sys._getframe(1).f_globals["__name__"].startswith("penstock"):
            raise AssertionError(f"{path!r} is opened as text: its line ends would change")
        return opened(path, flags & ~_BINARY & ~_NO_INHERIT, mode, dir_fd=dir_fd)

    def guarded(function: Any) -> Any:
        def call(path: Any = ".", *arguments: Any, **more: Any) -> Any:
            looked_at(path)
            return function(path, *arguments, **more)

        return call

    def unless_open(function: Any) -> Any:
        def call(path: Any, *arguments: Any, **more: Any) -> Any:
            if sys._getframe(1).f_globals["__name__"].startswith("penstock") and os.path.isfile(path) and _is_open(path):
                raise PermissionError(errno.EACCES, "it is open in this process", path)
            return function(path, *arguments, **more)

        return call

    builtins.open = io.open = guarded(builtins.open)
    os.open, os.listdir, os.scandir, os.readlink = open_there, guarded(os.listdir), guarded(os.scandir), guarded(os.readlink)
    os.replace, os.rename, os.unlink, os.remove = (unless_open(one) for one in (os.replace, os.rename, os.unlink, os.remove))


def _is_open(path: Any) -> bool:
    status = os.stat(path)
    for descriptor in range(256):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), status):
                return True
    return False


class Plugin:
    """Leaves out the tests that themselves ask for what is not there: a FIFO, a signal, a cache, or (of Python, here) a process."""

    def __init__(self, hidden: list[str]) -> None:
        names = "|".join(map(re.escape, hidden))
        programs = r"\b(?:pack|python|output_of|growth)\("
        words = "|".join([rf"\b(?:{names}|subprocess|cache_dir)\b", "/proc/", "/dev/fd", "[. ]fork", '"processes"', programs])
        self._hidden = re.compile(words)
        self._of_module: dict[Any, set[str]] = {}

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Deselect them."""
        asking = [item for item in items if self._asks(item)]
        kept = [item for item in items if not self._asks(item)]
        config.hook.pytest_deselected(items=asking)
        items[:] = kept

    def _asks(self, item: Any) -> bool:
        asking = self._of_module.setdefault(item.module, set()) or self._functions(item.module)
        self._of_module[item.module] = asking
        return bool(asking.intersection({item.originalname or item.name, *item.fixturenames}))

    def _functions(self, module: Any) -> set[str]:
        """Name the functions of a module that ask for it, or call one that does."""
        tree = ast.parse(Path(module.__file__).read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
        used = {name: {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} for name, node in functions.items()}
        asking = {"-", *(name for name, node in functions.items() if self._hidden.search(ast.unparse(node).replace("'", '"')))}
        while more := {name for name, names in used.items() if name not in asking and names & asking}:
            asking |= more
        return asking


def main(arguments: list[str]) -> int:
    """Hide, and run `pytest ARGUMENTS...` or a program. `--library=PATH` in front names the C library; without it there is none."""
    hidden = hide()
    if arguments[0].startswith("--library="):
        importlib.import_module("penstock.kernels.library").load_library.__defaults__ = (arguments.pop(0).partition("=")[2],)
    if arguments[0] == "pytest":
        import pytest

        return int(pytest.main(arguments[1:], plugins=[Plugin(hidden)]))
    sys.argv = arguments
    runpy.run_path(arguments[0], {"HIDDEN": hidden}, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
