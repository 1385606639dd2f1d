"""Batches as PyTorch tensors: over the same memory on a CPU, copied ahead of the training step to a device."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock._contracts.element import entries_of
from penstock._contracts.frameworks import Output
from penstock._contracts.options import Options
from penstock.errors import MissingExtra, PlanError

__all__ = ["mapped", "torch_output"]

_KNOWN = frozenset("?bBhHiIlLqQefdFD")
"""The dtypes, as NumPy's characters, that PyTorch has too. Arrays of others, such as texts and dates, stay NumPy."""


def torch_output(options: Options) -> Output:
    """Return what makes tensors of batches, as `output`, `device`, `pin_memory`, `depth` and `device_transform` say.

    Raises:
        MissingExtra: PyTorch is not installed.
        PlanError: PyTorch finds no such device, or cannot pin memory.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(
            "output='torch' needs PyTorch", where="feed options", fix="install it as https://pytorch.org/get-started says for your machine"
        ) from error

    torch.utils.data.IterableDataset.register(_feed_class())
    device = None if options.device is None else _device(torch, options.device)
    pins = options.pin_memory is True or (options.pin_memory == "auto" and device is not None and device.type == "cuda")
    allocate = _pinned(torch) if pins else None
    if device is None or device.type == "cpu":
        return HostOutput(torch, options.device_transform, allocate)
    if device.type == "cuda":
        return CudaOutput(torch, device, options.depth, options.device_transform, allocate)
    return DeviceOutput(torch, device, options.depth, options.device_transform, allocate)


def _feed_class() -> type:
    from penstock.feed import Feed

    return Feed


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


def mapped(tree: Any, convert: Callable[[Any], Any], kinds: type | tuple[type, ...]) -> Any:
    """Return a tree with `convert` applied to the leaves of some types, the others as they are."""
    if isinstance(tree, kinds):
        return convert(tree)
    if isinstance(tree, tuple):
        values = (mapped(value, convert, kinds) for value in tree)
        return type(tree)(*values) if hasattr(tree, "_fields") else tuple(values)
    if isinstance(tree, list):
        return [mapped(value, convert, kinds) for value in tree]
    entries = entries_of(tree)
    return tree if entries is None else {key: mapped(value, convert, kinds) for key, value in entries.items()}


class HostOutput:
    """Makes CPU tensors over the arrays' own memory: a buffer is used again after the last tensor over it is deleted."""

    depth = 0

    def __init__(self, torch: Any, transform: Callable[[Any], Any] | None = None, allocate: Callable[[int], Any] | None = None) -> None:
        """Call `transform` with each batch of tensors; with `allocate`, tensors that a function of the user's made are pinned, too."""
        self._torch, self._from_numpy, self._transform, self.allocate = torch, torch.from_numpy, transform, allocate

    def send(self, batch: Any) -> Any:
        """Return the batch with a tensor in place of each array and NumPy scalar that PyTorch has a dtype for."""
        tensors = mapped(batch, self._tensor, (np.ndarray, np.generic))
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
        if dtype.char not in _KNOWN:
            return value
        if isinstance(value, np.generic):
            value = np.array(value)
        elif not (dtype.isnative and value.flags.writeable and min(value.strides, default=0) >= 0):
            value = np.array(value, dtype.newbyteorder("="), order="C")  # PyTorch has no such tensors
        return self._from_numpy(value)


class DeviceOutput(HostOutput):
    """Copies tensors to a device, `depth` batches ahead."""

    def __init__(
        self,
        torch: Any,
        device: Any,
        depth: int,
        transform: Callable[[Any], Any] | None,
        allocate: Callable[[int], Any] | None,
    ) -> None:
        """Copy to `device`; `transform` is called with each batch of tensors on it."""
        super().__init__(torch, transform, allocate)
        self._device, self.depth = device, depth

    def send(self, batch: Any) -> Any:
        """Copy a batch to the device."""
        return mapped(super().send(batch), lambda tensor: tensor.to(self._device), self._torch.Tensor)


class CudaOutput(DeviceOutput):
    """Copies tensors on a CUDA stream of its own. The training thread never waits for a copy; the training stream does, on the device."""

    def __init__(self, torch: Any, device: Any, depth: int, transform: Callable[[Any], Any] | None, allocate: Any) -> None:
        """Make the stream."""
        super().__init__(torch, device, depth, transform, allocate)
        self._stream = torch.cuda.Stream(device)
        self._on_their_way: deque[tuple[Any, Any]] = deque()
        weakref.finalize(self, _wait, self._stream, self._on_their_way).atexit = False

    def finish(self) -> None:
        """Wait until all copies have ended, and let go of their arrays."""
        _wait(self._stream, self._on_their_way)

    def send(self, batch: Any) -> Any:
        """Begin to copy a batch. Its arrays are held until the copy has ended: their buffer must not be used again before."""
        torch = self._torch
        while self._on_their_way and self._on_their_way[0][0].query():
            self._on_their_way.popleft()
        with torch.cuda.stream(self._stream):
            sent = mapped(HostOutput.send(self, batch), lambda tensor: tensor.to(self._device, non_blocking=True), torch.Tensor)
            copied = self._stream.record_event()
        self._on_their_way.append((copied, batch))
        return sent, copied

    def receive(self, sent: Any) -> Any:
        """Let the current stream wait for the copy, on the device, and return the batch, which may be deleted at any time."""
        tensors, copied = sent
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(copied)
        # Their memory is of the copying stream: it must not be used there again before what `current` does with them by now has ended.
        mapped(tensors, lambda tensor: tensor.record_stream(current), self._torch.Tensor)
        return super().receive(tensors)


def _wait(stream: Any, on_their_way: deque[tuple[Any, Any]]) -> None:
    stream.synchronize()
    on_their_way.clear()
