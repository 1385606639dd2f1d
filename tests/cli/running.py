"""What a command returned and printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Told(NamedTuple):
    """The exit status, what stood on standard output and on standard error."""

    code: object
    out: str
    err: str

    @property
    def text(self) -> str:
        """What stood on standard output, however it was wrapped."""
        return " ".join(self.out.split())


Cli = Callable[..., Told]
