"""The arguments of `penstock pack` and `penstock inspect`; apart from what they do, so that other commands do not import it."""

from __future__ import annotations

import argparse

__all__ = ["add_inspect", "add_pack"]

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def add_pack(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Write a source, through your preprocessing, to files that need no more work: TFRecord, WebDataset tar or Parquet. The files are "
        "the same for any number of workers; after a kill, the same command goes on."
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a list file of `path label` lines, folder of images, quoted glob, .npy/.npz, tar, Parquet or JSON lines, or module:dataset",
    )
    parser.add_argument("dest", metavar="DEST", help="the folder to write to")
    parser.add_argument("--root", metavar="DIR", help="the folder that the paths of a list file start from (default: the list's own)")
    parser.add_argument("--map", metavar="MODULE:FUNCTION", help="your own function on each element")
    parser.add_argument("--resize", type=int, metavar="N", help="decode images, resize the shorter side to N pixels, encode as JPEG")
    parser.add_argument("--quality", type=int, metavar="Q", help="of these JPEGs, 1 to 100 (default: 90)")
    parser.add_argument("--format", choices=("tfrecord", "tar", "parquet"), default="tfrecord", help="default: %(default)s")
    parser.add_argument("--compression", metavar="NAME", help="GZIP for tfrecord, zstd for parquet (default: none)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--shards", type=int, metavar="N", help="number of files")
    size.add_argument("--shard-bytes", type=_size, metavar="SIZE", help="size of a file to aim at, such as 256MB (default)")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="write the elements in a random order")
    parser.add_argument("--variants", type=int, default=1, metavar="K", help="write each element K times, with other random numbers")
    parser.add_argument("--name", default="data", help="what the names of the files begin with (default: %(default)s)")
    parser.add_argument("--num-workers", type=_workers, default="auto", metavar="N", help='processes, or "auto" (default): one per CPU')
    parser.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise", help="what becomes of a bad element (default: %(default)s)"
    )
    run = parser.add_mutually_exclusive_group()
    run.add_argument("--trace", metavar="FILE.json", help="write a timeline of the workers, for ui.perfetto.dev")
    run.add_argument("--dry-run", action="store_true", help="predict size and time from a sample, write nothing")
    parser.add_argument("--no-measure", action="store_true", help="do not measure, at the end, what packing bought")


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Show what is in a TFRecord, WebDataset tar, Parquet, index or manifest file, or in a folder of such. "
        "Exit status 1 when something is wrong."
    )
    parser.add_argument("path", metavar="FILE|DIR", help="a file, or a folder that `penstock pack` wrote")
    parser.add_argument("--verify", action="store_true", help="check every check sum and every count; manifest against files")
    parser.add_argument("--samples", type=int, default=3, metavar="N", help="elements to show (default: %(default)s)")
    parser.add_argument("--sheet", metavar="OUT.png", help="write the first images, 48 at most, as a contact sheet")


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
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is neither "auto" nor a whole number >= 1')
    return int(text)
