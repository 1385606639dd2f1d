"""The real webdataset and tar programs read what is written here, and the other way round."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.formats.tar import TarWriter

pytestmark = pytest.mark.slow

KEYS = ["000000", "train/n01440764/000001", "d" * 120 + "/x", "name with spaces", "ünï/ço", "n" * 140, "UPPER", "-dash"]


def content(number: int) -> dict[str, bytes]:
    random = np.random.default_rng(number)
    return {"jpg": random.bytes(int(random.integers(0, 3000))), "cls": b"%d" % number, "seg.png": random.bytes(512), "json": b'{"a": 1}'}


SAMPLES = [{"__key__": key, **content(number)} for number, key in enumerate(KEYS)]


def plain(sample: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sample.items() if key not in ("__url__", "__local_path__")}


def written(path: Path) -> Path:
    with open(path, "wb") as file, TarWriter(file) as writer:
        for number, key in enumerate(KEYS):
            writer.write_sample(key, content(number))
    return path


@pytest.fixture
def webdataset() -> Any:
    return pytest.importorskip("webdataset", reason="webdataset is not installed: make interop")


def test_webdataset_reads_what_is_written_here(tmp_path: Path, webdataset: Any) -> None:
    path = written(tmp_path / "a.tar")
    with open(path, "rb") as stream:
        expanded = webdataset.tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
        read = [plain(sample) for sample in webdataset.tariterators.group_by_keys(expanded)]
    assert read == SAMPLES
    assert list(ps.read_tar(path)) == SAMPLES


def test_webdataset_decodes_the_same_values(tmp_path: Path, webdataset: Any) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = io.BytesIO()
    np.save(out, array)
    values = {"txt": "Grüße".encode(), "cls": b"12", "json": b'{"a": [1, null]}', "npy": out.getvalue(), "id": b"-1"}
    with open(tmp_path / "a.tar", "wb") as file, TarWriter(file) as writer:
        writer.write_sample("a", values)
    theirs = {name: webdataset.autodecode.basichandlers(name, data) for name, data in values.items()}
    ours = ps.read_tar(tmp_path / "a.tar", decode="basic")[0]
    assert (ours.pop("npy") == theirs.pop("npy")).all()
    assert ours == {"__key__": "a", **theirs}


def test_what_webdataset_writes_is_read_here(tmp_path: Path, webdataset: Any) -> None:
    path = tmp_path / "a.tar"
    with open(path, "wb") as file:
        for name in ("USTAR_FORMAT", "GNU_FORMAT", "PAX_FORMAT"):
            file.seek(0)
            file.truncate()
            writer = webdataset.TarWriter(file, mtime=0, format=name)
            for sample in SAMPLES:
                writer.write(sample)
            writer.close()
            file.flush()
            assert list(ps.read_tar(path)) == SAMPLES


@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar program")
@pytest.mark.parametrize("style", ["ustar", "gnu", "posix", "v7"])
def test_what_the_tar_program_writes_is_read_here_and_the_other_way_round(tmp_path: Path, style: str) -> None:
    folder = tmp_path / "in"
    samples = sorted(
        (sample for sample in SAMPLES if style in ("gnu", "posix") or len(sample["__key__"]) < 80), key=lambda one: one["__key__"]
    )
    for sample in samples:
        for name, data in list(sample.items())[1:]:
            file = folder / f"{sample['__key__']}.{name}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    path = tmp_path / "a.tar"
    done = subprocess.run(
        ["tar", f"--format={style}", "--sort=name", "-C", folder, "-cf", path, "."], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this tar program lacks an option: {done.stderr.strip()}")
    found = {sample["__key__"]: sample for sample in ps.read_tar(path)}
    assert found == {f"./{sample['__key__']}": {**sample, "__key__": f"./{sample['__key__']}"} for sample in samples}
    listed = subprocess.run(["tar", "-tf", written(tmp_path / "b.tar")], capture_output=True, text=True, check=True)
    assert listed.stderr == ""
    assert len(listed.stdout.splitlines()) == 4 * len(KEYS)
