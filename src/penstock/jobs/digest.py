"""Digests that are the same in every run: of values by their content, of functions by their source text and the values that they carry."""

from __future__ import annotations

import copyreg
import hashlib
import marshal
import sys
import sysconfig
from contextlib import suppress
from operator import methodcaller
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from penstock._contracts.element import is_masked

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_INSTALLED = ("<frozen", *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))


class Untold(ValueError):
    """A value has nothing that could be compared in another run, such as an open file. Internal."""


def digest_of(value: Any, *, sources: bool = False) -> str:
    """Return the digest of a value: of types and contents, of objects of what a pickle would save. Shared parts count as copies.

    A function counts by source text, defaults and the values of its closure; what is installed (standard library, packages, Penstock) by
    its name. A class counts by its name, with `sources` by its source text as well.

    Raises:
        Untold: it holds something without content, a function without a source text, or itself.
    """
    try:
        return hashlib.blake2b(_Contents(sources).of(value), digest_size=16).hexdigest()
    except (TypeError, AttributeError, ValueError, OSError, RecursionError) as error:
        raise Untold("it holds itself, or goes too deep" if isinstance(error, RecursionError) else str(error)) from error


class _Contents:
    def __init__(self, sources: bool) -> None:
        self._sources, self._classes = sources, dict[type, bytes]()

    def of(self, value: Any) -> bytes:
        kind = type(value)
        if kind in _PLAIN:
            return marshal.dumps(value, 0)  # form 0 has no references
        if kind in (list, tuple):
            plain = _PLAIN.issuperset(map(type, value))
            return _tagged(f"{kind.__name__} {plain}", marshal.dumps(list(value), 0) if plain else b"".join(map(self.of, value)))
        if kind in (set, frozenset):
            return _tagged(kind.__name__, b"".join(sorted(map(self.of, value))))
        if kind is dict:
            return _tagged("dict", b"".join(sorted(self.of(key) + self.of(child) for key, child in value.items())))
        if is_masked(value):
            return b"masked " + self.of([np.asarray(part) for part in (value.data, np.ma.getmaskarray(value), value.fill_value)])
        if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
            numbers = np.ascontiguousarray(value).reshape(-1)
            return _tagged(f"{kind.__name__} {value.dtype!r} {value.shape}", numbers.view(np.uint8).data if value.nbytes else b"")
        if isinstance(value, (FunctionType, type, ModuleType)):
            return self._named(value)
        if hasattr(value, "__wrapped__"):  # of functools.cache, staticmethod and the like
            return b"wrapped " + self.of([kind, value.__wrapped__])
        made = copyreg.dispatch_table.get(kind, methodcaller("__reduce_ex__", 4))(value)
        call, arguments, state, items, pairs = (*([value.__module__, made] if isinstance(made, str) else made), None, None, None)[:5]
        return b"object " + self.of([call, arguments, state, list(items or ()), dict(pairs or ())])

    def _named(self, value: Any) -> bytes:
        module = getattr(value, "__module__", None) or ""
        name = [type(value).__name__, module, getattr(value, "__qualname__", value.__name__)]
        file = value.__code__.co_filename if isinstance(value, FunctionType) else getattr(sys.modules.get(module), "__file__", None) or ""
        if isinstance(value, ModuleType) or module.partition(".")[0] == "penstock" or file.startswith(_INSTALLED):
            return self.of(name)
        if isinstance(value, FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return self.of([*name, *_text_of(value), value.__defaults__, value.__kwdefaults__, cells])
        if value not in self._classes:
            self._classes[value] = self.of([*name, *_text_of(value), *value.__bases__] if self._sources else name)
        return self._classes[value]


def _tagged(tag: str, data: Any) -> bytes:
    return f"{tag} {len(data)} ".encode() + (bytes(data) if len(data) <= 256 else hashlib.blake2b(data, digest_size=16).digest())


def _text_of(value: Any) -> list[Any]:
    """Return the source text; of a function also the columns of its code, which tell apart two lambdas in one line."""
    import inspect

    if isinstance(value, type):
        with suppress(OSError, TypeError):
            return [inspect.getsource(value)]
        return []  # made by a call, such as that of namedtuple: its name has to do
    places = [place for place in value.__code__.co_positions() if None not in place]
    lines = inspect.findsource(value.__code__)[0][value.__code__.co_firstlineno - 1 : max(place[1] for place in places)]
    return [lines, [place[2:] for place in places]]
