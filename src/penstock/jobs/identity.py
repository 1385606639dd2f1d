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
from penstock._plan.describe import function_name
from penstock.errors import PlanError

__all__ = ["digest_of", "digest_of_all", "digest_of_function"]

_BYTES = 8


def digest_of(job: Any, number: int) -> str:
    """Return the hash of one job: of types and values, whatever objects share.

    A pickle would not do: it tells two equal texts from one text twice, and a set comes in another order in each process.

    Raises:
        PlanError: the job holds something that has no content to speak of, or holds itself.
    """
    return _digest(job, lambda: f"job {number}, a {type(job).__name__},", "look up the rest in the function")


def digest_of_function(fn: Callable[..., Any]) -> str | None:
    """Return the hash of what tells a function from others of its name.

    That are the arguments of a `partial`, `self`, and the attributes of an object; and of a function that its module does not have by its
    name (a lambda, an inner function) the code, the defaults and the values that it has from outside.

    Returns:
        None for one that is found by its name, and so told by it.

    Raises:
        PlanError: it carries something that has no content to speak of, or itself.
    """
    if _is_named(fn):
        return None
    return _digest(fn, lambda: f"{function_name(fn)} carries values and", "give the rest with the jobs, or make it in the function")


def digest_of_all(digests: Iterable[str]) -> str:
    """Return the hash of a list of jobs, given theirs."""
    return hashlib.blake2b("".join(digests).encode(), digest_size=_BYTES).hexdigest()


def _digest(value: Any, name: Callable[[], str], rest: str) -> str:
    try:
        return hashlib.blake2b(_content(value), digest_size=_BYTES).hexdigest()
    except RecursionError:
        raise _refusal(name(), rest, "it holds itself, or goes too deep") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise _refusal(name(), rest, str(error)) from error


def _refusal(name: str, rest: str, why: str) -> PlanError:
    return PlanError(
        f"{name} cannot be told from others in another run: {why}",
        where="parallel_jobs(done=...)",
        fix=f"give what is made of numbers, texts, paths, arrays and containers of them, and {rest}",
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


def _content(value: Any) -> bytes:
    kind = type(value)
    if value is None or kind in (bool, int, float, complex):
        return _tagged(kind.__name__, repr(value).encode())
    if kind is str:
        return _tagged("str", value.encode("utf-8", "surrogatepass"))
    if kind in (bytes, bytearray):
        return _tagged(kind.__name__, bytes(value))
    if kind in (tuple, list):
        return _tagged(kind.__name__, b"".join(map(_content, value)))
    if kind in (set, frozenset):
        return _tagged(kind.__name__, b"".join(sorted(map(_content, value))))
    if kind is dict:
        return _tagged("dict", b"".join(sorted(_content(key) + _content(child) for key, child in value.items())))
    if is_masked(value):
        parts = (value.data, np.ma.getmaskarray(value), value.fill_value)
        return _tagged("masked", b"".join(_of_array(np.asarray(part)) for part in parts))
    if isinstance(value, (np.ndarray, np.generic)):
        return _of_array(np.asarray(value))
    if _is_named(value):
        return _tagged("name", f"{value.__module__}.{value.__qualname__}".encode())
    if isinstance(value, FunctionType):
        return _of_function(value)
    if isinstance(value, ModuleType):
        return _tagged("module", value.__name__.encode())
    return _of_object(value)


def _of_function(function: FunctionType) -> bytes:
    code, cells = function.__code__, tuple(cell.cell_contents for cell in function.__closure__ or ())
    name = f"{function.__module__}.{function.__qualname__}".encode()
    return _tagged("function", name + b" " + _of_code(code) + _content((function.__defaults__, function.__kwdefaults__, cells)))


def _of_code(code: CodeType) -> bytes:
    consts = b"".join(_of_code(const) if isinstance(const, CodeType) else _content(const) for const in code.co_consts)
    return _tagged("code", _content((code.co_code, code.co_names, code.co_varnames, code.co_flags)) + consts)


def _of_array(array: Any) -> bytes:
    kind = array.dtype.str if array.dtype.fields is None else repr(array.dtype)
    head = f"{kind} {array.shape}".encode()
    if array.dtype.hasobject:
        return _tagged("array", head + b"".join(map(_content, array.reshape(-1).tolist())))
    return _tagged("array", head + b" " + array.tobytes())


def _of_object(value: Any) -> bytes:
    """Say what `pickle` would save of an object."""
    told = copyreg.dispatch_table.get(type(value))
    made = value.__reduce_ex__(2) if told is None else told(value)
    if isinstance(made, str):
        return _tagged("name", made.encode())
    call, arguments, *rest = made
    parts = [_content(call), _content(arguments)]
    state, items, pairs = (*rest, None, None, None)[:3]
    parts.append(_content(state))
    parts.append(_content(list(items or ())))
    parts.append(_content(dict(pairs or ())))
    return _tagged("object", b"".join(parts))


def _tagged(kind: str, data: bytes) -> bytes:
    return f"{kind} {len(data)} ".encode() + data
