"""Where batches go: tensors of PyTorch, arrays of JAX, datasets of TensorFlow and Keras.

Each framework is imported when it is first asked for.
"""

from __future__ import annotations

from penstock._contracts.frameworks import Output
from penstock._contracts.options import Options

__all__ = ["output_of"]


def output_of(options: Options) -> Output | None:
    """Return what makes batches those of the options' framework; None leaves them NumPy.

    Raises:
        MissingExtra: the framework is not installed.
        PlanError: there is no such device, or memory cannot be pinned for it.
    """
    if options.output == "torch":
        from penstock.adapters.torch import torch_output

        return torch_output(options)
    if options.output == "jax":
        from penstock.adapters.jax import jax_output

        return jax_output(options)
    return None
