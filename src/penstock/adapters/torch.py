"""Batches as PyTorch tensors: over the same memory on a CPU, copied ahead of the training step to a device."""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.element import mapped
from penstock._contracts.frameworks import Output, Pin
from penstock._contracts.options import Torch
from penstock._engine.slots import Lease, SlotPool, anonymous_memory
from penstock.errors import MissingExtra, PlanError

_KNOWN = frozenset("?bBhHiIlLqQefdFD")
"""The dtypes, as NumPy's characters, that PyTorch has too. Arrays of others, such as texts and dates, stay NumPy."""
_ARRAYS = np.ndarray, np.generic
_PORTABLE = 1  # cudaHostRegisterPortable: for all devices


def torch_output(options: Torch) -> Output:
    """Return what makes tensors of batches, as the values of `ps.Torch` say.

    Raises:
        MissingExtra: PyTorch is not installed.
        PlanError: PyTorch finds no such device, or cannot pin memory.
    """
    try:
        import torch
    except ImportError as error:
        fix = 'pip install "penstock[torch]", or install it as https://pytorch.org/get-started says for your machine'
        raise MissingExtra("output='torch' needs PyTorch", where="feed options", fix=fix) from error

    from penstock.feed import Feed

    torch.utils.data.IterableDataset.register(Feed)
    device = None if options.device is None else _device(torch, options.device)
    pins = options.pin_memory is True or (options.pin_memory == "auto" and device is not None and device.type == "cuda")
    allocate = _pinned(torch) if pins else None
    pin = None
    if pins and torch.cuda.is_available():
        reader = torch.cuda.current_device() if device is None or device.type != "cuda" else device
        pin = partial(_registered, torch, reader)
    if device is None or device.type == "cpu":
        return HostOutput(torch, options.transform, allocate, pin)
    # Others copy one by one: not all of them have memory that tensors of any dtype can be laid over.
    kind = CudaOutput if device.type == "cuda" else DeviceOutput
    return kind(torch, device, options.depth, options.transform, allocate, pin)


def _device(torch: Any, given: Any) -> Any:
    """Return the device, in full, or refuse one that is not there."""
    try:
        device = torch.device(given)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise PlanError(
            f"device={given!r} cannot be used: {str(error).splitlines()[0]}",
            where="feed options",
            fix="give a device that torch.empty(1, device=...) takes, such as 'cuda:0'; or leave device= out for tensors on the CPU",
        ) from error
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def _pinned(torch: Any) -> Callable[[int], Any]:
    """Return what allocates memory that a device reads by itself."""

    def allocate(num_bytes: int) -> Any:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy()

    try:
        allocate(1)
    except RuntimeError as error:
        raise PlanError(
            f"pin_memory=True cannot be done: {str(error).splitlines()[0]}",
            where="feed options",
            fix="leave pin_memory= out: memory is pinned where device= is a CUDA device",
        ) from error
    return allocate


def _registered(torch: Any, device: Any, address: int, num_bytes: int) -> Callable[[], object]:
    """Have a device read memory of worker processes by itself, where it can; return what ends that. Else the driver copies it first."""

    def unregister() -> None:
        with suppress(RuntimeError), on_device:  # of a device that has failed
            torch.cuda.synchronize()
            runtime.cudaHostUnregister(address)

    runtime, on_device = torch.cuda.cudart(), torch.cuda.device(device)
    with on_device:  # the first call of a thread would else open device 0 as well, where it takes 500 MB
        failed = int(runtime.cudaHostRegister(address, num_bytes, _PORTABLE))
        if failed:
            text = f"memory of worker processes cannot be pinned (CUDA error {failed}), and copies to {device} are slower"
            warnings.warn(f"{text}: raise the limit of locked memory (ulimit -l), or lower memory_bytes=", RuntimeWarning, stacklevel=1)
            with suppress(RuntimeError):
                torch.ones(1, device=device)  # CUDA reports the error once more with the next kernel: this one, and none of the program's
    return int if failed else unregister


class HostOutput:
    """Makes CPU tensors over the arrays' own memory: a buffer is used again after the last tensor over it is deleted."""

    depth = 0
    spans_processes = False

    def __init__(
        self,
        torch: Any,
        transform: Callable[[Any], Any] | None = None,
        allocate: Callable[[int], Any] | None = None,
        pin: Pin | None = None,
    ) -> None:
        """Call `transform` with each batch of tensors; with `allocate`, tensors that a function of the user's made are pinned, too."""
        self._torch, self._from_numpy, self._transform = torch, torch.from_numpy, transform
        self.allocate, self.pin = allocate, pin

    def send(self, batch: Any, group: list[Any]) -> Any:
        """Return the batch with a tensor in place of each array and NumPy scalar that PyTorch has a dtype for."""
        tensors = mapped(batch, self._tensor, _ARRAYS)
        if self.allocate is None:
            return tensors
        return mapped(tensors, lambda tensor: tensor if tensor.is_cuda else tensor.pin_memory(), self._torch.Tensor)

    def receive(self, sent: Any) -> Any:
        """Return the transformed batch."""
        return sent if self._transform is None else self._transform(sent)

    def finish(self) -> None:
        """Do nothing: no copy is on its way."""

    def _tensor(self, value: Any) -> Any:
        dtype = value.dtype
        if dtype.name == "bfloat16":  # of ml_dtypes: PyTorch has it, and reads it as whole numbers only
            return self._tensor(value.view(np.int16)).view(self._torch.bfloat16)
        if dtype.char not in _KNOWN:
            return value
        if isinstance(value, np.generic):
            value = np.array(value)
        elif not (dtype.isnative and value.flags.writeable and (value.flags.c_contiguous or min(value.strides) >= 0)):
            value = np.array(value, dtype.newbyteorder("="), order="C")  # PyTorch has no such tensors
        return self._from_numpy(value)


class DeviceOutput(HostOutput):
    """Copies tensors to a device, one by one, `depth` batches ahead."""

    def __init__(self, torch: Any, device: Any, depth: int, *args: Any) -> None:
        """Copy to `device`; `args` as for `HostOutput`, whose `transform` is called with each batch of tensors on the device."""
        super().__init__(torch, *args)
        self._device, self.depth = device, depth

    def send(self, batch: Any, group: list[Any]) -> Any:
        """Copy a batch to the device."""
        return mapped(super().send(batch, group), lambda tensor: tensor.to(self._device), self._torch.Tensor)


class _Copy(NamedTuple):
    """A buffer on the device, and the address of what it was copied from. On CUDA the event behind the copy, and who waits for it."""

    address: int
    buffer: Any
    copied: Any = None
    streams: Any = None


class _Leaf:
    """A tensor of a batch, the array that it lies in, and the copy of that."""

    __slots__ = ("base", "copy", "tensor")

    def __init__(self, tensor: Any, base: Any) -> None:
        self.tensor, self.base = tensor, base
        self.copy: _Copy | None = None


class PackedOutput(DeviceOutput):
    """Copies a batch in one piece, and lays tensors over that: `.batch()` wrote its arrays into one buffer.

    Small batches of one buffer are copied with the first of them. Arrays and tensors that lie elsewhere are gathered in a buffer. A tensor
    on a device, a sparse one, or one with a gradient goes by itself, when the loop takes it.
    """

    def __init__(self, torch: Any, device: Any, depth: int, *args: Any) -> None:
        """Make nothing yet; `args` as for `HostOutput`."""
        super().__init__(torch, device, depth, *args)
        self._slots = SlotPool(self.allocate or anonymous_memory)
        self._empty: dict[Any, Any] = {}
        self.finish()

    def finish(self) -> None:
        """Forget what was copied ahead."""
        self._shared: tuple[list[Any], int, Any] = [], 0, None

    def send(self, batch: Any, group: list[Any]) -> Any:
        """Copy a batch, or find that it was copied with one before it."""
        leaves: list[_Leaf] = []

        def note(value: Any) -> Any:
            tensor = self._tensor(value) if isinstance(value, _ARRAYS) else value
            if isinstance(tensor, _ARRAYS):
                return value  # a text, say
            leaves.append(_Leaf(tensor, getattr(value, "base", None)))
            return leaves[-1]

        tree = mapped(batch, note, (*_ARRAYS, self._torch.Tensor))
        base = next((leaf.base for leaf in leaves if type(getattr(leaf.base, "base", None)) is Lease), None)
        copies = [] if base is None else self._copied(base, leaves, group)
        loose = [leaf for leaf in leaves if leaf.copy is None and _is_plain(self._torch, leaf.tensor)]
        if loose:
            copies.append(self._gathered(loose))
        return tree, copies

    def _copied(self, base: Any, leaves: list[_Leaf], group: list[Any]) -> list[_Copy]:
        """Copy a buffer, unless that was done for the group, or most of it is of no use to that."""
        whole = self._from_numpy(base)
        leaves = [leaf for leaf in leaves if leaf.base is base and _lies_in(leaf.tensor, whole)]
        known, number, copy = self._shared
        if known is not group or number != id(base):  # all buffers of a group are there before its first batch is taken
            if 2 * len(group) * sum(leaf.tensor.nbytes for leaf in leaves) < len(base):
                return []
            copy = self._begin(whole)
            if len(group) > 1:
                self._shared = group, id(base), copy
        for leaf in leaves:
            leaf.copy = copy
        return [copy]

    def _gathered(self, leaves: list[_Leaf]) -> _Copy:
        """Copy tensors one behind the other into a buffer, which is used again when it was copied."""
        sizes = [((leaf.tensor.nbytes,), np.dtype(np.uint8)) for leaf in leaves]
        self._slots.take_returned()
        arrays = self._slots.lease(sizes).arrays(sizes)
        for leaf, array in zip(leaves, arrays, strict=True):
            like = self._torch.empty_like(leaf.tensor, device="meta")  # of the strides that `to` gives it
            leaf.tensor = self._from_numpy(array).view(like.dtype).as_strided(like.shape, like.stride()).copy_(leaf.tensor)
        copy = self._begin(self._from_numpy(arrays[0].base))
        for leaf in leaves:
            leaf.copy = copy
        return copy

    def _begin(self, buffer: Any) -> _Copy:
        return _Copy(buffer.data_ptr(), buffer.to(self._device, copy=True))

    def receive(self, sent: Any) -> Any:
        """Return the transformed batch of tensors over what was copied."""
        return super().receive(mapped(sent[0], self._laid, _Leaf))

    def _laid(self, leaf: _Leaf) -> Any:
        """Return a tensor on the device. It is no view: where one is changed in place, autograd must not take the others for changed."""
        tensor, copy = leaf.tensor, leaf.copy
        if copy is None:
            return tensor.to(self._device)
        empty = self._empty.get(tensor.dtype)
        if empty is None:
            with self._torch.inference_mode(False):  # in a loop that evaluates it could not be changed afterwards
                empty = self._empty[tensor.dtype] = self._torch.empty(0, dtype=tensor.dtype, device=self._device)
        offset = (tensor.data_ptr() - copy.address) // tensor.element_size()
        return empty.data.set_(copy.buffer.untyped_storage(), offset, tensor.shape, tensor.stride())


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Tell whether a tensor is bytes in memory of the host, and nothing else."""
    kind = type(tensor), tensor.device.type, tensor.layout, tensor.requires_grad, tensor.is_nested
    return bool(kind == (torch.Tensor, "cpu", torch.strided, False, False) and tensor.numel())


def _lies_in(tensor: Any, buffer: Any) -> bool:
    """Tell whether a tensor lies in a buffer, without gaps, so that one over a copy of it looks the same."""
    offset = tensor.data_ptr() - buffer.data_ptr()
    if not 0 <= offset < buffer.nbytes or offset % tensor.element_size():
        return False
    if tensor.is_contiguous():
        return True
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return bool(1 + sum((length - 1) * step for length, step in steps) == tensor.numel())


class CudaOutput(PackedOutput):
    """Copies on a CUDA stream of its own. The training thread never waits for a copy; the training stream does, on the device.

    The training thread begins the copies, in `next()`: a thread of its own would take the interpreter lock from the training step, and a
    worker does not know which batches the loop takes next. So calls of PyTorch are counted: most of them let go of the interpreter lock,
    and a worker takes it. Those are a copy and a `record_stream` for a buffer, and one for each tensor. Without what CUDA takes, two
    tensors cost 11 us more than on the CPU.
    """

    def __init__(self, torch: Any, device: Any, depth: int, *args: Any) -> None:
        """Make the stream."""
        self._stream = torch.cuda.Stream(device)
        self._copying = torch.cuda.stream(self._stream)
        self._on_their_way: deque[tuple[Any, Any]] = deque()
        super().__init__(torch, device, depth, *args)
        weakref.finalize(self, _wait, self._stream, self._on_their_way).atexit = False

    def finish(self) -> None:
        """Wait until all copies have ended, and let go of their buffers."""
        super().finish()
        _wait(self._stream, self._on_their_way)

    def _begin(self, buffer: Any) -> _Copy:
        """Begin to copy. The buffer is held until the copy has ended: it must not be used again before."""
        with self._copying:
            copy = _Copy(buffer.data_ptr(), buffer.to(self._device, non_blocking=True, copy=True), self._stream.record_event(), [])
        self._on_their_way.append((copy.copied, buffer))
        return copy

    def receive(self, sent: Any) -> Any:
        """Let the current stream wait for the copies, on the device, and return the batch, which may be deleted at any time."""
        current = self._torch.cuda.current_stream(self._device.index)
        for copy in sent[1]:
            if current not in copy.streams:
                current.wait_event(copy.copied)
                # Its memory is of the copying stream: it must not be used there again before what `current` does with it by then has ended.
                copy.buffer.record_stream(current)
                copy.streams.append(current)  # last: an interrupt before it has both done again
        batch = super().receive(sent)
        while self._on_their_way and self._on_their_way[0][0].query():  # last: a buffer that comes back wakes a worker
            self._on_their_way.popleft()
        return batch


def _wait(stream: Any, on_their_way: deque[tuple[Any, Any]]) -> None:
    stream.synchronize()
    on_their_way.clear()
