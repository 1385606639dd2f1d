"""What functions and values are, as a hash that is the same in every run: so that a rerun knows whether it would write the same."""

from __future__ import annotations

import copyreg
import dis
import hashlib
import marshal
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from penstock.packing.modules import codes_in, is_installed, is_own, source_of, sources_imported

__all__ = ["Untold", "digest_of"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Marshalled by form 0, which has no references, so that equal values give equal bytes.
_PLAIN_SET = frozenset(_PLAIN)
_OF_CLASS = (FunctionType, staticmethod, classmethod, property)
_NO_CONTENT = (type(threading.Lock()), type(threading.RLock()), threading.local, threading.Condition, threading.Event)
"""What has nothing in it that a function could return."""


class Untold(ValueError):
    """Nothing tells whether a value is the same in another run. Internal."""


def digest_of(*values: Any) -> str:
    """Return the hash of some values: of their types and contents, and of functions their code and all that it uses.

    Of a function that is: code, defaults, the values that it carries, and the functions, classes and values of its module that it names,
    and so on, also in other modules. Of modules that it imports when it runs, and that these import, the source counts. What is installed
    (the standard library, other packages) counts by its name. What has no content, such as an open file, and stands in a module counts by
    the source of that.

    Raises:
        Untold: one holds something that has no content to speak of, such as an open file.
    """
    return _digest(values, None)


def _digest(values: Any, home: str | None) -> str:
    digest = _Digest(home)
    try:
        for value in values:
            digest.add(value)
    except RecursionError:
        raise Untold("it goes too deep") from None
    return digest.hex()


class _Digest:
    """Goes through values and hashes what it finds.

    Args:
        home: the file of the module in which the values stand, "" for a module without one; None for values that a function carries.
    """

    def __init__(self, home: str | None = None) -> None:
        self._home = home
        self._looked_into: set[tuple[int, str]] = set()
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
            self._add_all(kind.__name__, sorted(_digest([part], self._home) for part in value))
        elif kind is CodeType:
            self._add_code(value)
        elif isinstance(value, ModuleType):
            self._add_module(value)
        elif id(value) in self._seen:
            self._put("seen", str(self._seen[id(value)]).encode())
        else:
            self._seen[id(value)] = len(self._kept)
            self._kept.append(value)
            self._add_object(value)

    def _add_module(self, module: ModuleType) -> None:
        self._put("module", module.__name__.encode())
        if is_own(module):
            self._put("source", source_of(getattr(module, "__file__", None)))

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
            if value.__module__ in sys.modules:  # may be compiled of the user's code
                self._add_module(sys.modules[value.__module__])
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
        if is_installed(module, code.co_filename):
            self._put("of", str(module).encode())
            return
        self.add(code)
        names = {name for one in codes_in(code) for name in one.co_names}
        found = function.__globals__
        for name in sorted(names.intersection(found).difference(_stored(code))):
            self._put("global", name.encode())
            self._add_used(found[name], found, names)
        for imported, source in sorted(sources_imported(code, str(found.get("__package__") or "")).items()):
            self._put("imports", imported.encode())
            self._put("source", source)

    def _add_used(self, value: Any, namespace: Mapping[str, Any], names: set[str]) -> None:
        """Hash what a function finds by a name in `namespace`; of a module of the user's, what it may find in it by one of `names`."""
        if isinstance(value, ModuleType) and names and is_own(value):
            for name in sorted(names.intersection(vars(value))):
                if (id(value), name) not in self._looked_into:
                    self._looked_into.add((id(value), name))
                    self._put("attribute", name.encode())
                    self._add_used(vars(value)[name], vars(value), names)
            return
        before, self._home = self._home, str(namespace.get("__file__") or "")
        self.add(value)
        self._home = before

    def _add_code(self, code: CodeType) -> None:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_exceptiontable)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._add_all("code", (code.co_code, shape, names, code.co_consts))

    def _add_class(self, kind: type) -> None:
        self._put("class", f"{kind.__module__}.{kind.__qualname__}".encode() if _is_named(kind) else kind.__qualname__.encode())
        if _is_named(kind):
            return
        self.add(kind.__bases__)
        module = vars(sys.modules.get(kind.__module__, object))
        for name, value in vars(kind).items():
            if isinstance(value, _OF_CLASS) or not name.startswith("__"):
                self._put("attribute", name.encode())
                self._add_used(value, module, set())

    def _add_reduced(self, value: Any) -> None:
        """Hash what a pickle of an object would be made of."""
        try:
            reduced = _reduced(value)
        except Untold:
            if self._home is None:
                raise
            self._put("opaque", type(value).__qualname__.encode())
            self._put("of", b"" if isinstance(value, _NO_CONTENT) else source_of(self._home))
            return
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


def _reduced(value: Any) -> Any:
    told = copyreg.dispatch_table.get(type(value))
    try:
        return value.__reduce_ex__(4) if told is None else told(value)
    except Exception as error:
        raise Untold(f"{type(value).__name__}: {error}") from error


def _is_named(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "__main__":
        return False
    return is_installed(kind.__module__, getattr(module, "__file__", None) or "")


def _stored(code: CodeType) -> Iterator[str]:
    """Give the names that a function assigns to in its module: they are its memory, not what it is."""
    for one in codes_in(code):
        yield from (str(step.argval) for step in dis.get_instructions(one) if step.opname == "STORE_GLOBAL")
