"""A list of files is parsed as the rules of its page say, or ListFileError."""

from __future__ import annotations

import posixpath

import running

from penstock.errors import ListFileError
from penstock.sources.files import parse_list
from penstock.sources.paths import PADDING


def one_input(data: bytes) -> None:
    """Parse; the first byte says how."""
    if not data:
        return
    text = data[1:]
    root = "/data/train/" if data[0] & 2 else None
    try:
        starts, ends, _ = parse_list(text + PADDING, name="fuzz.txt", has_label=bool(data[0] & 1), root=root)
    except ListFileError:
        return
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        path = text[start:end]
        inside = root is None or (posixpath.normpath(posixpath.join(root.encode(), path)) + b"/").startswith(root.encode())
        if not path or path.strip(b" \t\r\n") != path or b"\n" in path or b"\0" in path or not inside:
            raise AssertionError(f"{path!r} is no path of the list")


if __name__ == "__main__":
    running.run(one_input)
