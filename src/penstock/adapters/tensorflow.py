"""A feed as a `tf.data.Dataset` of whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock._contracts.element import map_leaves
from penstock.errors import MissingExtra

__all__ = ["signature_of", "tf_dataset"]


def tf_dataset(epoch: Callable[[], Iterator[Any]], signature: Any) -> Any:
    """Return a `tf.data.Dataset` whose iterations are those of `epoch()`.

    Args:
        epoch: returns an iterator of batches; it is called when an iteration begins, in a thread of TensorFlow's.
        signature: the tree of `tf.TensorSpec` of a batch.
    """
    tf = _tensorflow()
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # the feed reads ahead itself, and its state counts what was trained
    return tf.data.Dataset.from_generator(epoch, output_signature=signature).with_options(options)


def signature_of(spec: Any, free: Callable[[int], bool]) -> Any:
    """Return the `tf.TensorSpec` of each leaf of a spec; dimension d may be of any size where `free(d)`. Texts and objects are strings."""
    tf = _tensorflow()

    def tensor_spec(leaf: Any) -> Any:
        shape = [None if free(place) else size for place, size in enumerate(leaf.shape)]
        return tf.TensorSpec(shape, tf.string if np.dtype(leaf.dtype).kind in "OSU" else tf.as_dtype(leaf.dtype))

    return map_leaves(tensor_spec, spec)


def _tensorflow() -> Any:
    try:
        import tensorflow
    except ImportError as error:
        raise MissingExtra(
            "to_tf() needs TensorFlow", where="to_tf()", fix="install it as https://www.tensorflow.org/install says"
        ) from error
    return tensorflow
