"""Which versions stand in a manifest."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.packing.options import PackOptions
from penstock.packing.reencode import reencoded
from penstock.packing.versions import versions_of


def names(ds: ps.Dataset, **options: str) -> set[str]:
    return set(versions_of(ds._root, PackOptions(**options)))  # type: ignore[arg-type]


def test_libraries_are_named_where_their_code_runs(tmp_path: Path) -> None:
    plain = ps.from_source(range(3))
    assert names(plain) == names(plain, format="tar") == {"penstock", "numpy"}
    manifest = ps.pack(plain, tmp_path, executor="threads", compression="GZIP")
    assert manifest.record["versions"] == {
        "penstock": ps.__version__, "numpy": np.__version__, "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }  # fmt: skip


def test_parquet_names_pyarrow() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert names(ps.from_source(range(3)), format="parquet") == {"penstock", "numpy", "pyarrow"}


def test_images_name_their_libraries() -> None:
    pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    plain = ps.from_source([{"data": b""}])
    for ds in (reencoded(plain, "data", size=8, quality=90), plain.map(ps.image.decode("data")).filter(bool)):
        assert names(ds) == {"penstock", "numpy", "simplejpeg", "cv2"}
