"""PyTorch's tensors between processes: as arrays go, through shared memory. PyTorch would write their bytes into the pickle.

PyTorch is not imported here: a tensor is there only where it is loaded, and what makes it again is found by its name.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["is_tensor", "reduced_tensor"]


def is_tensor(kind: type) -> bool:
    """Tell whether objects of a type are plain tensors, and not of a subclass."""
    return kind is getattr(sys.modules.get("torch"), "Tensor", None)


def reduced_tensor(tensor: Any) -> Any:
    """Return what pickle asks a tensor for: how it is made again over a buffer. A special one goes as PyTorch has it."""
    torch: Any = sys.modules["torch"]
    if tensor.layout is torch.sparse_coo and not tensor.requires_grad:  # PyTorch keeps those that it unpickles until the next torch.load
        make = partial(torch.sparse_coo_tensor, is_coalesced=tensor.is_coalesced(), check_invariants=False)
        return make, (tensor._indices(), tensor._values(), tuple(tensor.shape))
    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad and not tensor.is_quantized
    if not is_plain or tensor.is_conj() or tensor.is_neg() or tensor.is_nested or tensor.__dict__:
        return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    size, stride = tuple(tensor.shape), None
    if not tensor.numel():
        return partial(torch.empty, dtype=tensor.dtype), (size,)
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
