"""How objects travel: one pickler to worker processes and one back.

A worker never imports the program. What the program defines, and whatever a worker could not import or would import as something else, is
sent by value; the rest goes by its name. What comes back refers to the program's classes, so that `except MyError` works.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import pickle
import random
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, NewType

import cloudpickle
import numpy as np
from cloudpickle import cloudpickle as tracker
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from penstock._workers.parts import codes_in
from penstock.sources.arrays import IndexableSource

Keep = Callable[[pickle.PickleBuffer], Any]
_LARGE_BYTES, _LARGE_LENGTH, _ELEMENT_LENGTH = 64 << 20, 100_000, 20
"""Above these, whether an object has changed is told by its identity and length: 100,000 texts take 10 ms to pickle. Dicts, arrays and
objects count as 20 elements."""


class SendingPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles for a worker process. With `buffer_callback` arrays are left out, also those that are not contiguous."""

    def __init__(self, file: Any, protocol: int = 5, buffer_callback: Keep | None = None) -> None:
        super().__init__(file, protocol=protocol, buffer_callback=buffer_callback)
        self._keeps_apart = buffer_callback is not None
        self._verdicts: dict[str, bool] = {}

    def reducer_override(self, value: Any) -> Any:
        """Say how an object is pickled; see `pickle`."""
        kind = type(value)
        if kind is np.ndarray or kind is np.memmap:
            return self._array(value)
        if _is_tensor(kind):
            return _reduced_tensor(value)
        if isinstance(value, (type, FunctionType, ModuleType)):
            module = self._copied(value)
            return _as_usual(self, value) if module is None else self._by_value(value, module)
        if kind is CodeType:
            make, arguments = self.dispatch_table[CodeType](value)
            return _code, (value.co_filename, make, arguments)  # cloudpickle leaves the name out, which tracebacks and stacks tell
        if kind in _NAMED and self._has_no_name(value):
            return _NAMED[kind](value)
        if kind is functools.cached_property:  # in Python 3.11 it holds a lock
            return _cached_property, (value.func, value.attrname)
        if kind in (random.Random, np.random.RandomState) and value is _generator_of_process(kind):
            return _generator_of_process, (kind,)
        return _as_usual(self, value)

    def _has_no_name(self, value: Any) -> bool:
        """Tell whether a worker would not find it by its name: one of the program's, or one that was made here out of what was sent."""
        return self._copied(value) is not None or not _has_its_name(value)

    def _copied(self, value: Any) -> ModuleType | None:
        """Return the module of what would be another thing, or nothing, in a worker; None for what is left to cloudpickle."""
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is None or name.partition(".")[0] in _SAME_EVERYWHERE:
            return None
        return module if self._is_copied(module) or (isinstance(value, FunctionType) and self._took_the_place(value, module)) else None

    def _is_copied(self, module: ModuleType) -> bool:
        name = module.__name__
        if name not in self._verdicts:
            self._verdicts[name] = name in ("__main__", "__mp_main__") or not _is_importable(module) or _was_edited(module)
        return self._verdicts[name]

    def _took_the_place(self, function: FunctionType, module: ModuleType) -> bool:
        """Tell whether a function has its name in its module from the program: a decorator that was applied by hand."""
        file = getattr(module, "__file__", None)
        if file is None or function.__code__.co_filename == file:
            return False
        home = sys.modules.get(function.__globals__.get("__name__", ""))
        if home is None or (home is not module and home.__name__.partition(".")[0] not in _SAME_EVERYWHERE and self._is_copied(home)):
            return True
        code: CodeType | None = getattr(_unwrapped(function), "__code__", None)
        if code is None or code.co_filename != file:
            return False
        line: str = linecache.getline(file, code.co_firstlineno)
        return line.lstrip()[:1] != "@"

    def _by_value(self, value: Any, module: ModuleType) -> Any:
        if module.__name__ in cloudpickle.list_registry_pickle_by_value():
            return super().reducer_override(value)
        cloudpickle.register_pickle_by_value(module)  # of this one object: what it holds is asked for by itself
        try:
            if isinstance(value, ModuleType):
                return self.dispatch_table[ModuleType](value)
            return super().reducer_override(value)
        finally:
            with suppress(ValueError):
                cloudpickle.unregister_pickle_by_value(module)

    def _array(self, value: NDArray[Any]) -> Any:
        if not value.size or value.dtype.hasobject:
            return NotImplemented
        if isinstance(value, np.memmap):
            return _map_reduced(value)
        if not self._keeps_apart:
            return reduced(value)
        if value.flags.forc:
            return NotImplemented
        low, high = byte_bounds(value)
        if high - low > value.nbytes and not _is_of_file(value):
            return np.ascontiguousarray(value).__reduce_ex__(5)  # NumPy would send its elements in the stream
        start = int(value.__array_interface__["data"][0]) - low
        whole = {"shape": (high - low,), "typestr": "|u1", "data": (low, not value.flags.writeable), "version": 3}
        bytes_of_it = np.asarray(SimpleNamespace(owner=value, __array_interface__=whole))  # from its first to its last
        return _strided, (bytes_of_it, start, value.shape, value.strides, value.dtype)


_CachedFunction: type = type(functools.lru_cache(abs))
_NAMED: dict[type, Callable[[Any], Any]] = {
    _CachedFunction: lambda found: (_cached_function, (found.__wrapped__, found.cache_parameters())),
    NewType: lambda found: (NewType, (found.__name__, found.__supertype__)),
}
"""What pickle sends by its name alone, and how what the program defines is made again: a cache is empty there."""


def _cached_property(function: Any, name: str | None) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _cached_function(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


_SAME_EVERYWHERE = {*sys.stdlib_module_names, "penstock", "numpy"}


def _is_importable(module: ModuleType) -> bool:
    """Tell whether the module of this name that a new process would find is this one."""
    path: Sequence[str] | None = [os.path.abspath(entry) for entry in sys.path]  # as from a process that begins here now
    name, spec = "", None
    for part in module.__name__.split("."):
        name = f"{name}.{part}".lstrip(".")
        spec = _spec_of(name, path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    file: str | None = getattr(module, "__file__", None)
    origin: str | None = spec.origin if spec is not None and spec.has_location else None
    if file is None or origin is None:
        return file is None and origin is None and module.__spec__ is not None
    return os.path.realpath(file) == os.path.realpath(origin)


def _spec_of(name: str, path: Sequence[str] | None) -> Any:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec
    return None


def _was_edited(module: ModuleType) -> bool:
    """Tell whether the file of a module defines other functions now than those that are in memory. Costs 10 us where the file is old."""
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py"):
        return False
    try:
        if os.stat(file).st_mtime < _process_start_s():
            return False
        with open(file, "rb") as source:
            found = set(codes_in(compile(source.read(), file, "exec", dont_inherit=True)))
    except FileNotFoundError:  # of an archive, or removed, where its bytecode may still be found
        return False
    except (OSError, SyntaxError, ValueError):
        return True
    members = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    members += [value for kind in members if isinstance(kind, type) for value in vars(kind).values()]
    codes = [value.__code__ for value in map(_unwrapped, members) if isinstance(value, FunctionType)]
    return any(code not in found for code in codes if code.co_filename == file)


def _process_start_s() -> float:
    """Return when this process was started; 0 where the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/uptime", "rb") as uptime:
            ticks, up_s = int(stat.read().rpartition(b")")[2].split()[19]), float(uptime.read().split()[0])
    except OSError:  # macOS
        return 0.0
    return time.time() - up_s + ticks / os.sysconf("SC_CLK_TCK") - 1.0


def _unwrapped(value: Any) -> Any:
    for _ in range(10):
        inner = getattr(value, "__wrapped__", None) or getattr(value, "__func__", None) or getattr(value, "fget", None)
        if inner is None:
            break
        value = inner
    return value


def _generator_of_process(kind: type) -> Any:
    """Return the generator behind the functions of `random`, or of `np.random`, in this process."""
    return vars(random)["_inst"] if kind is random.Random else getattr(np.random.rand, "__self__", None)


def _code(filename: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=filename)


def _map_reduced(value: Any) -> Any:
    return _memory_map, (value.view(np.ndarray), value.filename, value.offset, value.mode)


def _memory_map(array: NDArray[Any], filename: Any, offset: int, mode: str) -> Any:
    found: Any = array.view(np.memmap)
    found.filename, found.offset, found.mode = filename, offset, mode
    return found


def _strided(data: NDArray[np.uint8], start: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return np.ndarray(shape, dtype, data, start, strides)


def _is_of_file(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None and array.mode != "c"


def dumps_to_worker(value: object) -> bytes:
    """Pickle a value for a worker process."""
    file = BytesIO()
    SendingPickler(file).dump(value)
    return file.getvalue()


_MADE_HERE = "made in a worker "


def class_of_number(number: str) -> type:
    """Return the program's class. Called by pickle in the program."""
    found: type = tracker._DYNAMIC_CLASS_TRACKER_BY_ID[number]
    return found


@functools.cache
def pickler_to_program() -> type[pickle.Pickler]:
    """Return the pickler of this worker process: classes of the program go back as references to them.

    cloudpickle gives each class that it sends by value a number of its own, on both sides. One that came from the program has a number
    before it is first sent back, and is sent back as the number; one that was made here has none then, and gets one that says so to the
    next process on the way.
    """
    numbers = tracker._DYNAMIC_CLASS_TRACKER_BY_CLASS

    class PicklerToProgram(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, type):
                if _has_its_name(value):
                    return _as_usual(self, value)
                number = numbers.setdefault(value, _MADE_HERE + uuid.uuid4().hex)
                if not number.startswith(_MADE_HERE):
                    return class_of_number, (number,)
                tracker._DYNAMIC_CLASS_TRACKER_BY_ID[number] = value
                return _as_usual(self, value)
            if _is_tensor(type(value)):
                return _reduced_tensor(value)
            return reduced(value) if isinstance(value, (np.ndarray, np.generic)) else _as_usual(self, value)

    return PicklerToProgram


def reduced(value: NDArray[Any] | np.generic) -> Any:
    """Return what pickle asks an array or a scalar for. In the stream NumPy would lose the byte order of one with gaps, or a memory map."""
    if isinstance(value, np.memmap):
        return _map_reduced(value)
    if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype.isbuiltin == 1 and value.dtype.kind in "biufc":
        data: Any = value  # NumPy's own form takes ten times as long to read
        return np.ndarray, (value.shape, value.dtype.char, pickle.PickleBuffer(data))
    whole = np.ascontiguousarray(value) if type(value) is np.ndarray and not value.flags.forc else value
    return whole.__reduce_ex__(5)


def _is_tensor(kind: type) -> bool:
    """Tell whether objects of a type are plain tensors, and not of a subclass."""
    return kind is getattr(sys.modules.get("torch"), "Tensor", None)


def _reduced_tensor(tensor: Any) -> Any:
    """Return what pickle asks a tensor for: how it is made again over a buffer; PyTorch would write its bytes into the pickle.

    PyTorch is not imported here, and what makes a tensor again is found by its name. A special one goes as PyTorch has it.
    """
    torch: Any = sys.modules["torch"]
    if tensor.layout is torch.sparse_coo and not tensor.requires_grad:  # PyTorch keeps those that it unpickles until the next torch.load
        make = functools.partial(torch.sparse_coo_tensor, is_coalesced=tensor.is_coalesced(), check_invariants=False)
        return make, (tensor._indices(), tensor._values(), tuple(tensor.shape))
    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad and not tensor.is_quantized
    if not is_plain or tensor.is_conj() or tensor.is_neg() or tensor.is_nested or tensor.__dict__:
        return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    size, stride = tuple(tensor.shape), None
    if not tensor.numel():
        return functools.partial(torch.empty, dtype=tensor.dtype), (size,)
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        dense = tensor.permute(order)
        if dense.is_contiguous():  # such as channels_last
            tensor, stride = dense, tensor.stride()
        else:
            tensor = tensor.contiguous()
    buffer = pickle.PickleBuffer(tensor.reshape(-1).view(torch.uint8).numpy())
    return _over_buffer, (torch.frombuffer, buffer, tensor.dtype, size, stride)


def _over_buffer(make: Callable[..., Any], buffer: Any, dtype: Any, size: tuple[int, ...], stride: tuple[int, ...] | None) -> Any:
    flat = make(buffer, dtype=dtype)
    return flat.reshape(size) if stride is None else flat.as_strided(size, stride)


def _as_usual(pickler: Any, value: Any) -> Any:
    """Return what a reducer of cloudpickle's pickler says: what has its name needs no look of 5 us."""
    if type(value) is TextIOWrapper and value not in (sys.stdout, sys.stderr):
        return value.__reduce_ex__(5)  # which refuses; cloudpickle would send all that is in the file
    if not isinstance(value, (type, FunctionType)) or _has_its_name(value):
        return NotImplemented
    return cloudpickle.Pickler.reducer_override(pickler, value)


def _has_its_name(value: Any) -> bool:
    if value.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def dumps_to_program(value: object, keep: Keep | None = None, pickler: type[pickle.Pickler] | None = None) -> bytes:
    """Pickle a value in a worker process, for the program; `keep` gets the buffers that are left out."""
    file = BytesIO()
    (pickler or pickler_to_program())(file, protocol=5, buffer_callback=keep).dump(value)
    return file.getvalue()


def digest(value: object) -> bytes:
    """Return what changes with what an object holds, attribute by attribute.

    Lists of more than 100,000 elements, or 5,000 dicts, arrays or objects, and arrays of more than 64 MB together are told by identity
    and length.

    Raises:
        Exception: it cannot be pickled.
    """
    file = _Digest()
    _ComparingPickler(file, buffer_callback=file.add).dump(value)
    return file.hash.digest()


class _ComparingPickler(SendingPickler):
    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind is str or kind is int or kind is float:  # it is called for each of 100,000
            return None
        if kind in _CONTAINERS:
            return (id(value), len(value)) if _is_large(value) else None
        if kind is bytes or kind is bytearray:
            return (id(value), len(value)) if len(value) > _LARGE_BYTES else None
        if kind is IndexableSource and type(value.held()) in (list, tuple) and _is_large(value.held()):
            return id(value.held()), len(value.held())
        tensor: Any = getattr(sys.modules.get("torch"), "Tensor", np.ndarray)
        if not isinstance(value, (np.ndarray, tensor)) or value.nbytes <= _LARGE_BYTES:
            return None
        return value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr(), value.nbytes


_CONTAINERS = {list, tuple, dict, set, frozenset}
_PLAIN = {str, bytes, int, float, bool, type(None)}


def _is_large(container: Any) -> bool:
    length = len(container)
    if length <= _LARGE_LENGTH // _ELEMENT_LENGTH:
        return False
    first = next(iter(container.values() if isinstance(container, dict) else container))
    return length * (1 if type(first) in _PLAIN else _ELEMENT_LENGTH) > _LARGE_LENGTH


class _Digest:
    """Takes a pickle and its buffers."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self._left = _LARGE_BYTES

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)

    def add(self, buffer: pickle.PickleBuffer) -> None:
        data = buffer.raw()  # a check sum goes through 64 MB in 30 ms, a fourth of the time of the hash
        self._left -= data.nbytes
        content = zlib.crc32(data) if self._left >= 0 else np.frombuffer(data, np.uint8).ctypes.data
        self.hash.update(b"%d %d" % (data.nbytes, content))
