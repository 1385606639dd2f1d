"""A function of a module that imports PyTorch, as worker processes have to for most functions of its users."""

import torch


def half(number: int) -> int:
    """Halve a number."""
    return int(torch.tensor(number) // 2)
