"""`penstock measure`: numbers of each element of a dataset into a folder, which `ds.measure` of a training program then finds."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from penstock._contracts.policy import Raise, Skip
from penstock.cli.bench_source import imported
from penstock.cli.pack import dataset_at
from penstock.cli.screen import Screen
from penstock.errors import PlanError
from penstock.packing.measuring import measure

_COMMAND = "penstock measure"


def run(arguments: Namespace) -> int:
    """Measure, and print what is in the folder. Returns 0.

    Raises:
        PenstockError, OSError, BaseException: as `penstock.packing.measuring.measure`.
    """
    measured = measure(
        dataset_at(arguments.source, _COMMAND),
        arguments.dest,
        _functions(arguments),
        num_workers=arguments.num_workers,
        on_error=Skip() if arguments.on_error == "skip" else Raise(),
        progress=True,
    )
    screen = Screen(sys.stdout, name_columns=14)
    screen.line(f"{_COMMAND} {arguments.source}")
    for column in measured.columns.values():
        screen.fact("column", f"{column.name}: {len(column):,} {'booleans' if column.is_bool else 'numbers'} in {column.path}")
    if measured.failed is not None:
        screen.fact("left out", f"{measured.num_failed:,} elements, marked in {measured.failed.path}")
    return 0


def _functions(arguments: Namespace) -> dict[str, Any]:
    """Import the functions, by name of a column.

    Raises:
        PlanError: one is not written as NAME=MODULE:FUNCTION, is given twice, or is not there.
    """
    functions: dict[str, Any] = {}
    for given in ([f"length={arguments.length}"] if arguments.length else []) + arguments.column:
        name, _, reference = given.partition("=")
        if not reference or name in functions:
            raise PlanError(
                f"{given!r} is no column" if not reference else f"column {name!r} is given twice",
                where=f"{_COMMAND} --column",
                fix="write it as NAME=MODULE:FUNCTION, each name once, such as length=mycode:num_tokens",
            )
        functions[name] = imported(reference, f"{_COMMAND} --column {given}")
    return functions
