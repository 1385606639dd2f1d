"""Train a small GPT on packed sequences: several short texts side by side in each row, and no token attends to another text.

    python examples/frameworks/torch_gpt.py [--steps 40]

The texts are made up: sums such as "12+7=19". No model or data is fetched.
"""

import argparse

import numpy as np
import torch

import penstock as ps

CHARACTERS = "0123456789+=\n"
LENGTH, BATCH_SIZE, WIDTH, HEADS, LAYERS = 64, 16, 64, 4, 2


def text(number, rng):
    """Return the tokens of a sum; the same for a number in each epoch of a seed, whatever worker makes it."""
    a, b = rng.integers(0, 50, 2)
    return np.array([CHARACTERS.index(c) for c in f"{a}+{b}={a + b}\n"], np.int64)


def pipeline():
    return ps.from_source(range(20_000)).shuffle(seed=7).map(text, seed=1).pack_sequences(LENGTH).batch(BATCH_SIZE, drop_remainder=True)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, mask):
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norms[1](x))


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(len(CHARACTERS), WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = torch.nn.Linear(WIDTH, len(CHARACTERS))

    def forward(self, batch):
        """Return the mean loss over the tokens that have a next one in their own text."""
        tokens, segments = batch["tokens"], batch["segment_ids"]
        same = segments[:, :, None] == segments[:, None, :]
        mask = (same & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())[:, None]
        x = self.tokens(tokens) + self.places(batch["positions"].long())
        for block in self.blocks:
            x = block(x, mask)
        counts = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
        losses = torch.nn.functional.cross_entropy(self.head(x)[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
        return (losses * counts).sum() / counts.sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    net = GPT()
    adam = torch.optim.AdamW(net.parameters(), 3e-3)
    with pipeline().feed(output="torch") as feed:
        for batch in feed:
            loss = net(batch)
            adam.zero_grad()
            loss.backward()
            adam.step()
            if feed.step % 10 == 0:
                print(f"step {feed.step}: loss {loss.item():.3f}")
            if feed.step == steps:
                break
        print(f"{100 * feed.stats().padding_share:.1f} % of the places are padding")


if __name__ == "__main__":
    main()
