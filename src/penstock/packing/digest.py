"""What functions and values are, as a hash that is the same in every run: so that a rerun knows whether it would write the same."""

from __future__ import annotations

import dis
import hashlib
import marshal
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

__all__ = ["Untold", "digest_of"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Marshalled by form 0, which has no references, so that equal values give equal bytes.
_PLAIN_SET = frozenset(_PLAIN)
_SYSTEM = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OWN = __name__.partition(".")[0]
_OF_CLASS = (FunctionType, staticmethod, classmethod, property)


class Untold(ValueError):
    """Nothing tells whether a value is the same in another run. Internal."""


def digest_of(*values: Any) -> str:
    """Return the hash of some values: of their types and contents, and of functions their code and all that it uses.

    Of a function that is: code, defaults, the values that it carries, and the functions, classes and values of its module that it names,
    and so on, also in other modules. What is installed (the standard library, other packages) counts by its name.

    Raises:
        Untold: one holds something that has no content to speak of, such as an open file.
    """
    digest = _Digest()
    try:
        for value in values:
            digest.add(value)
    except RecursionError:
        raise Untold("it goes too deep") from None
    return digest.hex()


class _Digest:
    """Goes through values and hashes what it finds."""

    def __init__(self) -> None:
        self._state = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # an object that was freed would leave its id to another

    def hex(self) -> str:
        """Return the hash so far."""
        return self._state.hexdigest()

    def add(self, value: Any) -> None:
        """Hash one value.

        Raises:
            Untold: it cannot be done.
        """
        kind = type(value)
        if kind in _PLAIN:
            self._put(kind.__name__, _plain(value))
        elif kind is dict and _PLAIN_SET.issuperset(map(type, value)) and _PLAIN_SET.issuperset(map(type, value.values())):
            self._put("plain dict", marshal.dumps([*value, *value.values()], 0))
        elif kind is tuple:
            self._add_all("tuple", value)
        elif kind in (set, frozenset):
            self._add_all(kind.__name__, sorted(digest_of(part) for part in value))
        elif kind is CodeType:
            self._add_code(value)
        elif isinstance(value, ModuleType):
            self._put("module", value.__name__.encode())
        elif id(value) in self._seen:
            self._put("seen", str(self._seen[id(value)]).encode())
        else:
            self._seen[id(value)] = len(self._kept)
            self._kept.append(value)
            self._add_object(value)

    def _put(self, tag: str, data: Any = b"") -> None:
        self._state.update(f"{tag} {len(data)}\n".encode())
        self._state.update(data)

    def _add_all(self, tag: str, values: Any) -> None:
        self._state.update(f"{tag} of {len(values)}\n".encode())
        if _PLAIN_SET.issuperset(map(type, values)):
            self._put("plain", marshal.dumps(list(values), 0))
            return
        for part in values:
            self.add(part)

    def _add_object(self, value: Any) -> None:
        kind = type(value)
        if kind is list:
            self._add_all("list", value)
        elif kind is dict:
            self._add_all("keys", list(value))
            self._add_all("values", list(value.values()))
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._put(f"array {value.dtype.str if value.dtype.fields is None else repr(value.dtype)} {value.shape}")
            if value.nbytes:
                self._put("data", np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        elif isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif kind is MethodType:
            self._add_all("method", (value.__self__, value.__func__))
        elif kind is BuiltinFunctionType:
            self._add_all("builtin", (value.__module__, value.__qualname__, value.__self__))
        elif isinstance(value, partial):
            self._add_all("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, (staticmethod, classmethod)) or hasattr(value, "cache_parameters"):
            self._add_all(kind.__name__, (value.__wrapped__,))
        elif kind is property:
            self._add_all("property", (value.fget, value.fset))
        else:
            self._add_reduced(value)

    def _add_function(self, function: FunctionType) -> None:
        module, code = function.__module__, function.__code__
        self._put("function", function.__qualname__.encode())
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        self.add(tuple(_content(cell) for cell in function.__closure__ or ()))
        if _is_installed(module, code.co_filename):
            self._put("of", str(module).encode())
            return
        self.add(code)
        names = set(_names(code))
        for name in sorted(names - set(_stored(code))):
            if name in function.__globals__:
                self._put("global", name.encode())
                self._add_used(function.__globals__[name], sorted(names))

    def _add_used(self, value: Any, names: list[str]) -> None:
        """Hash what a function finds by a name of its module; of a module, what it may find in it."""
        if isinstance(value, ModuleType) and not _is_installed(value.__name__, getattr(value, "__file__", None) or ""):
            for name in names:
                if name in vars(value) and id(vars(value)[name]) not in self._seen:
                    self._put("attribute", name.encode())
                    self._add_used(vars(value)[name], [])
            return
        try:
            self.add(value)
        except Untold:  # a lock or a logger of the module: it is no part of what a function returns
            self._put("opaque", type(value).__qualname__.encode())

    def _add_code(self, code: CodeType) -> None:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_exceptiontable)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._add_all("code", (code.co_code, shape, names, code.co_consts))

    def _add_class(self, kind: type) -> None:
        self._put("class", f"{kind.__module__}.{kind.__qualname__}".encode() if _is_named(kind) else kind.__qualname__.encode())
        if _is_named(kind):
            return
        self.add(kind.__bases__)
        for name, value in vars(kind).items():
            if isinstance(value, _OF_CLASS) or not name.startswith("__"):
                self._put("attribute", name.encode())
                self._add_used(value, [])

    def _add_reduced(self, value: Any) -> None:
        """Hash what a pickle of an object would be made of."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:
            raise Untold(f"{type(value).__name__}: {error}") from error
        self.add(type(value))
        if isinstance(reduced, str):
            self._put("named", reduced.encode())
            return
        maker, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        self._add_all("object", (maker, arguments, state, *(list(part) if isinstance(part, Iterator) else part for part in (items, pairs))))


def _plain(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else repr(value).encode()


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _is_installed(module: str | None, file: str) -> bool:
    return not file or file.startswith(("<frozen", *_SYSTEM)) or (module or "").partition(".")[0] == _OWN


def _is_named(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "__main__":
        return False
    return _is_installed(kind.__module__, getattr(module, "__file__", None) or "")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _names(code: CodeType) -> Iterator[str]:
    for one in _codes(code):
        yield from one.co_names


def _stored(code: CodeType) -> Iterator[str]:
    """Give the names that a function assigns to in its module: they are its memory, not what it is."""
    for one in _codes(code):
        yield from (str(step.argval) for step in dis.get_instructions(one) if step.opname == "STORE_GLOBAL")
