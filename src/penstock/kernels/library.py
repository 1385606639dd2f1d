"""The C library: where it lies, the signature of each of its functions, the choice between C and NumPy, and the checks of arguments.

The library is plain C without Python.h, called through ctypes, which releases the GIL; it keeps no state. Its functions trust their
arguments: the modules of the families (`lines`, `tar`...) check them first with the functions below. From any thread; never closed.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from operator import index
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError

Array = NDArray[Any]
DType = np.dtype[Any]
Ints = NDArray[np.int64]
Uint8s = NDArray[np.uint8]
P = ParamSpec("P")
R = TypeVar("R")
UINT8_DTYPE, INT64_DTYPE, FLOAT32_DTYPE = np.dtype(np.uint8), np.dtype(np.int64), np.dtype(np.float32)

_NAME: Final = "_penstock.dll" if sys.platform == "win32" else "_penstock.so"
LIBRARY: Final = os.path.join(os.path.dirname(__file__), _NAME)  # pathlib would cost 5 ms of import time
_OF_POSIX: Final = ("read_spans", "read_windows") if sys.platform == "win32" else ()
"""Functions that read nothing there; what else reads files in C has its callers read them when it has read none."""
# Raised with every change of an argument list, so that an old library beside new Python code is not called.
_INTERFACE: Final = 12

_LITTLE_NS: Final = 100_000_000
_FEW_DRAWS: Final = 2048  # about 15 us: letting go of the GIL and taking it back costs more among many threads
WITHOUT_LIBRARY: Final = (
    "penstock runs without its C kernels: a TFRecord record, for example, takes 114 us, not 0.84. Install the wheel of your platform, "
    "or from the sources with a C compiler (gcc or clang) and pip's --force-reinstall --no-cache-dir; `penstock doctor` says what is wrong"
)

# Sharing the array's buffer costs 0.2 us and `array.ctypes.data` 0.9 us; a block of 256 permuted positions costs 2.
_shared: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer


def _address(array: Any) -> Any:
    """Return where an array begins, as C takes it; NULL for None."""
    if array is None:
        return None
    if array.flags.carray:  # a read-only or strided buffer may not be shared
        try:
            return _shared(array)
        except ValueError:
            pass  # dates, and dtypes of other packages, have no buffers
    return ctypes.c_void_p(array.ctypes.data)


def _bytes_or_array(data: Any) -> Any:
    return data if type(data) is bytes else _address(data)


def addresses(arrays: Iterable[Array]) -> Ints:
    """Return where each of several arrays begins."""
    return np.array([_number(array) for array in arrays], np.int64)


def _number(array: Array) -> int:
    found = _address(array)
    return int(found.value or ctypes.addressof(found))  # what is shared has no bytes, and so an empty value


def table_of_columns(outs: Sequence[Array], offsets: Sequence[Ints] | None) -> Ints:
    """Return int64 [columns, 2]: the addresses of column and offsets, 0 for no offsets."""
    table = np.zeros((len(outs), 2), np.int64)
    table[:, 0] = addresses(outs)
    if offsets is not None:
        table[:, 1] = addresses(offsets)
    return table


class IN:
    """An array that C reads."""

    from_param = staticmethod(_address)


class OUT:
    """A block of memory that C writes."""

    from_param = staticmethod(_shared)


class DATA:
    """Bytes, or an array of them, that C reads."""

    from_param = staticmethod(_bytes_or_array)


POINTER, TEXT, INT64, UINT64, UINT32, INT = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_int64,
    ctypes.c_uint64,
    ctypes.c_uint32,
    ctypes.c_int,
)


class Signature(NamedTuple):
    """How one function of the library is called.

    Attributes:
        result: its type; None for none.
        arguments: their types, in the order of C.
        spread: makes of the C function one that has the arguments of the twin; None where these are the same.
    """

    result: Any
    arguments: tuple[Any, ...]
    spread: Callable[[Any], Callable[..., Any]] | None = None


def _integer_kind(dtype: DType) -> int:
    """Return bytes per integer, negative when it is signed."""
    return dtype.itemsize if dtype.kind == "u" else -dtype.itemsize


def _spread_draws(function: Any) -> Callable[..., None]:
    holding = ctypes.PYFUNCTYPE(None, *function.argtypes)(ctypes.cast(function, POINTER).value or 0)

    def call(key0: int, key1: int, epochs: Any, indices: Any, lanes: Any, out: Any) -> None:
        brief = out.size <= _FEW_DRAWS
        (holding if brief else function)(key0, key1, epochs, indices, lanes, *out.shape, out)

    return call


def _spread_columns(function: Any) -> Callable[..., int]:
    def call(of: Any, tables: Any, rows: Any, places: Any, out: Any) -> int:
        bases, counts = np.concatenate([table.addresses for table in of]), np.array([table.num_rows for table in of], np.int64)
        room = min(map(len, out), default=0)
        row: int = function(bases, counts, len(of), of[0].widths, len(out), tables, rows, places, tables.size, addresses(out), room)
        return row

    return call


def _spread_examples(function: Any) -> Callable[..., int]:
    def call(buffer: Any, starts: Any, lengths: Any, plan: Any, table: Any, outs: Any, offsets: Any, report: Any) -> int:
        num = len(plan.features)
        wanted = (table, num, plan.texts, plan.table, plan.table.size - 1)
        work = np.empty(max(1, 4 * num), np.int64)
        row: int = function(buffer, buffer.size, starts, lengths, starts.size, *wanted, table_of_columns(outs, offsets), work, report)
        return row

    return call


def _spread_fit(function: Any) -> Callable[..., int]:
    def call(sizes: Any, capacity: int, out: Any) -> int:
        num = sizes.size
        work = np.empty(num, np.int64), np.empty(num + capacity + 1, np.int32), np.zeros(capacity // 63 + 6, np.uint64)
        row: int = function(sizes, num, capacity, *work, out)
        return row

    return call


def _spread_spans(function: Any) -> Callable[..., int]:
    def call(files: Any, block: Any, gap: int, out: Any, begins: Any, kept: Any, facts: Any, *pieces: Any) -> int:
        tables = (files.paths, files.path_starts, files.known, len(files.known))
        rows = (block.files, block.offsets, block.lengths, block.descriptors, block.files.size, gap, np.empty(2 * begins.size, np.int64))
        results = (out, out.size, begins, len(kept), kept, facts)
        done: int = function(*tables, *rows, *results, block.maps, block.sink, block.every, *pieces)
        return done

    return call


_IMAGES = (IN, *[INT64] * 8)
_WAY = (*[INT64] * 4, IN, IN)
_TAR_TABLE = (OUT, INT64, OUT, INT64)
_SPANS = (TEXT, IN, IN, INT64, IN, IN, IN, IN, INT64, INT64, OUT, OUT, INT64, OUT, INT64, OUT, OUT, IN, INT, INT64)

SIGNATURES: Final[dict[str, Signature]] = {
    # checked.py
    "permute": Signature(
        INT64, (IN, INT64, UINT64, UINT64, OUT), lambda c: lambda positions, num, key, out: c(positions, positions.size, num, key, out)
    ),
    "philox_uniform": Signature(
        None,
        (UINT64, UINT64, IN, IN, IN, INT64, INT64, OUT),
        _spread_draws,
    ),
    "best_fit": Signature(INT64, (IN, INT64, INT64, OUT, OUT, OUT, OUT), _spread_fit),
    "normalize": Signature(
        None,
        (*_IMAGES, IN, IN, OUT, INT),
        lambda c: lambda values, scale, bias, out, first: c(values, *values.shape, *values.strides, scale, bias, out, int(first)),
    ),
    "crop_image": Signature(None, (TEXT, IN, INT64, INT64, IN)),  # the output may be of dates; that C may write it was checked
    "write_images": Signature(
        None,
        (IN, *[INT64] * 4, IN, IN, IN, INT, IN),
        lambda c: lambda values, flips, scale, bias, first, outs: c(values, *values.shape, flips, scale, bias, int(first), addresses(outs)),
    ),
    "crop_images": Signature(
        None,
        (IN, *[INT64] * 4, IN, IN, IN, INT, INT64, INT64, OUT),
        lambda c: lambda values, tops, lefts, flips, fill, out: c(values, *values.shape, tops, lefts, flips, fill, *out.shape[1:3], out),
    ),
    # resampling.py
    "resample": Signature(
        None,
        (IN, *[INT64] * 4, INT, INT64, *_WAY, *_WAY, OUT, OUT),
        lambda c: (
            lambda values, kind, rows, columns, work, out: c(
                values, *values.shape, values.strides[0], kind, values.itemsize, *rows, *columns, work, out
            )
        ),
    ),
    # checked.py
    "read_file": Signature(INT64, (TEXT, OUT, INT64), lambda c: lambda path, buffer: c(path, buffer, buffer.size)),
    "read_files": Signature(
        INT64,
        (TEXT, INT64, OUT, INT64, INT64, OUT, OUT),
        lambda c: lambda paths, buffer, most_ns, ends, at: c(paths, ends.size, buffer, buffer.size, most_ns, ends, at),
    ),
    "deal": Signature(
        INT64,
        (IN, INT64, IN, IN, INT64, INT64, OUT, POINTER),
        lambda c: (
            lambda positions, shares, sides, num, out, starts: c(
                positions, positions.size, shares, sides, shares.size, num, out, _shared(starts) if starts.size else None
            )
        ),
    ),
    # framing.py
    "crc32c": Signature(UINT32, (DATA, INT64, UINT32)),
    "scan_frames": Signature(
        INT64,
        (IN, INT64, INT64, INT64, INT, INT64, OUT, OUT, INT64, OUT),
        lambda c: lambda buffer, bounds, offsets, lengths, state: c(buffer, buffer.size, *bounds, offsets, lengths, lengths.size, state),
    ),
    "find_frame": Signature(INT64, (IN, INT64, INT64, INT64), lambda c: lambda buffer, start, left: c(buffer, buffer.size, start, left)),
    "check_frames": Signature(
        INT64,
        (IN, INT64, IN, IN, INT64, INT, OUT),
        lambda c: lambda buffer, starts, lengths, data, out: c(buffer, buffer.size, starts, lengths, starts.size, data, out),
    ),
    # lines.py
    "find_lines": Signature(
        INT64, (IN, INT64, INT64, OUT, INT64, OUT), lambda c: lambda data, base, ends, done: c(data, data.size, base, ends, ends.size, done)
    ),
    "find_records": Signature(
        INT64,
        (IN, INT64, INT64, INT, INT, OUT, OUT, INT64, OUT),
        lambda c: lambda data, base, marks, ends, state, done: c(data, data.size, base, *marks, state, ends, ends.size, done),
    ),
    "widen": Signature(None, (IN, INT64, IN, OUT), lambda c: lambda spans, sizes, out: c(spans, spans.shape[1], sizes, out)),
    "check_ends": Signature(
        INT64,
        (IN, INT64, IN, INT64, IN, IN, INT, INT, INT64, OUT),
        lambda c: lambda data, spans, sizes, begins, marks, out: c(data, data.size, spans, spans.shape[1], sizes, begins, *marks, out),
    ),
    # tokens.py
    "read_windows": Signature(
        INT64,
        (IN, IN, INT64, INT64, INT, UINT64, OUT, OUT),
        lambda c: lambda files, offsets, dtype, bound, out, report: c(files, offsets, *out.shape, _integer_kind(dtype), bound, out, report),
    ),
    # columns.py
    "gather_columns": Signature(INT64, (IN, IN, INT64, IN, INT64, IN, IN, IN, INT64, IN, INT64), _spread_columns),
    # spans.py
    "look_up": Signature(
        INT64,
        (IN, INT64, POINTER, INT64, POINTER, INT64, POINTER, INT64, OUT),
        lambda c: lambda places, rows, out: c(rows, rows.size, *places.arguments, out),
    ),
    # examples.py
    "parse_examples": Signature(INT64, (IN, INT64, IN, IN, INT64, IN, INT64, IN, IN, INT64, IN, OUT, OUT), _spread_examples),
    # tar.py
    "tar_scan": Signature(
        INT64,
        (IN, INT64, INT64, INT64, *_TAR_TABLE, OUT),
        lambda c: lambda data, base, total, rows, names, state: c(data, data.size, base, total, rows, len(rows), names, names.size, state),
    ),
    "tar_samples": Signature(
        INT64,
        (IN, INT64, IN, IN, INT64, *_TAR_TABLE, OUT, OUT),
        lambda c: (
            lambda data, starts, lengths, rows, names, ends, state: c(
                data, data.size, starts, lengths, starts.size, rows, len(rows), names, names.size, ends, state
            )
        ),
    ),
    # spans.py
    "read_spans": Signature(INT64, _SPANS, _spread_spans),
    "stream_spans": Signature(INT64, (*_SPANS, INT64, INT64, POINTER, OUT), _spread_spans),
    "map_file": Signature(INT64, (INT, INT64)),
    "unmap_file": Signature(None, (INT64, INT64)),
    # columns.py
    "copy_spans": Signature(None, (IN, IN, IN, INT64)),
}
"""Each function by its name. Its twin has the arguments of what `spread` makes, and gives the same."""


def load_library(path: str | os.PathLike[str] = LIBRARY) -> SimpleNamespace | None:
    """Open the library; return its functions by their names, None when it cannot be opened here or is of another version.

    The whole library, with every function under its name in C, is `library` of the result.
    """
    try:
        library = ctypes.CDLL(str(path))
        interface = library.penstock_interface
    except (OSError, AttributeError):
        # Not built, built for another machine, or not ours: the twins give the same bytes, and `backend()` tells which one runs.
        return None
    if interface() != _INTERFACE:
        return None
    functions = SimpleNamespace(library=library)
    for name, signature in SIGNATURES.items():
        function = getattr(library, f"penstock_{name}")
        function.restype, function.argtypes = signature.result, signature.arguments
        setattr(functions, name, function if signature.spread is None else signature.spread(function))
    return functions


@cache
def chosen_library() -> SimpleNamespace | None:
    """Return the functions that this process uses, None when the twins are to run. Decided at the first call."""
    return None if _switched_off() else load_library()


@cache
def _switched_off() -> bool:
    """Tell of the one environment switch of the library: which of two ways to compute the same bytes."""
    return os.environ.get("PENSTOCK_KERNELS") == "numpy"


def why_numpy(path: str | os.PathLike[str] = LIBRARY) -> str:
    """Return why the twins run where they do: what is wrong with the library at `path`."""
    if _switched_off():
        return "PENSTOCK_KERNELS=numpy switches the C library off"
    if not os.path.exists(path):
        return "the C library was not built: install the wheel of this platform, or from the sources with a C compiler"
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return f"the C library cannot be opened here: {str(error).replace(os.path.join(os.path.dirname(path), ''), '')}"
    return "the C library is of another version of Penstock: install Penstock again"


def chosen(name: str, twin: Callable[P, R]) -> Callable[P, R]:
    """Return the C function of this name where the library is used, otherwise its twin, whose time is added up."""
    library = chosen_library()
    if name in _OF_POSIX:
        return twin
    function: Callable[P, R] = partial(_timed, twin) if library is None else getattr(library, name)
    return function


@cache
def _twins_ns() -> list[int]:
    """Return how long this process ran twins, in a list of one."""
    return [0]


def _timed(twin: Callable[P, R], *arguments: P.args, **more: P.kwargs) -> R:
    begin_ns = perf_counter_ns()
    try:
        return twin(*arguments, **more)
    finally:
        _twins_ns()[0] += perf_counter_ns() - begin_ns


def slow_twins() -> str:
    """Say that twins have taken more than a little time of this process; "" before, and where the C library is used or switched off."""
    return WITHOUT_LIBRARY if chosen_library() is None and _twins_ns()[0] > _LITTLE_NS and not _switched_off() else ""


def backend() -> str:
    """Return "c" or "numpy": which version of the kernels this process uses.

    Chosen at the first use: NumPy when the C library was not built or PENSTOCK_KERNELS=numpy is in the environment.
    """
    return "numpy" if chosen_library() is None else "c"


def place(function: str, argument: str) -> str:
    """Return the `where` of an error about one argument."""
    return f"penstock.kernels.{function}, argument {argument!r}"


def require(function: str, argument: str, array: object, dtype: DType, num_dims: int) -> None:
    """Refuse anything but an array of this dtype and number of dimensions."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != num_dims:
        got = f"{array.ndim}-d {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SpecError(
            f"{argument} is {got}, not a {num_dims}-d {dtype} array",
            where=place(function, argument),
            fix=f"pass a {num_dims}-d NumPy array of dtype {dtype} in native byte order",
        )


def require_shape(function: str, argument: str, array: Array, shape: tuple[int, ...]) -> None:
    """Refuse another shape."""
    if array.shape != shape:
        raise SpecError(
            f"{argument} has shape {array.shape}, not {shape}", where=place(function, argument), fix=f"pass an array of shape {shape}"
        )


def require_out(function: str, out: Array, dtype: DType, shape: tuple[int, ...], values: Array) -> None:
    """Refuse an output that is not one writeable block of this dtype and shape, or that overlaps `values`."""
    require(function, "out", out, dtype, len(shape))
    require_shape(function, "out", out, shape)
    if not out.flags.carray:
        flags = out.flags
        raise SpecError(
            f"out cannot be written as one block: C-contiguous {flags.c_contiguous}, aligned {flags.aligned}, writeable {flags.writeable}",
            where=place(function, "out"),
            fix="pass a fresh array or a whole row of a batch",
        )
    if np.may_share_memory(values, out):
        raise SpecError(
            "out lies in the memory of values, which would be overwritten before it is read",
            where=place(function, "out"),
            fix="pass another array as out, or a copy of values",
        )


def block(function: str, argument: str, array: Array, dtype: DType, length: int | None = None) -> Array:
    """Check a 1-d array and return it (or a copy) contiguous and aligned."""
    # Said twice, because this line costs 0.1 us and the call 0.3: a subclass or an equal dtype object still passes below.
    if type(array) is not np.ndarray or array.dtype is not dtype or array.ndim != 1:
        require(function, argument, array, dtype, 1)
    if length is not None and array.shape[0] != length:
        require_shape(function, argument, array, (length,))
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A"))


def integer(function: str, argument: str, value: int, low: int, high: int) -> int:
    """Check a number and return it as a Python integer, which is what ctypes takes."""
    if type(value) is int and low <= value <= high:
        return value
    try:
        number = index(value)
    except TypeError as error:
        raise SpecError(
            f"{argument} is {value!r}, not an integer", where=place(function, argument), fix=f"pass an integer in {low}..{high}"
        ) from error
    if not low <= number <= high:
        raise SpecError(
            f"{argument}={number} is outside {low}..{high}", where=place(function, argument), fix=f"pass an integer in {low}..{high}"
        )
    return number
