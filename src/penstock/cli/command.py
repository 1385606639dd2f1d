"""Parses the command line, runs one sub-command and turns its errors into an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from penstock._contracts.version import VERSION
from penstock.errors import StopRaised

_DEMO = (
    "penstock demo: the demo stands in the repository of Penstock (examples/demo), no longer in the package."
    " Clone the repository and type there: make demo"
)
_EXIT_ERROR, _EXIT_INTERRUPTED, _EXIT_PIPE_CLOSED = 1, 130, 141
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `penstock` with these arguments; return 0, 1 after an error, 2 for wrong arguments, 130 after Ctrl-C."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print(f"\npenstock {arguments.command}: stopped by Ctrl-C", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # `penstock bench ... | head`: the reader has gone. Without this, Python's own flush at exit would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_PIPE_CLOSED
    except Exception as error:
        from penstock.cli.screen import SWITCH, told

        text = None if os.environ.get(SWITCH) == "1" else told(error)
        if text is not None:
            print(f"penstock {arguments.command}: {text}", file=sys.stderr)
            return _EXIT_ERROR
        raise


def _run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.command == "demo":
            print(_DEMO, file=sys.stderr)
            return _EXIT_ERROR
        if arguments.command in ("pack", "inspect", "measure"):
            from penstock.cli import pack

            return {"pack": pack.run, "inspect": pack.look, "measure": pack.numbers}[arguments.command](arguments)
        if arguments.command == "index":
            from penstock.cli import indexing

            return indexing.run(arguments)
        if arguments.command == "doctor":
            from penstock.cli import doctor

            return doctor.run(arguments)
        from penstock.cli import bench

        return bench.run(arguments)
    except SystemExit as error:
        from penstock.cli.screen import place_of

        stopped = StopRaised(
            f"your own code raised SystemExit({error.code!r}), which would end this command without a word",
            where=place_of(Exception().with_traceback(error.__traceback__)) or f"penstock {arguments.command}",
            fix="raise another exception for an error, and put what a program does under `if __name__ == '__main__':`",
        )
        raise stopped from error


def _parser() -> argparse.ArgumentParser:
    from penstock.cli import indexing

    parser = argparse.ArgumentParser(prog="penstock", description="Feed training loops so that they never wait.")
    parser.add_argument("--version", action="version", version=f"penstock {VERSION}", help="print the version and leave")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # With another prefix for options, those that the demo had here are positional, and do not hide where it is.
    commands.add_parser("demo", help="say where the demo is", prefix_chars="\0", add_help=False).add_argument("old", nargs="*")
    _add_bench(commands.add_parser("bench", help="measure a pipeline over your own images or arrays on this machine"))
    _add_pack(commands.add_parser("pack", help="write a dataset, through its preprocessing, to files that need no more work"))
    _add_inspect(commands.add_parser("inspect", help="show what is in a file of records, and verify it"))
    indexing.add_arguments(
        commands.add_parser("index", help="build the indices of record files, so that any record can be read at any time")
    )
    _add_measure(commands.add_parser("measure", help="compute numbers of each element of a dataset once, such as its length"))
    _add_doctor(commands.add_parser("doctor", help="run a script and report on its feeds; or describe this machine"))
    return parser


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a script as it is, and report on each of its feeds: the bottleneck, what to change, the figures of its stages. Without a"
        " script, describe the environment for a bug report."
    )
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--steps", type=_positive, metavar="N", help="interrupt the script, as Ctrl-C does, after N batches or a few more")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGUMENT ...]", help="a Python script and its arguments")


def _add_measure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compute numbers of each element of a dataset, such as its length, once, and keep them in a folder, where ds.measure() finds them. "
        "After a kill, the same command goes on. Commands that run at the same time, also on several machines, share the work."
    )
    parser.add_argument("source", metavar="MODULE:DATASET", help="a ps.Dataset, or a function that returns one")
    parser.add_argument("--dest", required=True, metavar="FOLDER", help="the folder to write to")
    _add_shared(parser)
    parser.add_argument("--version", default="", help="of the functions: another one after a change of what one does")
    parser.add_argument("--update", action="store_true", help="measure only the elements of files that are new or have changed")


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--length", metavar="MODULE:FUNCTION", help="the same as --column length=MODULE:FUNCTION")
    parser.add_argument(
        "--column", action="append", default=[], metavar="NAME=MODULE:FUNCTION", help="a number or boolean of each element; may be repeated"
    )
    parser.add_argument("--num-workers", type=_workers, default="auto", metavar="N", help='processes, or "auto" (default): one per CPU')
    parser.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise", help="what becomes of a bad element (default: %(default)s)"
    )


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure on this machine, with your own data: the ceiling, the wait at several step times, the cost per operator; advise."
    )
    parser.add_argument(
        "source", metavar="SOURCE", help="a list file of `path label` lines, a folder of images, a quoted glob, or .npy/.npz"
    )
    parser.add_argument("--root", metavar="DIR", help="the folder that the paths of a list file start from (default: the list's own)")
    parser.add_argument("--batch", type=_positive, default=64, metavar="B", help="elements per batch (default: %(default)s)")
    parser.add_argument("--workers", type=_positive, metavar="N", help="threads (default: one per CPU, and more for what waits)")
    parser.add_argument("--seconds", type=_seconds, default=3.0, metavar="S", help="length of each measurement (default: %(default)s)")
    parser.add_argument("--step-ms", type=_milliseconds, metavar="MS[,MS...]", help="step times to try (default: around the ceiling)")
    parser.add_argument("--map", metavar="MODULE:FUNCTION", help="your own function on each element, in place of the image operators")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--crop", type=_positive, metavar="N", help="random resized crops of N x N pixels (default: 224)")
    size.add_argument(
        "--resize", type=_positive, metavar="N", help="resize the shorter side to N pixels and crop the centre, without randomness"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")


def _add_pack(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a source, through your preprocessing, to files that need no more work: TFRecord, WebDataset tar, Parquet or tokens. The "
        "files are the same for any number of workers; after a kill, the same command goes on."
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a list file of `path label` lines, folder of images, quoted glob, .npy/.npz, tar, Parquet or JSON lines, or module:dataset",
    )
    parser.add_argument("dest", metavar="DEST", help="the folder to write to")
    parser.add_argument("--root", metavar="DIR", help="the folder that the paths of a list file start from (default: the list's own)")
    parser.add_argument("--map", metavar="MODULE:FUNCTION", help="your own function on each element")
    _add_shared(parser)
    parser.add_argument("--resize", type=int, metavar="N", help="decode images, make the shorter side N pixels, encode as JPEG (or not)")
    parser.add_argument("--quality", type=int, metavar="Q", help="of these JPEGs, 1 to 100 (default: 90)")
    formats = ("tfrecord", "tar", "parquet", "tokens", "megatron", "decoded")
    parser.add_argument("--format", choices=formats, default="tfrecord", help="default: %(default)s")
    parser.add_argument("--dtype", choices=("uint16", "int32"), help="of tokens in the files (default: uint16 if the elements' is)")
    parser.add_argument("--compression", metavar="NAME", help="GZIP for tfrecord, zstd for parquet (default: none)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--shards", type=int, metavar="N", help="number of files; a stream is cut by --shard-bytes")
    size.add_argument("--shard-bytes", type=_size, metavar="SIZE", help="size of a file to aim at, such as 256MB (default)")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="write the elements in a random order")
    parser.add_argument("--name", default="data", help="what the names of the files begin with (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="look at up to 64 elements, say what would be written, write nothing")


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show what is in a TFRecord, WebDataset tar, Parquet or manifest file, or in a folder of such. "
        "Exit status 1 when something is wrong."
    )
    parser.add_argument("path", metavar="FILE|DIR", help="a file, or a folder that `penstock pack` wrote")
    parser.add_argument("--verify", action="store_true", help="check every check sum and every count; manifest against files")
    parser.add_argument("--samples", type=int, default=3, metavar="N", help="elements to show (default: %(default)s)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 1")
    return int(text)


def _seconds(text: str) -> float:
    number = _float(text)
    if not 0 < number <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def _milliseconds(text: str) -> tuple[float, ...]:
    numbers = tuple(_float(part) for part in text.split(","))
    if not all(0 < number <= 60_000 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of milliseconds above 0, such as 20,50")
    return numbers


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _size(text: str) -> int:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(number) :].strip().lower()
    try:
        size = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 256MB")
    return size


def _workers(text: str) -> int | str:
    return text if text == "auto" else _positive(text)
