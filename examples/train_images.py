"""Train a small classifier and survive any kill: python examples/train_images.py train.txt checkpoint.npz.

`train.txt` has lines `path label`. Start it again after a kill: it goes on from the checkpoint and ends with the same weights.
"""

import json
import os
import sys
import zlib

import numpy as np

import penstock as ps

MEAN, STD, SIZE, NUM_CLASSES, EPOCHS = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), 16, 4, 80


def pipeline(list_file):
    return (
        ps.read_list(list_file)
        .shuffle(seed=1)
        .map(ps.image.decode("data"))
        .map(ps.image.random_resized_crop("data", SIZE), seed=2)
        .map(ps.image.normalize("data", MEAN, STD))
        .batch(16, drop_remainder=True)
    )


def train_step(weights, batch, rate=0.01):
    pixels = batch["data"].reshape(len(batch["label"]), -1)
    scores = np.exp(pixels @ weights)
    error = scores / scores.sum(1, keepdims=True) - np.eye(NUM_CLASSES, dtype=np.float32)[batch["label"]]
    return weights - rate * pixels.T @ error / len(pixels)


def save(checkpoint, weights, feed):
    with open(checkpoint + ".part", "wb") as file:
        np.savez(file, weights=weights, feed=json.dumps(feed.state_dict()))
        file.flush()
        os.fsync(file.fileno())
    os.replace(checkpoint + ".part", checkpoint)  # the old checkpoint or the new one, never half of one


def main(list_file, checkpoint):
    weights = np.zeros((3 * SIZE * SIZE, NUM_CLASSES), np.float32)
    with pipeline(list_file).feed() as feed:
        if os.path.exists(checkpoint):
            with np.load(checkpoint) as saved:
                weights, state = saved["weights"], str(saved["feed"])
            feed.load_state_dict(state)
        for epoch in range(feed.epoch, EPOCHS):
            for batch in feed:  # another order and other crops in each epoch
                weights = train_step(weights, batch)
                if feed.step % 10 == 0:
                    save(checkpoint, weights, feed)
                print(f"step {feed.step}, epoch {epoch}, weights {zlib.crc32(weights.tobytes()):08x}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
