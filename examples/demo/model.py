"""A small model for the demo: one layer of learned filters on patches, averaged over the picture, and a softmax. Plain NumPy."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PatchNet"]

_Floats = NDArray[np.float32]

_POOL, _PATCH = 2, 4
_NUM_FILTERS = 32
_MOMENTUM = 0.9


class PatchNet:
    """Classify pictures by which learned filters answer on their patches.

    The same batches in the same order give the same weights, bit for bit: everything is computed in the calling thread with
    `numpy.einsum`, whose sums do not depend on the number of CPUs as those of a threaded BLAS may.

    Args:
        num_classes: how many labels there are.
        num_steps: how many steps there will be; the learning rate falls to zero over them.
        seed: of the first weights.
        rate: the learning rate of the first step.
    """

    def __init__(self, num_classes: int, *, num_steps: int, seed: int = 7, rate: float = 0.12) -> None:
        rng = np.random.default_rng(seed)
        patch_size = 3 * _PATCH * _PATCH
        self._rate, self._fall = rate, rate / num_steps
        self._weights: dict[str, _Floats] = {
            "filters": rng.normal(0, patch_size**-0.5, (_NUM_FILTERS, patch_size)).astype(np.float32),
            "filter_bias": np.zeros(_NUM_FILTERS, np.float32),
            "classes": rng.normal(0, _NUM_FILTERS**-0.5, (num_classes, _NUM_FILTERS)).astype(np.float32),
            "class_bias": np.zeros(num_classes, np.float32),
        }
        self._speeds = {name: np.zeros_like(value) for name, value in self._weights.items()}

    def train(self, images: _Floats, labels: NDArray[Any]) -> float:
        """Do one step of SGD with momentum and return the mean loss before it.

        Args:
            images: float32 (batch, 3, height, width), normalised; height and width divisible by 8.
            labels: integers (batch,).
        """
        patches = _patches(images)
        answers, means, logits = self._forward(patches)
        chances = _softmax(logits)
        rows = np.arange(len(labels))
        loss = -float(np.log(chances[rows, labels] + np.float32(1e-9)).mean())
        slope = chances
        slope[rows, labels] -= 1
        slope /= np.float32(len(labels))
        # The mean over the patches sends the same slope to each of them, where the filter answered at all.
        back = np.einsum("bc,cf->bf", slope, self._weights["classes"]) / np.float32(answers.shape[2])
        filter_slope = (answers > 0) * back[:, :, None]
        self._descend("classes", np.einsum("bc,bf->cf", slope, means))
        self._descend("class_bias", slope.sum(axis=0))
        self._descend("filters", np.einsum("bfp,bkp->fk", filter_slope, patches))
        self._descend("filter_bias", filter_slope.sum(axis=(0, 2)))
        self._rate = max(0.0, self._rate - self._fall)
        return loss

    def predict(self, images: _Floats) -> NDArray[np.int64]:
        """Return the likeliest label of each picture, int64 (batch,)."""
        logits = self._forward(_patches(images))[2]
        labels: NDArray[np.int64] = logits.argmax(axis=1).astype(np.int64)
        return labels

    def digest(self) -> str:
        """Return the SHA-256 of all weights, in hexadecimal."""
        state = hashlib.sha256()
        for name, value in self._weights.items():
            state.update(name.encode())
            state.update(np.ascontiguousarray(value).tobytes())
        return state.hexdigest()

    def _forward(self, patches: _Floats) -> tuple[_Floats, _Floats, _Floats]:
        weights = self._weights
        answers = np.einsum("fk,bkp->bfp", weights["filters"], patches)
        answers += weights["filter_bias"][None, :, None]
        np.maximum(answers, 0, out=answers)
        means = answers.mean(axis=2)
        logits = np.einsum("bf,cf->bc", means, weights["classes"]) + weights["class_bias"]
        return answers, means, logits

    def _descend(self, name: str, slope: _Floats) -> None:
        speed = self._speeds[name]
        speed *= np.float32(_MOMENTUM)
        speed -= np.float32(self._rate) * slope
        self._weights[name] += speed


def _patches(images: _Floats) -> _Floats:
    """Shrink the pictures by averaging and lay their patches out as (batch, patch size, patches), contiguous."""
    small = images[:, :, 0::_POOL, 0::_POOL] + images[:, :, 1::_POOL, 0::_POOL]
    small += images[:, :, 0::_POOL, 1::_POOL]
    small += images[:, :, 1::_POOL, 1::_POOL]
    small *= np.float32(1 / _POOL**2)
    batch, channels, height, width = small.shape
    tiles = small.reshape(batch, channels, height // _PATCH, _PATCH, width // _PATCH, _PATCH)
    return np.ascontiguousarray(tiles.transpose(0, 1, 3, 5, 2, 4)).reshape(batch, channels * _PATCH * _PATCH, -1)


def _softmax(logits: _Floats) -> _Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances: _Floats = powers / powers.sum(axis=1, keepdims=True)
    return chances
