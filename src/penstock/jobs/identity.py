"""What a job is, as a hash that is the same in every run: which job a line of a done-list speaks of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from penstock.errors import PlanError

__all__ = ["digest_of", "digest_of_all"]

_BYTES = 8


def digest_of(job: Any, number: int) -> str:
    """Return the hash of one job: of types and values, whatever objects share.

    A pickle would not do: it tells two equal texts from one text twice, and a set comes in another order in each process.

    Raises:
        PlanError: the job holds something that has no content to speak of, or holds itself.
    """
    state = hashlib.blake2b(digest_size=_BYTES)
    try:
        state.update(_content(job))
    except RecursionError:
        raise _refusal(job, number, "it holds itself, or goes too deep") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise _refusal(job, number, str(error)) from error
    return state.hexdigest()


def digest_of_all(digests: Iterable[str]) -> str:
    """Return the hash of a list of jobs, given theirs."""
    return hashlib.blake2b("".join(digests).encode(), digest_size=_BYTES).hexdigest()


def _refusal(job: Any, number: int, why: str) -> PlanError:
    return PlanError(
        f"job {number}, a {type(job).__name__}, cannot be told from others in another run: {why}",
        where="parallel_jobs(done=...)",
        fix="give jobs that are made of numbers, texts, paths, arrays and containers of them, and look up the rest in the function",
    )


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
    if isinstance(value, (np.ndarray, np.generic)):
        return _of_array(np.asarray(value))
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return _tagged("name", f"{value.__module__}.{value.__qualname__}".encode())
    return _of_object(value)


def _of_array(array: Any) -> bytes:
    head = f"{array.dtype.str} {array.shape}".encode()
    if array.dtype.hasobject:
        return _tagged("array", head + b"".join(map(_content, array.reshape(-1).tolist())))
    return _tagged("array", head + b" " + array.tobytes())


def _of_object(value: Any) -> bytes:
    """Say what `pickle` would save of an object."""
    made = value.__reduce_ex__(2)
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
