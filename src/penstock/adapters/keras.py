"""A feed for `fit`, `evaluate` and `predict` of Keras 3, on its TensorFlow, PyTorch and JAX backends, and as a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock._contracts.element import map_leaves
from penstock.errors import MissingExtra, StateUnavailable


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


def keras_data(feed: Any, signature: Callable[[], Any], pick: Callable[[Any], Any]) -> Any:
    """Return a data adapter of Keras over a feed: each epoch of `fit`, and each `evaluate` or `predict`, is an epoch of it.

    Args:
        feed: of NumPy batches; `.feed` of what is returned.
        signature: returns the tree of `tf.TensorSpec` of a batch, for the TensorFlow backend.
        pick: makes what Keras is given of a batch, or of its signature: (inputs,), (inputs, targets) or (inputs, targets, weights).

    Raises:
        MissingExtra: Keras 3 is not installed.
    """
    try:
        from keras.src.trainers.data_adapters.data_adapter import DataAdapter
    except ImportError as error:
        raise MissingExtra(
            "to_keras() needs Keras 3", where="to_keras()", fix="install it as https://keras.io/getting_started says"
        ) from error

    class FeedAdapter(DataAdapter):  # type: ignore[misc]
        """Gives Keras batches in the form of its backend."""

        def __init__(self) -> None:
            self.feed, self._begun = feed, ("", -1, -1)

        def get_numpy_iterator(self) -> Iterator[Any]:
            # Keras takes one batch to build the model, two with JAX off the CPU, and then asks for the epoch from its start.
            state, step, epoch = self._begun
            if state and step < feed.step <= step + 2 and feed.epoch == epoch and self.num_batches not in (1, 2):
                feed.load_state_dict(state)
            try:
                state = feed.state_dict()
            except StateUnavailable:
                state = ""
            self._begun = state, feed.step, feed.epoch
            yield from map(pick, feed)

        get_jax_iterator = get_numpy_iterator

        def get_tf_dataset(self) -> Any:
            return tf_dataset(self.get_numpy_iterator, pick(signature()))

        def get_torch_dataloader(self) -> Any:
            return _torch_loader(self.get_numpy_iterator)

        @property
        def num_batches(self) -> int | None:
            try:
                return len(feed)
            except TypeError:  # known only after reading
                return None

        batch_size = partial_batch_size = None
        has_partial_batch = False

    return FeedAdapter()


def _torch_loader(epoch: Callable[[], Iterator[Any]]) -> Any:
    """Return a DataLoader of tensors, without workers: the feed has them."""
    import torch

    from penstock.adapters.torch import HostOutput

    output = HostOutput(torch)

    class Epoch(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            return (output.send(batch, [batch]) for batch in epoch())

    return torch.utils.data.DataLoader(Epoch(), batch_size=None)
