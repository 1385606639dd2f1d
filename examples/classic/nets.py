"""The two-layer net of the classic comparison, in NumPy and in PyTorch, and a stand-in for a GPU: see two_layer_net.py.

128 x 1024 inputs, 1,024 ReLU, one logit, Adam with 1e-2, label = whether the inputs add up to more than 0.
"""

import time
import zlib

import numpy as np

BATCH, WIDTH, RATE = 128, 1024, 1e-2


def make_batch(step):
    """Return (inputs, labels) of a step: float32 (128, 1024) and (128, 1)."""
    inputs = np.random.default_rng(step).standard_normal((BATCH, WIDTH)).astype(np.float32)
    return inputs, (inputs.sum(axis=1, keepdims=True) > 0).astype(np.float32)


class NumpyNet:
    on_gpu = False

    def __init__(self):
        rng = np.random.default_rng(7)
        self.weights = [rng.standard_normal(shape).astype(np.float32) / 32 for shape in ((WIDTH, WIDTH), (WIDTH, 1))]
        self.moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights]
        self.step = 0

    def train(self, inputs, labels):
        """Make one step of Adam; return the share of right answers before it."""
        hidden = np.maximum(inputs @ self.weights[0], 0)
        logits = hidden @ self.weights[1]
        error = (1 / (1 + np.exp(-np.clip(logits, -30, 30))) - labels) / BATCH  # of the cross-entropy, by the logits
        slopes = [inputs.T @ (error @ self.weights[1].T * (hidden > 0)), hidden.T @ error]
        self.step += 1
        for weight, slope, (mean, square) in zip(self.weights, slopes, self.moments, strict=True):
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope * slope - square)
            weight -= RATE * (mean / (1 - 0.9**self.step)) / (np.sqrt(square / (1 - 0.999**self.step)) + 1e-8)
        return np.mean((logits > 0) == labels)


class TorchNet:
    def __init__(self):
        import torch

        self.torch = torch.manual_seed(7) and torch
        self.on_gpu = torch.cuda.is_available()
        self.device = "cuda" if self.on_gpu else "cpu"
        self.net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)).to(self.device)
        self.adam = torch.optim.Adam(self.net.parameters(), RATE)

    def train(self, inputs, labels):
        inputs, labels = [self.torch.from_numpy(array).to(self.device) for array in (inputs, labels)]
        logits = self.net(inputs)
        self.adam.zero_grad()
        self.torch.nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        self.adam.step()
        return ((logits > 0) == (labels > 0)).float().mean().item()


class StandInDevice:
    """A device of its own, as a GPU is: a step takes `step_s` and no CPU. It learns nothing, and notes which batches it was given."""

    def __init__(self, step_s):
        self.step_s, self.seen = step_s, 0

    def train(self, inputs, labels):
        self.seen = zlib.crc32(inputs[0], self.seen)
        time.sleep(self.step_s)
        return labels.mean()


NETS = {"numpy": NumpyNet, "torch": TorchNet}
