"""Run every claim, one after the other, then print the table: `python benchmarks [options of the scripts]`, such as `--quick`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    ("w1.py",),
    ("w1.py", "--uint8"),
    ("w2.py",),
    ("w3.py",),
    ("w4.py",),
    ("w6.py",),
    ("w7.py",),
    ("w8.py",),
    ("functions.py", "--work", "w1"),
    ("functions.py", "--work", "w3"),
    ("functions.py", "--work", "w4"),
    ("functions.py", "--work", "w5"),
    ("functions.py", "--work", "words"),
    ("large_batches.py",),
    ("heavy_step.py",),
    ("import_time.py",),
    ("gather.py",),
    ("records.py",),
    ("shards.py",),
    ("pack.py",),
    ("engine_cost.py",),
    ("mix.py",),
    ("known.py",),
    ("balance.py",),
    ("decoded.py",),
    ("images.py",),
    ("detection.py",),
    ("policies.py",),
    ("state.py",),
    ("finalize_step.py",),
    ("shuffle_memory.py",),
    ("list_memory.py",),
    ("start.py",),
    ("async_map.py",),
    ("jobs.py",),
    ("enqueuer.py",),
    ("classic.py",),
    ("queues.py",),
    ("packing.py",),
    ("tokenise.py",),
    ("parquet.py",),
    ("tar.py",),
    ("text.py",),
    ("tokenizing.py",),
    ("remote.py",),
    ("observing.py",),
    ("epochs.py",),
    ("outputs.py",),
    ("loaders.py",),
    ("advice.py",),
    ("waiting.py",),
    ("manycore.py",),
)


def main() -> None:
    """Run the scripts; exit with 1 when one of them had a contestant that failed."""
    folder = Path(__file__).resolve().parent
    failed = []
    for script, *flags in SCRIPTS:
        print(f"== {' '.join([script, *flags])}", flush=True)
        if subprocess.run([sys.executable, str(folder / script), *flags, *sys.argv[1:]], check=False).returncode:
            failed.append(script)
    subprocess.run([sys.executable, str(folder / "report.py")], check=True)
    if failed:
        sys.exit(f"a contestant failed in: {', '.join(failed)}")


if __name__ == "__main__":
    main()
