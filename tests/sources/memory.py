"""How much memory a program takes, measured in a process of its own."""

from __future__ import annotations

import os
import textwrap
from typing import NamedTuple

import pytest
from programs import output_of

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")

_RUN = """
import sys

def _kilobytes(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

names = {"arguments": sys.argv[3:]}
exec(sys.argv[1], names)
before = _kilobytes("VmHWM"), _kilobytes("VmRSS")
exec(sys.argv[2], names)
print(1024 * (_kilobytes("VmHWM") - before[0]), 1024 * (_kilobytes("VmRSS") - before[1]))
"""


class Grown(NamedTuple):
    """What a program printed, and by how many bytes its second part raised the most that it ever held, and what it held at its end."""

    lines: list[str]
    peak: int
    held: int


def growth(first: str, then: str, *arguments: object) -> Grown:
    """Run a program and measure its second part.

    Args:
        first: what imports, and whatever else is not to be counted.
        then: what is measured. It has the names of the first part.
        arguments: are in both, as `arguments`, in words.
    """
    *lines, numbers = output_of("-c", _RUN, textwrap.dedent(first), textwrap.dedent(then), *arguments).splitlines()
    return Grown(lines, *map(int, numbers.split()))
