"""Batches as JAX arrays, copied ahead of the training step, and laid out over devices and processes by a sharding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock._contracts.element import mapped
from penstock._contracts.frameworks import Output, Pin
from penstock._contracts.options import Jax
from penstock.errors import MissingExtra, PlanError, SpecError


def jax_output(options: Jax) -> Output:
    """Return what makes JAX arrays of batches, as the values of `ps.Jax` say.

    Raises:
        MissingExtra: JAX is not installed.
        PlanError: `device` is no device of JAX.
    """
    try:
        import jax
    except ImportError as error:
        raise MissingExtra(
            "output='jax' needs JAX",
            where="feed options",
            fix="install it as https://docs.jax.dev/en/latest/installation.html says for your machine",
        ) from error

    device, sharding = options.device, options.sharding
    if isinstance(device, str):
        try:
            device = jax.local_devices(backend=device)[0]
        except RuntimeError as error:
            raise PlanError(
                f"device={device!r} cannot be used: {str(error).splitlines()[0]}",
                where="feed options",
                fix="give a platform that JAX has here, such as 'cpu', or one of jax.local_devices()",
            ) from error
    return JaxOutput(jax, sharding, device, options.depth, options.transform)


class JaxOutput:
    """Copies a batch to a device with one `device_put`: on an H200 that takes 120 us, and `jax.numpy.array` took 704.

    JAX holds the arrays until they are copied, and their buffer is not written before. On a CPU it would lay its own over the buffer: there
    each is copied.
    """

    allocate: Callable[[int], Any] | None = None
    pin: Pin | None = None

    def __init__(self, jax: Any, sharding: Any, device: Any, depth: int, transform: Callable[[Any], Any] | None) -> None:
        """Copy to `sharding`, one or a dict by field, or to `device`, or where JAX puts arrays by default."""
        self._jax, self._sharding, self._device = jax, sharding, device
        self.depth, self._transform = depth, transform
        self.spans_processes = sharding is not None and jax.process_count() > 1

    def send(self, batch: Any, group: list[Any]) -> Any:
        """Copy a batch; JAX brings the copy to other devices than CPUs in the background."""
        device = self._device or self._jax.config.jax_default_device or self._jax.local_devices()[0]
        if self._sharding is not None or getattr(device, "platform", "cpu") == "cpu":
            return self._laid_out(batch, self._sharding)
        return self.put(batch)

    def put(self, batch: Any) -> Any:
        """Give all arrays of a batch to JAX at once."""
        arrays: list[Any] = []
        mapped(batch, lambda value: arrays.append(value) if _is_known(value) else None, (np.ndarray, np.generic))
        moved = iter(self._jax.device_put(arrays, self._device))
        return mapped(batch, lambda value: next(moved) if _is_known(value) else value, (np.ndarray, np.generic))

    def _laid_out(self, tree: Any, sharding: Any) -> Any:
        """Copy a tree to one sharding, or each field of it to its own; a field that is not named goes where JAX puts arrays by default."""
        if not isinstance(sharding, Mapping):
            return mapped(tree, lambda value: self._put(value, sharding), (np.ndarray, np.generic))
        fields = tree.keys() if isinstance(tree, Mapping) else set[Any]()
        if sharding.keys() - fields:
            raise SpecError(
                f"sharding= names the fields {sorted(map(str, sharding))}, and the batch has {sorted(map(str, fields)) or 'none'}",
                where="feed options, sharding=",
                fix="name the fields of the batch, or give one sharding for all arrays",
            )
        return {key: self._laid_out(value, sharding.get(key)) for key, value in tree.items()}

    def receive(self, sent: Any) -> Any:
        """Return the transformed batch."""
        return sent if self._transform is None else self._transform(sent)

    def finish(self) -> None:
        """Do nothing: JAX has copies of its own."""

    def _put(self, value: Any, sharding: Any) -> Any:
        if not _is_known(value):
            return value
        jax = self._jax
        if sharding is None:
            return jax.numpy.array(value, copy=True, device=self._device)
        try:
            return jax.make_array_from_process_local_data(sharding, np.array(value, copy=True))
        except ValueError as error:
            raise SpecError(
                f"an array of shape {value.shape} cannot be laid out as {sharding}: {str(error).splitlines()[0]}",
                where="feed options, sharding=",
                fix="choose a batch size that the number of devices of this process divides, with drop_remainder=True",
            ) from error


def _is_known(value: Any) -> bool:
    """Tell whether JAX has such values: it has no texts, dates, objects and records."""
    return not (value.dtype.kind in "OUSMm" or value.dtype.type is np.void)
