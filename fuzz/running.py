"""Runs one fuzzer under atheris, with a limit on memory and on the time of an input.

To be imported before penstock: it instruments what is imported after it.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["run"]

_BYTES = 2 << 30
_FOLDER = Path(__file__).resolve().parent


def _instrument() -> None:
    """Let atheris see the branches of penstock alone: those of all that is loaded take minutes to instrument."""
    import atheris

    atheris.instrument_imports(include=["penstock"]).__enter__()  # for good: some modules are imported by the first input


if Path(getattr(sys.modules["__main__"], "__file__", None) or "").resolve().parent == _FOLDER:
    _instrument()


def run(one_input: Callable[[bytes], None]) -> None:
    """Hand over to atheris, after the corpus; the arguments are libFuzzer's."""
    import atheris

    # Modules that an input imports are instrumented then, for seconds: that must not count as the time of an input.
    for path in sorted((_FOLDER / "corpus" / Path(sys.argv[0]).stem).iterdir()):
        one_input(path.read_bytes())
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    atheris.Setup([*sys.argv, "-timeout=3", "-rss_limit_mb=1024"], one_input)
    atheris.Fuzz()
