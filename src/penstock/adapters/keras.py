"""A feed for `fit`, `evaluate` and `predict` of Keras 3, on its TensorFlow, PyTorch and JAX backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.adapters.tensorflow import signature_of, tf_dataset
from penstock.errors import MissingExtra, StateUnavailable

__all__ = ["keras_data"]


def keras_data(feed: Any, spec: Any, free: Callable[[int], bool], pick: Callable[[Any], Any]) -> Any:
    """Return a data adapter of Keras over a feed: each epoch of `fit`, and each `evaluate` or `predict`, is an epoch of it.

    Args:
        feed: of NumPy batches; `.feed` of what is returned.
        spec: the tree of `ArraySpec` of a batch.
        free: tells which dimensions of a leaf may be of any size.
        pick: makes what Keras is given of a batch, or of its spec: (inputs,), (inputs, targets) or (inputs, targets, weights).

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
            return tf_dataset(self.get_numpy_iterator, signature_of(pick(spec), free))

        def get_torch_dataloader(self) -> Any:
            return _torch_loader(self.get_numpy_iterator)

        @property
        def num_batches(self) -> int | None:
            try:
                return len(feed)
            except TypeError:  # known only after reading
                return None

        @property
        def batch_size(self) -> None:
            return None

        @property
        def has_partial_batch(self) -> bool:
            return False

        @property
        def partial_batch_size(self) -> None:
            return None

    return FeedAdapter()


def _torch_loader(epoch: Callable[[], Iterator[Any]]) -> Any:
    """Return a DataLoader of tensors, without workers: the feed has them."""
    import torch

    from penstock.adapters.torch import HostOutput

    output = HostOutput(torch.from_numpy)

    class Epoch(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            return map(output.send, epoch())

    return torch.utils.data.DataLoader(Epoch(), batch_size=None)
