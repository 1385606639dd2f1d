"""The reader of a file list: lines `path label`, decoded, centred, one-hot, shuffled, in batches, for some epochs.

    python examples/classic/file_list_reader.py train.txt [--epochs 2]

Shows: the classic chain of string_input_producer, WholeFileReader, decode_jpeg and shuffle_batch, or of the tf.data program that followed
it, `map(parse).shuffle(1000).batch(128).repeat(epochs)`, as one plan. The shuffle is of positions, not of decoded images: 1,000 of those
would be 600 MB. The same seed gives the same order with any number of workers, and `feed.state_dict()` goes on in the middle of an epoch.
"""

import argparse
import collections

import numpy as np

import penstock as ps

MEAN = np.array([123.68, 116.779, 103.938], np.float32)  # of the red, green and blue channel of ImageNet
SIZE = 224


def pipeline(list_file, num_classes, batch_size, epochs):
    one_hot = np.eye(num_classes, dtype=np.float32)

    def centred(element):
        """Take the mean colour off, and make the label one-hot."""
        return {"image": element["data"].astype(np.float32) - MEAN, "label": one_hot[element["label"]]}

    return (
        ps.read_list(list_file, num_classes=num_classes)
        .shuffle(seed=7, buffer_size=1000)
        .map(ps.image.decode("data"))
        .map(ps.image.resize("data", (SIZE, SIZE)))
        .map(centred)
        .batch(batch_size)
        .repeat(epochs)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("list_file")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-classes", type=int, default=4)
    options = parser.parse_args()
    ds = pipeline(options.list_file, options.num_classes, options.batch_size, options.epochs)
    print(ds.spec())
    seen = collections.Counter()
    with ds.feed() as feed:
        for batch in feed:
            seen.update(batch["label"].argmax(axis=1).tolist())
            print(f"step {feed.step}: images {batch['image'].shape}, mean {batch['image'].mean():.1f}")
    print("images per class: " + ", ".join(f"{label}: {count}" for label, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
