"""What a job or a function is, as a hash that is the same in every run: which of them a done-list speaks of."""

from __future__ import annotations

import copyreg
import hashlib
import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from penstock._contracts.element import is_masked
from penstock.errors import PlanError

__all__ = ["digest_of", "digest_of_all", "digest_of_function"]

_BYTES = 8


def digest_of(job: Any, number: int) -> str:
    """Return the hash of one job: of types and values, whatever objects share.

    A pickle would not do: it tells two equal texts from one text twice, and a set comes in another order in each process.

    Raises:
        PlanError: the job holds something that has no content to speak of, or holds itself.
    """
    try:
        return _hashed(_Contents().of(job))
    except RecursionError:
        raise _refusal(job, number, "it holds itself, or goes too deep") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise _refusal(job, number, str(error)) from error


def digest_of_function(fn: Callable[..., Any]) -> str | None:
    """Return the hash of what tells a function from others of its name; None for one that is found by its name, and so told by it.

    That are the arguments of a `partial`, `self`, and the attributes of an object; and of a function that its module does not have by its
    name (a lambda, an inner function) the code, the defaults and the values that it has from outside. What has no content to speak of, such
    as a lock, counts by its type.
    """
    return None if _is_named(fn) else _hashed(_Contents(lenient=True).of(fn))


def digest_of_all(digests: Iterable[str]) -> str:
    """Return the hash of a list of jobs, given theirs."""
    return hashlib.blake2b("".join(digests).encode(), digest_size=_BYTES).hexdigest()


def _hashed(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_BYTES).hexdigest()


def _refusal(job: Any, number: int, why: str) -> PlanError:
    return PlanError(
        f"job {number}, a {type(job).__name__}, cannot be told from others in another run: {why}",
        where="parallel_jobs(done=...)",
        fix="give jobs of numbers, texts, paths, arrays and containers of them, and look up the rest in the function",
    )


def _is_named(value: Any) -> bool:
    """Tell whether a class, function or module is what is found by its name."""
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, ModuleType)
    if isinstance(value, FunctionType):
        try:
            return attrgetter(value.__qualname__)(sys.modules[value.__module__]) is value
        except (KeyError, AttributeError):
            return False
    return isinstance(value, type)


class _Contents:
    """Turns values into bytes that are the same in every run.

    Args:
        lenient: what has no content counts by its type, and what holds itself by how far up that is.
    """

    def __init__(self, lenient: bool = False) -> None:
        self._lenient = lenient
        self._above: list[int] = []  # the objects that hold the one in work

    def of(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            TypeError, AttributeError, ValueError, RecursionError: it has no content to speak of.
        """
        kind = type(value)
        if value is None or kind in (bool, int, float, complex):
            return _tagged(kind.__name__, repr(value).encode())
        if kind is str:
            return _tagged("str", value.encode("utf-8", "surrogatepass"))
        if kind in (bytes, bytearray):
            return _tagged(kind.__name__, bytes(value))
        if not self._lenient:
            return self._nested(value)
        if id(value) in self._above:
            return _tagged("above", str(len(self._above) - self._above.index(id(value))).encode())
        self._above.append(id(value))
        try:
            return self._nested(value)
        except (TypeError, AttributeError, ValueError, RecursionError):
            return _tagged("opaque", f"{kind.__module__}.{kind.__qualname__}".encode())
        finally:
            self._above.pop()

    def _nested(self, value: Any) -> bytes:
        kind = type(value)
        if kind in (tuple, list):
            return _tagged(kind.__name__, b"".join(map(self.of, value)))
        if kind in (set, frozenset):
            return _tagged(kind.__name__, b"".join(sorted(map(self.of, value))))
        if kind is dict:
            return _tagged("dict", b"".join(sorted(self.of(key) + self.of(child) for key, child in value.items())))
        if is_masked(value):
            parts = (value.data, np.ma.getmaskarray(value), value.fill_value)
            return _tagged("masked", b"".join(self._array(np.asarray(part)) for part in parts))
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(np.asarray(value))
        if _is_named(value):
            return _tagged("name", f"{value.__module__}.{value.__qualname__}".encode())
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, ModuleType):
            return _tagged("module", value.__name__.encode())
        return self._object(value)

    def _function(self, function: FunctionType) -> bytes:
        code, cells = function.__code__, tuple(cell.cell_contents for cell in function.__closure__ or ())
        name = f"{function.__module__}.{function.__qualname__}".encode()
        return _tagged("function", name + b" " + self._code(code) + self.of((function.__defaults__, function.__kwdefaults__, cells)))

    def _code(self, code: CodeType) -> bytes:
        consts = b"".join(self._code(const) if isinstance(const, CodeType) else self.of(const) for const in code.co_consts)
        return _tagged("code", self.of((code.co_code, code.co_names, code.co_varnames, code.co_flags)) + consts)

    def _array(self, array: Any) -> bytes:
        kind = array.dtype.str if array.dtype.fields is None else repr(array.dtype)
        head = f"{kind} {array.shape}".encode()
        if array.dtype.hasobject:
            return _tagged("array", head + b"".join(map(self.of, array.reshape(-1).tolist())))
        return _tagged("array", head + b" " + array.tobytes())

    def _object(self, value: Any) -> bytes:
        """Say what `pickle` would save of an object."""
        told = copyreg.dispatch_table.get(type(value))
        made = value.__reduce_ex__(2) if told is None else told(value)
        if isinstance(made, str):
            return _tagged("name", made.encode())
        call, arguments, *rest = made
        state, items, pairs = (*rest, None, None, None)[:3]
        return _tagged("object", b"".join(map(self.of, (call, arguments, state, list(items or ()), dict(pairs or ())))))


def _tagged(kind: str, data: bytes) -> bytes:
    return f"{kind} {len(data)} ".encode() + data
