"""The program that cells of the matrix run in, one after the other: `python -m faults.cell_program`.

It reads lines of JSON from its standard input, and answers each on the descriptor that is its standard output; whatever workers print
goes to its standard error.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
import warnings
from multiprocessing import resource_tracker
from pathlib import Path

from faults.cells import CELLS, EXECUTORS


def main() -> None:
    """Run cells until the standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".* was (skipped|replaced): stage")  # a cell asks for these
    multiprocessing.set_forkserver_preload(
        ["pytest", "hypothesis", "asyncio", "numpy", "penstock._workers.child", "penstock._workers.remote"]
    )
    gc.collect()
    gc.freeze()  # a collection behind each cell then takes 2 ms, not 100
    resource_tracker.ensure_running()  # a cell that spawns a process of its own would leave it behind
    for line in sys.stdin:
        asked = json.loads(line)
        answer = ""
        with tempfile.TemporaryDirectory() as folder:
            try:
                CELLS[asked["cell"]].run({**EXECUTORS[asked["executor"]], "ordered": asked["ordered"]}, Path(folder))
            except BaseException:
                answer = traceback.format_exc()
        gc.collect()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
