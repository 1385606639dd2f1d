"""The versions of what decides the bytes of packed files."""

from __future__ import annotations

from penstock._contracts.version import VERSION
from penstock._plan.base import Node, walk
from penstock.packing.options import PackOptions

__all__ = ["versions_of"]


def versions_of(root: Node, options: PackOptions, below: Node | None = None) -> dict[str, str]:
    """Return the versions of Penstock and NumPy, and of the libraries whose code runs: zlib, pyarrow, and those of Penstock's images.

    `below` is a part of the plan that was run before, and whose elements `root` begins with.
    What functions of the user call is not known here.
    """
    import numpy as np

    versions = {"penstock": VERSION, "numpy": np.__version__}
    if options.format == "parquet":
        from penstock.formats.parquet import pyarrow

        versions["pyarrow"] = pyarrow()[0].__version__
    if options.compression == "GZIP":
        import zlib

        versions["zlib"] = zlib.ZLIB_RUNTIME_VERSION
    if any(_is_of_images(getattr(node, "fn", None)) for node in [*walk(root), *(walk(below) if below else ())]):
        versions |= _of_images()
    return versions


def _is_of_images(function: object) -> bool:
    return type(function).__module__.startswith(("penstock.image", "penstock.packing.reencode"))


def _of_images() -> dict[str, str]:
    from importlib import import_module

    found = {}
    for name in ("simplejpeg", "cv2"):
        try:
            found[name] = str(import_module(name).__version__)
        except ImportError:  # it is an extra, and what needs it says so
            continue
    return found
