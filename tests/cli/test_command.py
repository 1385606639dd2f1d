"""The command line itself: versions, wrong arguments, exit codes."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from cli.running import Cli
from programs import output_of

from penstock.cli import main
from penstock.cli.command import _parser
from penstock.errors import SourceError
from penstock.packing import disk


def test_version_is_printed(cli: Cli) -> None:
    told = cli("--version")
    assert told.code == 0
    assert told.out.startswith("penstock ")


BENCH, PACK = ("bench", "x.txt"), ("pack", "a", "b")
WRONG = [
    ((), "COMMAND"),
    (("dmeo",), "invalid choice: 'dmeo' (choose from 'demo', 'bench', "),
    ((*BENCH, "--crop=8", "--resize=8"), "not allowed with"),
    *(((*BENCH, f"--batch={number}"), f"{number!r} is not a whole number >= 1") for number in ("0", "-3", "two", "1.5", "")),
    *(((*BENCH, f"--seconds={number}"), f"{number!r} is not a number of seconds above 0") for number in ("0", "-1", "nan", "inf", "soon")),
    *(((*BENCH, f"--step-ms={steps}"), "is not a list of milliseconds above 0, such as 20,50") for steps in ("0", "20,,50", "20;50", "-5")),
    *(
        ((*PACK, f"--shard-bytes={size}"), f"{size!r} is not a size, such as 256MB")
        for size in ("", "MB", "0", "3 apples", "-1MB", "1e999MB")
    ),
    *(((*PACK, f"--num-workers={number}"), "is not a whole number >= 1") for number in ("0", "two", "-1")),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_arguments_are_named_with_exit_code_2(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    told = cli(*arguments)
    assert told.code == 2
    assert words in told.err


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("--shard-bytes=256MB", "shard_bytes", 256_000_000),
        ("--shard-bytes=1.5 GB", "shard_bytes", 1_500_000_000),
        ("--shard-bytes=1GiB", "shard_bytes", 1 << 30),
        ("--shard-bytes=10", "shard_bytes", 10),
        ("--shard-bytes=2kb", "shard_bytes", 2000),
        ("--num-workers=auto", "num_workers", "auto"),
        ("--num-workers=3", "num_workers", 3),
    ],
)
def test_sizes_have_units_and_workers_are_a_number_or_auto(argument: str, name: str, value: object) -> None:
    assert getattr(_parser().parse_args([*PACK, argument]), name) == value


@pytest.mark.parametrize("arguments", [(), ("--quick",), ("--out", "there", "--epochs=2"), ("--help",)])
def test_the_demo_is_not_here_and_the_command_says_where_it_is(cli: Cli, arguments: tuple[str, ...]) -> None:
    told = cli("demo", *arguments)
    assert (told.code, told.out) == (1, "")
    assert "stands in the repository of Penstock (examples/demo)" in told.err
    assert told.err.endswith("Clone the repository and type there: make demo\n")


def test_an_error_of_ours_is_three_lines_on_stderr_and_exit_code_1(cli: Cli, tmp_path: Path) -> None:
    told = cli("bench", tmp_path / "nothing.txt")
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("penstock bench: ")
    assert len(told.err.splitlines()) == 3
    assert "Traceback" not in told.err


def test_asking_for_the_version_loads_no_image_or_plot_library() -> None:
    code = (
        "import sys\nfrom penstock.cli import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "print([name for name in ('cv2', 'matplotlib', 'PIL') if name in sys.modules])"
    )
    assert output_of("-c", code).splitlines()[1:] == ["[]"]


def test_an_error_of_another_process_is_told_without_the_stack_of_penstock(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    error.add_note(
        "penstock: job 0 of 1 (0), worker 0, process 7; there it was\nTraceback (most recent call last):\n"
        f"  File \"{disk.__file__}\", line 3, in f\n    write()\nOSError: [Errno 28] No space left\npenstock: writing 'x.tfrecord'\n"
    )
    error.add_note("penstock: packing needs about 3 GB")
    monkeypatch.setattr("penstock.cli.pack.inspect", Mock(side_effect=error))
    told = cli("inspect", "x")
    assert told.code == 1
    assert told.err.splitlines() == [
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
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    (tmp_path / "leaving.py").write_text(f"import sys\n\n\ndef leave(x):\n    sys.exit({status})\n")
    np.save(tmp_path / "list.npy", np.arange(20))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "leaving", raising=False)
    told = cli("bench", tmp_path / "list.npy", "--map", "leaving:leave", "--seconds", "0.1")
    assert told.code == 1
    assert told.err.startswith("penstock bench: ")
    what, where, *_ = told.err.splitlines()
    assert f"SystemExit({status})" in what
    assert f"{tmp_path / 'leaving.py'}, line 5" in where
    monkeypatch.setattr("penstock.cli.bench.run", Mock(side_effect=KeyboardInterrupt))
    told = cli("bench", tmp_path / "list.npy")
    assert told.code == 130
    assert "stopped by Ctrl-C" in told.err


def test_a_variable_of_the_environment_has_every_error_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "1")
    with pytest.raises(SourceError):
        main(["inspect", str(tmp_path / "nothing")])
