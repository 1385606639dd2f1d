"""A map function that the engine may fuse with its neighbours and let write straight into a batch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Own(threading.local):
    """What each thread has of an object for itself. In another process there is nothing yet."""

    def __reduce__(self) -> tuple[type[Own], tuple[()]]:
        return Own, ()


class Scratch:
    """Reusable working arrays of one worker thread. What is taken here must never leave the worker.

    Not thread-safe: each worker owns one.

    Attributes:
        ahead: int64 [1]; a source that reads several elements into it counts here how far it is; other threads read it.
    """

    __slots__ = ("_arrays", "_buffers", "_held", "ahead")

    def __init__(self) -> None:
        self.ahead = np.zeros(1, np.int64)
        self._arrays: dict[str, NDArray[Any]] = {}
        self._buffers: dict[str, NDArray[np.uint8]] = {}
        self._held: dict[str, Any] = {}

    @classmethod
    def of(cls, own: threading.local) -> Scratch:
        """Return the one of this thread, which `own` keeps."""
        found = own.__dict__
        if "scratch" not in found:
            found["scratch"] = cls()
        scratch: Scratch = found["scratch"]
        return scratch

    def take(self, tag: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an uninitialised C-contiguous array over the buffer named `tag`, grown when it is too small."""
        last = self._arrays.get(tag)
        if last is not None and last.shape == shape and last.dtype == dtype:
            return last
        kind = np.dtype(dtype)
        num_bytes = math.prod(shape) * kind.itemsize
        buffer = self._buffers.get(tag)
        if buffer is None or buffer.nbytes < num_bytes:
            buffer = self._buffers[tag] = np.empty(max(num_bytes, 4096), np.uint8)
        array: NDArray[Any] = np.ndarray(shape, kind, buffer)
        self._arrays[tag] = array
        return array

    def hold(self, tag: str, make: Callable[[], T]) -> T:
        """Return the object named `tag`, made at the first call; it goes with the scratch."""
        if tag not in self._held:
            self._held[tag] = make()
        held: T = self._held[tag]
        return held


@runtime_checkable
class Drawing(Protocol):
    """A function of an element that says how many random numbers it takes from its `rng`."""

    @property
    def num_draws(self) -> int:
        """How many uniform [0, 1) float64 numbers it uses per element; 0 when it is not random."""


@runtime_checkable
class Transform(Drawing, Protocol):
    """One step on one field of an element. Frozen; the same object serves all threads.

    As a plain function (`transform(element)`, `transform(element, rng=generator)`) it returns a new element dict and leaves the
    given one as it was. The engine calls `apply`, with `draws` = what `rng.random(num_draws)` would have given.
    """

    @property
    def field(self) -> str:
        """The field that it reads."""

    @property
    def out_field(self) -> str:
        """The field that it writes (the same unless `out=` named another)."""

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch | None, out: NDArray[Any] | None) -> NDArray[Any]:
        """Compute the field's new value.

        Args:
            value: the field's value (bytes for a decoder, an HWC array for the others). It may be a view or scratch: do not keep it,
                do not write to it.
            draws: `num_draws` numbers in [0, 1).
            scratch: working memory, or None. The result may be a view of `value` or of scratch only when scratch was given and
                `out` was not; with scratch None the result is a new array or a view of `value`.
            out: where to write the result, a C-contiguous row of a batch. When its shape or dtype is not the result's, `out` is
                left alone and a new array is returned; otherwise `out` itself is returned.
        """


@runtime_checkable
class BlockTransform(Transform, Protocol):
    """A transform that can also do a whole block of equally shaped values in one call."""

    def apply_block(
        self, values: NDArray[Any], draws: NDArray[np.float64], scratch: Scratch | None, out: NDArray[Any] | None
    ) -> NDArray[Any] | None:
        """Do `values[i]` with `draws[i]` for all i at once: the same bytes as `apply` on each.

        Returns None when this block cannot be done so (the caller then goes value by value). `scratch` and `out` as in `apply`, with a
        leading dimension of the block's length.
        """


@runtime_checkable
class FusedTransform(Transform, Protocol):
    """Several transforms in one: the same bytes as one after the other; its draws are theirs, in order."""

    @property
    def parts(self) -> tuple[Transform, ...]:
        """What it does, in order."""


class Writer(Protocol):
    """Does a block value by value, and writes several results with one call."""

    def apply(self, value: Any, draws: Sequence[float], scratch: Scratch, out: NDArray[Any]) -> NDArray[Any]:
        """Do what `Transform.apply` does; the numbers need not stand in the result before `finish`."""

    def finish(self) -> None:
        """Write all that is not written yet. Without this call, as where a value failed, it never is."""


@runtime_checkable
class WritingTransform(Transform, Protocol):
    """A transform that can put off writing a result until there are several."""

    def writer(self) -> Writer:
        """Return what does one block."""


@runtime_checkable
class Noticing(Protocol):
    """A function of an element that knows what of it does nothing in a plan, or is not what it looks like."""

    def notice(self, seed: int, following: Sequence[tuple[Any, int]], right_behind: Any) -> str:
        """Say so, or return "".

        Args:
            seed: of its map.
            following: the functions of the maps above it, each with its seed.
            right_behind: the one that gets what this one gives, or None.
        """


@runtime_checkable
class FusingTransform(Transform, Protocol):
    """A transform that can do some of those behind it at the same time, cheaper than one by one."""

    def fuse(self, following: Sequence[Transform]) -> FusedTransform | None:
        """Return itself and the first ones of `following` as one, or None."""


@runtime_checkable
class BlockFunction(Protocol):
    """A function of one element that computes several at a time where that is cheaper."""

    def over_block(self, elements: Sequence[Any]) -> Callable[[Any], Any] | None:
        """Return what is called with each of the elements, in order, in place of the function; None for the function itself.

        A call may compute the results of elements further on, and keep them. It raises only for an element that fails by itself.
        """
