"""Where batches go: tensors of PyTorch, arrays of JAX, datasets of TensorFlow and Keras.

Each framework is imported when it is first asked for.
"""

from __future__ import annotations

from penstock._contracts.frameworks import Output
from penstock._contracts.options import Jax, OutputOption, Torch

__all__ = ["output_of"]


def output_of(output: OutputOption) -> Output | None:
    """Return what makes batches those of a framework; None leaves them NumPy.

    Raises:
        MissingExtra: the framework is not installed.
        PlanError: there is no such device, or memory cannot be pinned for it.
    """
    if isinstance(output, Torch):
        from penstock.adapters.torch import torch_output

        return torch_output(output)
    if isinstance(output, Jax):
        from penstock.adapters.jax import jax_output

        return jax_output(output)
    return None
