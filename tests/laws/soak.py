"""Runs the laws over many random plans: `python tests/laws/soak.py [plans] [first seed]`. Prints seed, law and shortest plan of a failure.

Each seed is a process of its own with a limit of wall-clock time, so that what hangs in C fails too.
"""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PER_SEED, PER_SEARCH = 250, 25  # a search tries kin of what it tried before: many short ones see more
LIMIT_S = 1200


def run_seed(number: int, count: int, names: list[str]) -> int:
    """Run `count` plans of one seed through each law; return how many laws were broken."""
    sys.path.insert(0, str(HERE.parent))
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st
    from laws.checks import LAWS, LawBroken

    broken = 0
    search = settings(
        deadline=None,
        database=None,
        max_examples=PER_SEARCH,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    for name in names or LAWS:
        law = LAWS[name]

        @search
        @given(law.plans, st.data())
        def hold(plan: Any, data: Any) -> None:
            law.check(plan, data.draw)  # noqa: B023 - run in this turn of the loop

        for part in range(-(-count // PER_SEARCH)):
            try:
                seed(number * 1000 + part)(hold)()
            except Exception as error:
                broken += 1
                for one in error.exceptions if isinstance(error, ExceptionGroup) else [error]:
                    print(f"BROKEN law {name}, seed {number}: {type(one).__name__}: {one}", flush=True)
                    cause = one.__cause__ if isinstance(one, LawBroken) else one
                    if cause is not None and not isinstance(cause, (ValueError, OSError)):  # those of the plan itself
                        traceback.print_exception(cause)
    return broken


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--seed"]:
        return min(1, run_seed(int(arguments[1]), int(arguments[2]), arguments[3:]))
    count, first = int(arguments[0]) if arguments else 20000, int(arguments[1]) if arguments[1:] else int(time.time())
    broken = 0
    for number in range(first, first + -(-count // PER_SEED)):
        command = [sys.executable, *(["-O"] if number % 4 == 0 else []), str(HERE / "soak.py"), "--seed", str(number), str(PER_SEED)]
        try:
            failed = subprocess.run(command, timeout=LIMIT_S, check=False).returncode != 0
        except subprocess.TimeoutExpired:
            failed = True
            print(f"BROKEN seed {number}: it took longer than {LIMIT_S} s")
        broken += failed
        print(f"seed {number}: {'broken' if failed else f'{PER_SEED} plans hold through each law'}", flush=True)
    return min(1, broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
