"""Feed a language model with windows of a file of tokens, in a random order, without copying or loading the file.

    python examples/token_windows.py tokens.npy

The model here counts which token follows which: enough to see inputs, targets and loss.
"""

import sys

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import penstock as ps

WINDOW, BATCH_SIZE, EPOCHS = 64, 32, 2


def pipeline(token_file):
    tokens = np.load(token_file, mmap_mode="r")
    # A view: window i is tokens[i * WINDOW : (i + 1) * WINDOW + 1], the last one being the target of the one before.
    windows = sliding_window_view(tokens, WINDOW + 1)[::WINDOW]
    return ps.from_arrays(windows).shuffle(seed=7).batch(BATCH_SIZE, drop_remainder=True).map(split)


def split(windows):
    """Return int64 inputs and targets of a whole batch."""
    windows = windows.astype(np.int64)
    return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}


def main(token_file):
    dataset = pipeline(token_file)
    print(dataset, dataset.spec(), sep="\n")
    vocabulary = int(np.load(token_file, mmap_mode="r").max()) + 1
    counts = np.ones((vocabulary, vocabulary))
    with dataset.feed() as feed:
        feed.finalize()  # any batch of another shape would be an error
        for epoch in range(EPOCHS):
            for batch in feed:
                inputs, targets = batch["inputs"], batch["targets"]
                loss = -np.log(counts[inputs, targets] / counts[inputs].sum(-1)).mean()
                np.add.at(counts, (inputs, targets), 1)
                if feed.step % 20 == 0:
                    print(f"step {feed.step}, epoch {epoch}: loss {loss:.3f}")
        print(f"{feed.step} steps, last loss {loss:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
