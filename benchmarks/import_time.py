"""How much longer than `import numpy` an import takes, in pairs of fresh interpreters."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rounds
from data import Size

_PAIRS = {"full": 15, "quick": 5, "tiny": 1}


def _seconds(statement: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def _beyond_numpy(module: str) -> Callable[[rounds.Run], dict[str, Any]]:
    def measure(run: rounds.Run) -> dict[str, Any]:
        if importlib.util.find_spec(module.split(".")[0]) is None:
            raise rounds.Missing(f"{module} is not installed")
        _seconds("import numpy")
        _seconds(f"import numpy, {module}")  # writes the bytecode
        differences, alone = [], []
        for turn in range(_PAIRS[run.size.name]):
            pair = {}
            statements = ("import numpy", f"import numpy, {module}")
            for statement in statements if turn % 2 == 0 else reversed(statements):
                pair[statement] = _seconds(statement)
            alone.append(pair[statements[0]])
            differences.append(pair[statements[1]] - pair[statements[0]])
        return {"beyond_numpy_ms": statistics.median(differences) * 1e3, "numpy_ms": statistics.median(alone) * 1e3}

    return measure


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="import_time",
    title="Import time beyond NumPy's (whole interpreter, median of pairs)",
    unit="ms",
    metric="beyond_numpy_ms",
    prepare=_nothing,
    reference="penstock",
    also=("numpy_ms",),
    targets=(rounds.Target(contestant="penstock", metric="beyond_numpy_ms", sense="<=", bound=60.0),),
)

if __name__ == "__main__":
    rounds.main(CLAIM, {"penstock": _beyond_numpy("penstock"), "dataloader": _beyond_numpy("torch.utils.data")})
