"""Record calls of the C library, for machines that have no Python: `replay.c` makes them again there and compares every byte.

    python replay.py OUT

Recorded are the calls that the pipelines of `same_bytes.py` make, of functions whose arguments are numbers and blocks of memory. A call
with a table of addresses, a path or an open file has a meaning in its own process alone, and is left out.

The file: for each call a line `name result number_of_arguments`, result `-` for none; for each argument a line `i value`, or `b size` and
then the bytes before the call and those after it.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from penstock.kernels import library
from same_bytes import digest, pipelines

_MOST_CALLS = 100  # of one function
_PLAIN = frozenset(library.SIGNATURES) - {
    *("write_images", "read_file", "read_files", "deal", "read_windows", "gather_columns", "look_up", "parse_examples"),
    *("read_spans", "stream_spans", "map_file", "unmap_file", "copy_spans"),
}


def _bytes_of(argument: Any) -> bytes:
    return argument if isinstance(argument, bytes) else argument.tobytes()


def _is_plain(argument: Any) -> bool:
    return isinstance(argument, (int, np.integer, bytes)) or (isinstance(argument, np.ndarray) and argument.flags.c_contiguous)


def recorded(name: str, function: Any, out: BinaryIO, counts: Counter[str]) -> Callable[..., Any]:
    """Return a function that calls another one, and writes down what it was given and what it made of it."""

    def call(*arguments: Any) -> Any:
        keep = counts[name] < _MOST_CALLS and all(map(_is_plain, arguments))
        before = [argument if isinstance(argument, (int, np.integer)) else _bytes_of(argument) for argument in arguments] if keep else []
        result = function(*arguments)
        if keep:
            counts[name] += 1
            out.write(f"{name} {'-' if function.restype is None else result} {len(arguments)}\n".encode())
            for argument, was in zip(arguments, before, strict=True):
                out.write(
                    b"b %d\n%s%s" % (len(was), was, _bytes_of(argument))
                    if isinstance(was, bytes)
                    else b"i %d\n" % ctypes.c_int64(int(was)).value
                )
        return result

    call.argtypes = function.argtypes  # type: ignore[attr-defined]
    return call


def main(path: str) -> None:
    """Run the pipelines, and print how many calls of each function were recorded."""
    raw = ctypes.CDLL(library.LIBRARY)
    counts: Counter[str] = Counter()
    with open(path, "wb") as out, tempfile.TemporaryDirectory() as folder:
        functions = SimpleNamespace(library=raw)
        for name, signature in library.SIGNATURES.items():
            function = getattr(raw, f"penstock_{name}")
            function.restype, function.argtypes = signature.result, signature.arguments
            spread = signature.spread or (lambda called: called)
            if name == "philox_uniform":  # its own spread asks for the address
                spread = lambda called: lambda k0, k1, epochs, indices, lanes, to: called(k0, k1, epochs, indices, lanes, *to.shape, to)  # noqa: E731
            setattr(functions, name, spread(recorded(name, function, out, counts) if name in _PLAIN else function))
        library.chosen_library = lambda: functions  # type: ignore[assignment]
        for dataset in pipelines(Path(folder)).values():
            digest(dataset)
    print(f"{sum(counts.values())} calls of {len(counts)} of {len(library.SIGNATURES)} functions: {', '.join(sorted(counts))}")


if __name__ == "__main__":
    main(sys.argv[1])
