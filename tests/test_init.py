from __future__ import annotations

import inspect
import json
import sys
import tomllib
from pathlib import Path

import pytest
from programs import output_of, python

import penstock as ps

PUBLIC = {
    "ArraySpec",
    "Dataset",
    "Feed",
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "GeneratorEnqueuer",
    "Jax",
    "Options",
    "Processes",
    "Raise",
    "Ray",
    "RemoteFiles",
    "Replace",
    "Retry",
    "SampleBatches",
    "Skip",
    "StorageOptions",
    "Threads",
    "Torch",
    "VarLenFeature",
    "__version__",
    "decode_example",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
    "errors",
    "finalize_step",
    "from_arrays",
    "from_dataloader",
    "from_generator",
    "from_source",
    "from_stream",
    "image",
    "observe",
    "pack",
    "parallel_jobs",
    "parse_example",
    "queues",
    "read_coco",
    "read_csv",
    "read_files",
    "read_images",
    "read_jsonl",
    "read_list",
    "read_megatron",
    "read_packed",
    "read_pairs",
    "read_parquet",
    "read_quarantine",
    "read_tar",
    "read_text",
    "read_tfrecord",
    "read_tokens",
    "text",
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
    output_of("-W", "error", "-c", program)


def test_completion_shows_the_public_names_and_no_others() -> None:
    assert set(dir(ps)) == PUBLIC


def test_a_feed_shows_its_public_names_and_no_others() -> None:
    with ps.from_source([1]).feed() as feed:
        shown = {name for name in dir(feed) if not name.startswith("_")}
    looking = {"add_listener", "fills", "is_closed", "memory", "observe", "progress", "report", "show", "stats", "trace"}
    assert shown == {"close", "epoch", "finalize", "load_state_dict", "set_epoch", "state_dict", "step", *looking}


SOURCE = Path(ps.__file__).parents[1]


def checked(tool: str, tmp_path: Path, *options: str) -> str:
    """Run a type checker on program.py in a folder, and return what it says."""
    done = python("-m", tool, *options, "program.py", cwd=tmp_path, MYPYPATH=str(SOURCE))
    if f"No module named {tool}" in done.stderr:
        pytest.skip(f"{tool} (extra lint) is not installed")
    return done.stdout + done.stderr


def by_pyright(tmp_path: Path) -> str:
    """Run pyright so that it sees the source of this checkout."""
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(SOURCE)], "reportMissingModuleSource": False}))
    return checked("pyright", tmp_path, "--pythonpath", sys.executable)


def operators() -> list[str]:
    """Name the methods of a dataset that are declared to return one."""
    methods = {name: getattr(ps.Dataset, name) for name in dir(ps.Dataset) if not name.startswith("_")}
    return [name for name, one in methods.items() if inspect.isfunction(one) and one.__annotations__["return"] == "Dataset"]


def test_every_operator_is_declared_to_return_a_dataset() -> None:
    assert {"map", "batch", "shuffle", "zip", "prefetch", "with_options", "unbatch", "window"} <= set(operators())
    assert set(dir(ps.Dataset)) - set(dir(object)) >= {*operators(), "feed", "spec", "explain"}


@pytest.mark.slow  # needs the extra lint
def test_a_checker_refuses_a_name_that_is_not_there(tmp_path: Path) -> None:
    program = "import penstock as ps\nps.pack\nps.nme\nps.from_source([1]).feed(num_worker=4)\nps.from_source([1]).feed(num_workers=4)\n"
    (tmp_path / "program.py").write_text(program)
    said = checked("mypy", tmp_path, "--no-incremental", "--cache-dir", str(tmp_path / "cache"))
    found = [line for line in said.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in found] == ["3", "4"], said
    assert 'Module has no attribute "nme"' in found[0]


@pytest.mark.slow  # needs the extra lint
def test_pyright_takes_the_program_of_the_readme_and_refuses_names_that_are_not_there(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    program = readme.partition("```python\n")[2].partition("```")[0]
    assert "train.feed(num_workers=2)" in program
    (tmp_path / "program.py").write_text(program)
    assert "0 errors, 0 warnings" in by_pyright(tmp_path)
    (tmp_path / "program.py").write_text(program + "train.feed(num_worker=4)\nps.nme\ntrain.bach(2)\n")
    said = by_pyright(tmp_path)
    errors = [line for line in said.splitlines() if " - error: " in line]
    first = len(program.splitlines()) + 1
    assert [int(line.split(":")[1]) for line in errors] == [first, first + 1, first + 2], said
    assert '"num_worker"' in errors[0]
    assert '"nme" is not a known attribute of module "penstock"' in errors[1]
    assert 'Cannot access attribute "bach" for class "Dataset"' in errors[2]


@pytest.mark.slow  # needs the extra lint
def test_checkers_see_a_dataset_behind_every_operator(tmp_path: Path) -> None:
    names = operators()
    lines = [f"reveal_type(ps.Dataset.{name})" for name in names] + ["reveal_type(ps.read_text('x').map(len).batch(2).take(1))"]
    (tmp_path / "program.py").write_text("\n".join(["import penstock as ps", *lines, ""]))
    by_mypy = checked("mypy", tmp_path, "--no-incremental", "--cache-dir", str(tmp_path / "cache"))
    found = [line for line in by_mypy.splitlines() if "Revealed type" in line]
    assert len(found) == len(lines), by_mypy
    assert all('-> penstock.dataset.builder.Dataset"' in line for line in found[:-1]), by_mypy
    assert 'Revealed type is "penstock.dataset.builder.Dataset"' in found[-1]
    said = by_pyright(tmp_path)
    found = [line for line in said.splitlines() if " - information: " in line]
    assert len(found) == len(lines), said
    assert all('-> Dataset"' in line for line in found[:-1]), said
    assert found[-1].endswith('is "Dataset"')


@pytest.mark.slow  # needs the extra lint
def test_completion_by_jedi_shows_all_methods_behind_every_operator() -> None:
    jedi = pytest.importorskip("jedi", reason="jedi (extra lint) is not installed")
    project = jedi.Project(str(SOURCE), sys_path=[str(SOURCE), *sys.path])
    public = {name for name in dir(ps.Dataset) if not name.startswith("_")}
    for name in operators():
        script = jedi.Script(
            f'import penstock as ps\nps.read_text("x").{name}().', project=project, environment=jedi.InterpreterEnvironment()
        )
        shown = {one.name for one in script.complete() if not one.name.startswith("_")}
        assert shown == public, name
