from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock as ps

PUBLIC = {
    "ArraySpec",
    "Dataset",
    "Feed",
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "GeneratorEnqueuer",
    "Options",
    "Raise",
    "RemoteFiles",
    "Replace",
    "Retry",
    "SampleBatches",
    "Skip",
    "StorageOptions",
    "VarLenFeature",
    "__version__",
    "decode_example",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
    "errors",
    "from_arrays",
    "from_generator",
    "from_source",
    "from_stream",
    "image",
    "pack",
    "parallel_jobs",
    "parse_example",
    "queues",
    "read_csv",
    "read_files",
    "read_images",
    "read_jsonl",
    "read_list",
    "read_packed",
    "read_parquet",
    "read_quarantine",
    "read_tar",
    "read_text",
    "read_tfrecord",
    "read_tokens",
}


def test_the_public_names_are_these_and_all_are_there() -> None:
    assert set(ps.__all__) == PUBLIC
    assert list(ps.__all__) == sorted(ps.__all__)
    for name in PUBLIC:
        assert getattr(ps, name) is not None


def test_the_version_is_that_of_the_project_file() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert ps.__version__ == project["project"]["version"]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'imagine'"):
        _ = ps.imagine


def test_every_error_class_has_one_root() -> None:
    for name in ps.errors.__all__:
        assert issubclass(getattr(ps.errors, name), ps.errors.PenstockError)


def test_image_is_imported_when_it_is_first_used() -> None:
    program = (
        "import sys, penstock\n"
        "assert 'penstock.image' not in sys.modules\n"
        "assert callable(penstock.image.decode)\n"
        "assert 'penstock.image' in sys.modules\n"
        "assert 'cv2' not in sys.modules and 'simplejpeg' not in sys.modules\n"
    )
    source = Path(ps.__file__).parents[1]
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60, env={"PYTHONPATH": str(source)})
