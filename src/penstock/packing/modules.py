"""Modules: which are the user's own, what they are made of, and which of them code imports when it runs."""

from __future__ import annotations

import dis
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType

__all__ = ["codes_in", "is_installed", "is_own", "source_of", "sources_imported"]

_SYSTEM = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_PENSTOCK = __name__.partition(".")[0]


def is_installed(module: str | None, file: str) -> bool:
    """Tell whether a module of this name and file belongs to the standard library, to an installed package or to Penstock."""
    return not file or file.startswith(("<frozen", *_SYSTEM)) or (module or "").partition(".")[0] == _PENSTOCK


def is_own(module: ModuleType) -> bool:
    """Tell whether a module is the user's; packages without an `__init__.py` have folders and no file."""
    folders = getattr(module, "__path__", None)
    files = [getattr(module, "__file__", None) or "", *(str(folder) for folder in folders or ())]
    return not all(is_installed(module.__name__, file) for file in files)


def source_of(file: str | None) -> bytes:
    """Return what stands in the file of a module; nothing where there is none to read."""
    try:
        with open(file or "", "rb") as opened:
            return opened.read()
    except OSError:
        return b""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Give some code, and that of the functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def sources_imported(code: CodeType, package: str) -> dict[str, bytes]:
    """Return the sources of the user's modules that code imports when it runs, and of those that they import, by name. Imports none.

    Args:
        code: of a function or a module.
        package: where it stands, for relative names.
    """
    found: dict[str, bytes] = {}
    todo = [(code, package)]
    while todo:
        for name in _names_imported(*todo.pop()):
            spec = None if name in found else _spec_of(name)
            if spec is None:
                continue
            found[name] = source_of(spec.origin)
            if found[name] and (spec.origin or "").endswith(".py"):
                own = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
                todo += [(compiled, own) for compiled in _compiled(found[name], name)]
    return found


def _names_imported(code: CodeType, package: str) -> Iterator[str]:
    """Give the full names of what code imports: of `from a import b` also a.b, which may be a module."""
    for one in codes_in(code):
        steps = [step for step in dis.get_instructions(one) if step.opname != "EXTENDED_ARG"]
        for number, step in enumerate(steps):
            if step.opname != "IMPORT_NAME":
                continue
            level, parts = (before.argval for before in steps[number - 2 : number])
            if level and not package:
                continue
            outside = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            name = ".".join([*outside, *([str(step.argval)] if step.argval else [])])
            yield from (".".join(name.split(".")[: end + 1]) for end in range(name.count(".") + 1))
            yield from (f"{name}.{part}" for part in parts or ())


def _spec_of(name: str) -> ModuleSpec | None:
    """Find a module of the user's on the path, without importing what it stands in."""
    folders, spec = None, None
    for end in range(name.count(".") + 1):
        spec = PathFinder.find_spec(".".join(name.split(".")[: end + 1]), folders)
        if spec is None:
            return None
        folders = spec.submodule_search_locations
    assert spec is not None
    files = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return None if all(is_installed(name, file) for file in files) else spec


def _compiled(source: bytes, name: str) -> Iterator[CodeType]:
    try:
        yield compile(source, name, "exec")
    except (SyntaxError, ValueError):  # the function will say it, when it is called, or does without
        return
