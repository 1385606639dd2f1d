"""Run pytest, and run again, alone, the few tests that failed beside others.

    python tools/run_tests.py [pytest's arguments]

A test that needs a whole CPU for a moment can fail on a busy machine. At most `MOST` failures are run again, one after another, in a
process of their own. One that fails twice fails the run. One that passes the second time is unstable: it is named at the end and in
`build/unstable.txt`, for it may be a race, and the output of its failure stands above. The files whose tests took longest are listed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

MOST = 3
"""More failures than this are no accident."""
NUM_SLOWEST = 10
"""So many test files are listed with their seconds."""
UNSTABLE = Path("build", "unstable.txt")
_SOME_FAILED = 1  # pytest's exit code; others tell that it could not run


def main(arguments: Sequence[str]) -> int:
    """Run pytest in the current folder; return its exit code, 0 when what failed passes alone."""
    with tempfile.TemporaryDirectory() as cache:
        results = Path(cache, "results.xml")
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", "-o", "junit_family=xunit1", f"--junit-xml={results}"]
        status = subprocess.run([*command, *arguments], check=False).returncode
        print_slowest(results)
        failed = _failed(Path(cache))
        if status != _SOME_FAILED or not 0 < len(failed) <= MOST:
            return status
        print(f"== again, alone: {', '.join(failed)}", flush=True)
        status = subprocess.run([*command, *arguments, "-n", "0", "--last-failed"], check=False).returncode
    if status == 0:
        UNSTABLE.parent.mkdir(exist_ok=True)
        with UNSTABLE.open("a") as file:
            file.writelines(f"{test}\n" for test in failed)
        print(f"UNSTABLE: failed beside other tests, and passed alone: {', '.join(failed)}", flush=True)
    return status


def print_slowest(results: Path) -> None:
    """Print the files whose tests took longest, by the results that pytest wrote; nothing where it wrote none."""
    if not results.exists():
        return
    seconds, counts = defaultdict[str, float](float), defaultdict[str, int](int)
    for case in ElementTree.parse(results).iter("testcase"):
        name = case.get("file") or case.get("classname") or "?"
        seconds[name] += float(case.get("time") or 0)
        counts[name] += 1
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:NUM_SLOWEST]
    if slowest:
        print(f"== the slowest of {len(seconds)} test files, in seconds of all processes (all: {sum(seconds.values()):.0f})")
    for name in slowest:
        print(f"{seconds[name]:8.1f}  {name} ({counts[name]} tests)", flush=True)


def _failed(cache: Path) -> list[str]:
    """Return the tests that failed in the run that left this cache."""
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
