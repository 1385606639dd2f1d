"""The command line itself: versions, wrong arguments, exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from penstock.cli import main
from penstock.errors import SourceError
from penstock.packing import disk


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("penstock ")


def test_no_command_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert "COMMAND" in refused(capsys)


def test_an_unknown_command_names_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "dmeo")
    assert "dmeo" in text
    assert "demo" in text
    assert "bench" in text


@pytest.mark.parametrize("number", ["0", "-3", "two", "1.5", ""])
def test_numbers_of_elements_must_be_whole_and_positive(capsys: pytest.CaptureFixture[str], number: str) -> None:
    assert f"{number!r} is not a whole number >= 1" in refused(capsys, "bench", "x.txt", f"--batch={number}")


@pytest.mark.parametrize("arguments", [(), ("--quick",), ("--out", "there", "--epochs=2"), ("--help",)])
def test_the_demo_is_not_here_and_the_command_says_where_it_is(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert main(["demo", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "stands in the repository of Penstock (examples/demo)" in captured.err
    assert captured.err.endswith("Clone the repository and type there: make demo\n")


@pytest.mark.parametrize("number", ["0", "-1", "nan", "inf", "soon"])
def test_seconds_must_be_above_zero(capsys: pytest.CaptureFixture[str], number: str) -> None:
    assert f"{number!r} is not a number of seconds above 0" in refused(capsys, "bench", "x.txt", f"--seconds={number}")


@pytest.mark.parametrize("steps", ["0", "20,,50", "20;50", "-5"])
def test_step_times_must_be_milliseconds_above_zero(capsys: pytest.CaptureFixture[str], steps: str) -> None:
    assert "is not a list of milliseconds above 0, such as 20,50" in refused(capsys, "bench", "x.txt", f"--step-ms={steps}")


def test_crop_and_resize_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not allowed with" in refused(capsys, "bench", "x.txt", "--crop=8", "--resize=8")


def test_an_error_of_ours_is_three_lines_on_stderr_and_exit_code_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", str(tmp_path / "nothing.txt")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("penstock bench: ")
    assert len(captured.err.splitlines()) == 3
    assert "Traceback" not in captured.err


def test_asking_for_the_version_loads_no_image_or_plot_library() -> None:
    code = (
        "import sys\nfrom penstock.cli import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "print([name for name in ('cv2', 'matplotlib', 'PIL') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["[]"]


def test_an_error_of_another_process_is_told_without_the_stack_of_penstock(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    error.add_note(
        "penstock: job 0 of 1 (0), worker 0, process 7; there it was\nTraceback (most recent call last):\n"
        f"  File \"{disk.__file__}\", line 3, in f\n    write()\nOSError: [Errno 28] No space left\npenstock: writing 'x.tfrecord'\n"
    )
    error.add_note("penstock: packing needs about 3 GB")
    monkeypatch.setattr("penstock.cli.pack.inspect", Mock(side_effect=error))
    assert main(["inspect", "x"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "penstock inspect: OSError: [Errno 28] No space left on device",
        "  note:  penstock: writing 'x.tfrecord'",
        "  note:  penstock: job 0 of 1 (0), worker 0, process 7",
        "  note:  penstock: packing needs about 3 GB",
    ]


def test_an_error_of_penstocks_own_making_is_raised_with_all_of_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.pack.inspect", Mock(side_effect=TypeError("of ours")))
    with pytest.raises(TypeError, match="of ours"):
        main(["inspect", "x"])


@pytest.mark.parametrize("status", [0, 3])
def test_code_of_the_users_that_would_end_the_command_is_an_error_and_ctrl_c_ends_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    (tmp_path / "leaving.py").write_text(f"import sys\n\n\ndef leave(x):\n    sys.exit({status})\n")
    np.save(tmp_path / "list.npy", np.arange(20))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "leaving", raising=False)
    assert main(["bench", str(tmp_path / "list.npy"), "--map", "leaving:leave", "--seconds", "0.1"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("penstock bench: ")
    assert f"SystemExit({status})" in told[0]
    assert f"{tmp_path / 'leaving.py'}, line 5" in told[1]
    monkeypatch.setattr("penstock.cli.bench.run", Mock(side_effect=KeyboardInterrupt))
    assert main(["bench", str(tmp_path / "list.npy")]) == 130
    assert "stopped by Ctrl-C" in capsys.readouterr().err


def test_a_variable_of_the_environment_has_every_error_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "1")
    with pytest.raises(SourceError):
        main(["inspect", str(tmp_path / "nothing")])
