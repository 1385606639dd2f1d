"""`penstock doctor`: runs a script and reports on its feeds; without a script, describes the environment."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.errors import SourceError
from penstock.observe.doctor import FeedWatch
from penstock.observe.environment import environment, lines_of

_ERROR, _INTERRUPTED = 1, 130


def run(arguments: argparse.Namespace) -> int:
    """Run the script, print the report and return the exit status of the script; without a script describe the environment, and return 0.

    An error of the script is printed as Python prints it; the report of what ran until then follows.

    Raises:
        SourceError: there is no such script, or no folder for the file.
    """
    path = file_of_figures(arguments)
    command = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if not command:
        facts = environment()
        print("\n".join(lines_of(facts)))
        write_figures(path, facts)
        return 0
    script, *rest = command
    if not os.path.exists(script):
        raise SourceError(f"there is no file {script!r}", where="penstock doctor", fix="give the path of a Python script")
    with FeedWatch(arguments.steps) as watch:
        status = _run_script(script, rest, watch)
        report = watch.report(command, status)
    print("\n" + "\n".join(report.lines()), flush=True)
    write_figures(path, report.as_json())
    return status


def _run_script(script: str, arguments: Sequence[str], watch: FeedWatch) -> int:
    """Run a script as `python script arguments` does, and return its exit status."""
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return _ERROR
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and watch.interrupted:
            return 0
        _show(error, script)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else _ERROR
    finally:
        sys.argv, sys.path[:] = before


def _show(error: BaseException, script: str) -> None:
    """Print an error as Python prints it: without the frames that ran the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    sys.stdout.flush()
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def file_of_figures(arguments: argparse.Namespace) -> Path | None:
    """Return the file of --json, wherever the working folder goes; None without one.

    Raises:
        SourceError: its folder does not exist.
    """
    path = None if arguments.json is None else Path(arguments.json).absolute()
    if path is not None and not path.parent.is_dir():
        where = f"penstock {arguments.command} --json"
        raise SourceError(f"the folder of {str(path)!r} does not exist", where=where, fix="make the folder first")
    return path


def write_figures(path: Path | None, figures: dict[str, Any]) -> None:
    """Write the file of --json, if there is one."""
    if path is not None:
        path.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
