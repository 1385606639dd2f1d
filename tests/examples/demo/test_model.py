"""The demo's model: it learns, and the same batches give the same weights bit for bit."""

from __future__ import annotations

import numpy as np

from model import PatchNet


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pictures of two kinds: stripes along one axis or the other, with noise."""
    rng = np.random.default_rng(3)
    stripes = np.sin(np.arange(32) * 0.8)[:, None] * np.ones(32)
    made = []
    for _ in range(count):
        labels = rng.integers(0, 2, 16)
        images = np.where(labels[:, None, None, None] == 0, stripes, stripes.T) + rng.normal(0, 0.3, (16, 3, 32, 32))
        made.append((images.astype(np.float32), labels))
    return made


def test_training_lowers_the_loss_and_gets_new_pictures_right() -> None:
    model = PatchNet(2, num_steps=70)
    data = batches(80)
    losses = [model.train(images, labels) for images, labels in data[:70]]
    assert losses[-1] < 0.5 * losses[0]
    right = np.mean([model.predict(images) == labels for images, labels in data[70:]])
    assert right > 0.95


def test_the_same_batches_give_the_same_weights_wherever_they_lie_in_memory() -> None:
    one, other = PatchNet(2, num_steps=10), PatchNet(2, num_steps=10)
    for number, (images, labels) in enumerate(batches(10)):
        one.train(images, labels)
        room = np.zeros(images.size + 16, np.float32)
        moved = room[number : number + images.size].reshape(images.shape)
        moved[:] = images
        other.train(moved, labels)
    assert one.digest() == other.digest()


def test_another_order_gives_other_weights() -> None:
    one, other = PatchNet(2, num_steps=10), PatchNet(2, num_steps=10)
    data = batches(4)
    for images, labels in data:
        one.train(images, labels)
    for images, labels in reversed(data):
        other.train(images, labels)
    assert one.digest() != other.digest()


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    images, labels = batches(1)[0]

    def loss_with(change: float) -> float:
        model = PatchNet(2, num_steps=1, rate=0.0)
        model._weights["filters"][3, 5] += change
        return model.train(images, labels)

    slope = (loss_with(1e-2) - loss_with(-1e-2)) / 2e-2
    model = PatchNet(2, num_steps=1, rate=1.0)
    before = model._weights["filters"][3, 5]
    model.train(images, labels)
    np.testing.assert_allclose(before - model._weights["filters"][3, 5], slope, rtol=0.05, atol=1e-4)
