"""Modules: which are the user's own, what they are made of, and which of them code imports when it runs."""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

__all__ = ["Untold", "codes_in", "is_installed", "is_own", "modules_imported", "source_of"]

_SYSTEM = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_PENSTOCK = __name__.partition(".")[0]


class Untold(ValueError):
    """Nothing tells whether a value is the same in another run. Internal."""


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


def modules_imported(code: CodeType, namespace: dict[str, Any]) -> Iterator[ModuleType]:
    """Give the user's modules that code imports when it runs, imported; what is installed, or not there, is left out.

    Args:
        code: of a function.
        namespace: its globals, for relative names.

    Raises:
        Untold: one fails while it is imported.
    """
    for one in codes_in(code):
        steps = [step for step in dis.get_instructions(one) if step.opname != "EXTENDED_ARG"]
        for number, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                level, names = (before.argval for before in steps[number - 2 : number])
                yield from _imported(str(step.argval), namespace, names, level)


def _imported(name: str, namespace: dict[str, Any], names: Any, level: Any) -> Iterator[ModuleType]:
    try:
        if not level and not _is_there_and_own(name.partition(".")[0]):
            return
        module = importlib.__import__(name, namespace, None, names or (), level)
    except ImportError:  # the function will say it, when it is called, or does without
        return
    except Exception as error:
        raise Untold(f"import {name}: {type(error).__name__}: {error}") from error
    if isinstance(module, ModuleType) and is_own(module):
        yield module


def _is_there_and_own(name: str) -> bool:
    """Tell it of a module without a dot, which is not imported for it."""
    if name in sys.modules:
        return is_own(sys.modules[name])
    found = importlib.util.find_spec(name)
    return found is not None and not all(
        is_installed(name, file) for file in (found.origin or "", *(found.submodule_search_locations or ()))
    )
