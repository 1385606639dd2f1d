"""Print check sums of what each family of kernels makes of the same inputs; they are the same for every build of the library and its twins.

    python same_bytes.py numpy      # the twins: what every machine must print
    python same_bytes.py c          # the C library; an error where it is not in use

`tools/wheels.py` runs it against an installed wheel, on each Python and each kind of machine that it can. It needs NumPy and Penstock.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__" and sys.argv[1] == "numpy":
    os.environ["PENSTOCK_KERNELS"] = "numpy"  # read at the first call of a kernel

import numpy as np

import penstock as ps
from penstock import kernels
from penstock.formats.tfrecord import frame


def pipelines(folder: Path) -> dict[str, ps.Dataset]:
    """Write files from a seed, and return a dataset for each family of kernels, by its name."""
    draw = np.random.default_rng(7)
    images = draw.integers(0, 256, (40, 37, 41, 3), dtype=np.uint8)
    texts = [f"line {number} " + "äx" * int(draw.integers(0, 90)) for number in range(500)]
    written = {
        "a.txt": "\n".join(texts),
        "a.jsonl": "\r\n".join(json.dumps({"n": number, "t": text}) for number, text in enumerate(texts)),
        "a.csv": "n,t\n" + "".join(f'{number},"x, ""{number}"""\n' for number in range(300)),
    }
    for name, text in written.items():
        (folder / name).write_bytes(text.encode())
    (folder / "a.bin").write_bytes(draw.integers(0, 60_000, 9_000).astype("<u2").tobytes())
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number in range(60):
            for suffix, data in (("txt", texts[number].encode()), ("bin", images[number % 40].tobytes())):
                member = tarfile.TarInfo(f"some/folder/{number:05d}.{suffix}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    features: Any = {"x": ps.FixedLenFeature([3], "float32"), "n": ps.VarLenFeature("int64"), "s": ps.FixedLenFeature([], "string")}
    rows = ps.from_arrays({"x": draw.normal(size=(300, 3)).astype(np.float32), "n": draw.integers(-9, 9, (300, 4)), "i": np.arange(300)})
    encoded = rows.map(lambda row: ps.encode_example({"x": row["x"], "n": row["n"], "s": b"s" * int(row["i"])}))
    with encoded.feed(num_workers=0) as records:
        (folder / "a.tfrecord").write_bytes(b"".join(map(frame, records)))
    pictures = ps.from_arrays({"image": images})
    flipped = pictures.map(ps.image.random_crop("image", (31, 29), padding=2)).map(ps.image.random_flip("image"))
    return {
        "order": ps.from_arrays(np.arange(5000)).shuffle(seed=3).batch(64),
        "window": ps.from_arrays(np.arange(5000)).shuffle(100, seed=3).batch(64),
        "columns": rows.shuffle(seed=1).batch(16),
        "images": flipped.batch(8),
        "normalized": flipped.map(ps.image.normalize("image", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))).batch(8),
        "frames": ps.read_tfrecord(str(folder / "a.tfrecord")),
        "examples": ps.read_tfrecord(str(folder / "a.tfrecord"), features=features).shuffle(seed=5),
        "text": ps.read_text(str(folder / "a.txt")).shuffle(seed=5),
        "jsonl": ps.read_jsonl(str(folder / "a.jsonl")).shuffle(seed=5),
        "csv": ps.read_csv(str(folder / "a.csv")),
        "tar": ps.read_tar(str(folder / "a.tar")).shuffle(seed=5),
        "tokens": ps.read_tokens(str(folder / "a.bin"), 128, dtype="uint16").shuffle(seed=2).batch(4),
        "files": ps.read_files([str(folder / "a.*")]).map(lambda file: file["data"]),
    }


def digest(dataset: ps.Dataset) -> str:
    """Return the check sum of all that a dataset delivers."""
    total = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, dict):
            for name in sorted(value):
                total.update(str(name).encode())
                add(value[name])
        elif isinstance(value, (list, tuple)):
            for item in value:
                add(item)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            total.update(f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        elif isinstance(value, np.ndarray):
            add(value.tolist())
        else:
            total.update(value if isinstance(value, bytes) else repr(value).encode())

    with dataset.feed(num_workers=0) as feed:
        for element in feed:
            add(element)
    return total.hexdigest()[:16]


def main(backend: str) -> None:
    """Print one line for each family."""
    if kernels.backend() != backend:
        raise SystemExit(f"the kernels in use are {kernels.backend()!r}, not {backend!r}")
    with tempfile.TemporaryDirectory() as folder:
        for name, dataset in pipelines(Path(folder)).items():
            print(f"{name} {digest(dataset)}")


if __name__ == "__main__":
    main(sys.argv[1])
