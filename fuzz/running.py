"""Runs one fuzzer under atheris, with a limit on memory and on the time of an input."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

__all__ = ["run"]

_BYTES = 2 << 30


def run(one_input: Callable[[bytes], None]) -> None:
    """Hand over to atheris; the arguments are libFuzzer's."""
    import atheris

    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    atheris.instrument_all()
    atheris.Setup([*sys.argv, "-timeout=1", "-rss_limit_mb=1024"], one_input)
    atheris.Fuzz()
