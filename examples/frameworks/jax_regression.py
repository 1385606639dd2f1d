"""Train in JAX on batches laid over all devices, and go on from a saved state.

python examples/frameworks/jax_regression.py [--epochs 5]
"""

import argparse

import jax
import numpy as np

import penstock as ps


def pipeline():
    rows = np.random.default_rng(0).normal(size=(512, 8)).astype(np.float32)
    return ps.from_arrays({"x": rows, "y": rows @ np.arange(8, dtype=np.float32)}).shuffle(seed=7).batch(64, drop_remainder=True)


@jax.jit
def step(weights, batch):
    """Return new weights and the loss."""
    loss, gradient = jax.value_and_grad(lambda w: ((batch["x"] @ w - batch["y"]) ** 2).mean())(weights)
    return weights - 0.1 * gradient, loss


def train(weights, epochs, state=None):
    """Return the weights, the state of the feed and the losses behind so many epochs in all."""
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    losses = []
    with pipeline().feed(output=ps.Jax(sharding=sharding)) as feed:
        if state is not None:
            feed.load_state_dict(state)
        for _ in range(feed.epoch, epochs):
            for batch in feed:
                weights, loss = step(weights, batch)
                losses.append(float(loss))
        return weights, feed.state_dict(), losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs
    start = jax.numpy.zeros(8)
    _, _, whole = train(start, epochs)
    weights, state, first = train(start, epochs // 2)
    weights, _, rest = train(weights, epochs, state)
    print(f"{jax.device_count()} device(s), {len(whole)} steps: loss {whole[0]:.2f} -> {whole[-1]:.5f}")
    print(f"stopped behind epoch {epochs // 2} and resumed: the same losses: {first + rest == whole}")
    print(f"weights: {np.round(np.asarray(weights), 2).tolist()}")


if __name__ == "__main__":
    main()
