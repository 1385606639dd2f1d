"""Packing while things break: FAULTS C2, D1 to D10, D22, D23. Through the disk's own steps, real limits, real signals and strace."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.straced import needs_strace, run
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import small
from packing.small import Disk

import penstock as ps
from penstock import image
from penstock.errors import DecodeError, PackError, PlanError, SourceError
from penstock.packing import pack, read_packed
from penstock.packing.reencode import EncodeJpeg, reencoded

pytestmark = pytest.mark.usefixtures("fork_server")
SOURCE, TESTS = str(Path(ps.__file__).parents[1]), str(Path(__file__).parents[1])


@pytest.fixture
def reference(tmp_path: Path) -> dict[str, str]:
    """Pack undisturbed."""
    small.packed_with(Disk(), tmp_path / "reference")
    return small.hashes(tmp_path / "reference")


def num_steps(folder: Path) -> int:
    counting = small.StepDisk(-1)
    small.packed_with(counting, folder)
    assert {"create", "write", "sync", "close", "rename", "remove", "make_folder", "remove_folder"} == set(counting.names)
    return counting.count


# -- D1, D3, D22: each step fails ------------------------------------------------------------------------------------------------------


CODES = [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.ESTALE]


def packed_again(dest: Path) -> dict[str, str]:
    """Pack with nothing in the way; return what is there then."""
    small.packed_with(Disk(), dest)
    return small.hashes(dest)


def ran(command: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{TESTS}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=check)


def check_each_step_fails(tmp_path: Path, reference: dict[str, str], code: int, afters: Iterable[bool], every: int, first: int = 0) -> None:
    for at, after in zip(range(first, num_steps(tmp_path / "counted"), every), itertools.cycle(afters), strict=False):
        dest = tmp_path / f"dest-{at}"
        with pytest.raises(OSError) as caught:
            small.packed_with(small.FailingDisk(at, code, after=after), dest)
        assert caught.value.errno == code
        there = small.shards(dest) if dest.exists() else {}
        assert there.items() <= reference.items(), f"step {at}: a file that is not complete has its name"
        assert not list(dest.glob(".packing/*.part")), f"step {at}: the unfinished file is left"
        assert packed_again(dest) == reference, f"step {at}"
        shutil.rmtree(dest)


@pytest.mark.parametrize("after", [False, True])
def test_a_full_disk_at_any_step_is_an_error_and_a_rerun_gives_the_same_files(
    tmp_path: Path, reference: dict[str, str], after: bool
) -> None:
    check_each_step_fails(tmp_path, reference, errno.ENOSPC, [after], every=19)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_another_error_of_a_step_is_an_error_and_a_rerun_gives_the_same_files(tmp_path: Path, reference: dict[str, str], code: int) -> None:
    check_each_step_fails(tmp_path, reference, code, [code == errno.EIO], every=37)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("number", range(len(CODES)))
def test_any_error_at_every_step_is_an_error_and_a_rerun_gives_the_same_files(
    tmp_path: Path, reference: dict[str, str], number: int, part: int
) -> None:
    """Each error at each step, by turns before and after it: each step, and each error, comes in both ways."""
    check_each_step_fails(tmp_path, reference, CODES[number], [number % 2 > 0, number % 2 == 0], every=4, first=part)


def test_a_full_disk_says_how_much_is_needed(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        small.packed_with(small.FailingDisk(30), tmp_path / "dest")
    assert any("by the sample all of them would take about" in note for note in caught.value.__notes__)


def test_an_error_that_only_close_tells_is_an_error(tmp_path: Path, reference: dict[str, str]) -> None:
    counting = small.StepDisk(-1)
    small.packed_with(counting, tmp_path / "counted")
    closes = [number for number, name in enumerate(counting.names) if name == "close"]
    assert len(closes) >= 5
    for at in closes:
        dest = tmp_path / f"dest-{at}"
        with pytest.raises(OSError):
            small.packed_with(small.FailingDisk(at, errno.EIO, after=True), dest)
        assert small.shards(dest).items() <= reference.items()


def test_a_disk_without_room_is_an_error_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.statvfs(tmp_path)
    tiny = os.statvfs_result((*status[:3], 1, 1, *status[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: tiny)  # a disk that is nearly full cannot be had without root
    with pytest.raises(PackError) as caught:
        small.packed_with(Disk(), tmp_path / "dest", count=5000)
    assert "are needed and" in str(caught.value)
    assert "are free" in str(caught.value)
    assert small.hashes(tmp_path / "dest") == {}
    monkeypatch.undo()
    small.packed_with(Disk(), tmp_path / "dest", count=20)  # what was refused does not hold the folder


# -- D2 --------------------------------------------------------------------------------------------------------------------------------


def test_short_writes_are_continued(tmp_path: Path, reference: dict[str, str]) -> None:
    small.packed_with(small.ShortDisk(), tmp_path / "dest")
    assert small.hashes(tmp_path / "dest") == reference


def limited(dest: str, limit: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        small.packed_with(Disk(), Path(dest))
    except OSError as error:
        os._exit(40 if error.errno == errno.EFBIG else 41)


def test_a_limit_on_the_size_of_files_is_an_error_and_no_record_is_cut(tmp_path: Path, reference: dict[str, str]) -> None:
    dest = tmp_path / "dest"
    assert small.exit_code_of(limited, str(dest), 3000) == 40
    assert small.shards(dest) == {}
    assert packed_again(dest) == reference


# -- D3 with strace: the real calls ----------------------------------------------------------------------------------------------------

PROGRAM = "import sys; from pathlib import Path; from packing import small; small.packed_with(small.Disk(), Path(sys.argv[1]))"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EROFS"])
def test_a_system_call_that_fails_is_an_error(tmp_path: Path, reference: dict[str, str], call: str, error: str) -> None:
    for when in (1, 2, 5):
        if call == "mkdir" and when > 1:
            break
        dest = tmp_path / f"dest-{when}"
        if call != "mkdir":
            dest.mkdir()
        command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}"]
        ended = ran([*command, sys.executable, "-c", PROGRAM, str(dest)], check=False)
        assert ended.returncode == 1, ended.stderr
        assert os.strerror(getattr(errno, error)) in ended.stderr
        assert (small.shards(dest) if dest.exists() else {}).items() <= reference.items()
        assert packed_again(dest) == reference


STEP = """
import os
import sys
from pathlib import Path
from packing import small
from packing.small import Disk
os.urandom, os.getpid = bytes, lambda: 7  # the names of unfinished files are known
try:
    small.packed_with(small.Disk(), Path(sys.argv[1]))
    print("packed")
except OSError as error:
    print(error.errno)
"""
SHARD = "data-00001-of-00003.tfrecord"


@needs_strace
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("write", "ENOSPC"),
        *(pytest.param(*given, marks=pytest.mark.slow) for given in (("write", "EIO"), ("close", "ENOSPC"), ("close", "EIO"))),
        *(pytest.param(call, "EINTR", marks=pytest.mark.slow) for call in ("write", "fsync")),
    ],
)
def test_a_system_call_on_a_shard_that_fails_is_an_error(tmp_path: Path, reference: dict[str, str], call: str, name: str) -> None:
    dest, log = tmp_path / "dest", tmp_path / "log"
    path = ["-P", str(dest / ".packing" / f"{SHARD}.7-00000000.part")]
    inject = ["-f", "-o", str(log), "-e", f"trace={call}", "-e", f"inject={call}:error={name}:when=1"]
    assert run(STEP, str(dest), options=[*path, *inject]) == ["packed" if name == "EINTR" else str(getattr(errno, name))]
    assert f"{name} (" in log.read_text()
    there = small.shards(dest)
    assert not {SHARD, "data-manifest.json"} & set(there) or name == "EINTR"
    assert there.items() <= reference.items()
    assert not list(dest.glob(".packing/*.part"))
    assert packed_again(dest) == reference


# -- D1 on a disk that really fills up -------------------------------------------------------------------------------------------------

FULL = "import sys; from packing import small; small.life_on_a_disk_that_fills(sys.argv[1])"
MOUNT = 'mount -t tmpfs -o size=400k none "$1" && exec "$2" -c "$3" "$1"'
OWN_MOUNTS = ["unshare", "-Urm", "--", "sh", "-c"]


def may_mount() -> bool:
    """Tell whether a program may have a file system of its own here."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*OWN_MOUNTS, 'mount -t tmpfs -o size=400k none "$1"', "sh", TESTS], check=False, capture_output=True)
    return tried.returncode == 0


def test_a_disk_that_fills_up_meanwhile_is_an_error_and_a_rerun_gives_the_same_files(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("a process may mount nothing here")
    done = ran([*OWN_MOUNTS, MOUNT, "sh", str(tmp_path), sys.executable, FULL], check=False)
    assert (done.returncode, done.stderr) == (0, "")
    code, *there, parts, same = done.stdout.split()
    assert int(code) == errno.ENOSPC
    assert not {SHARD, "data-manifest.json"} & set(there)
    assert (parts, same) == ("0", "True")


# -- D4, D5: kills -----------------------------------------------------------------------------------------------------------------------


def killed_at(dest: Path, at: int, after: bool) -> int | None:
    return small.exit_code_of(small.life, str(dest), at, after)


def check_kills(tmp_path: Path, reference: dict[str, str], every: int, first: int = 0) -> None:
    for at in range(first, num_steps(tmp_path / "counted"), every):
        dest = tmp_path / f"dest-{at}"
        assert killed_at(dest, at, after=bool(at % 2)) == -signal.SIGKILL
        there = small.shards(dest) if dest.exists() else {}
        assert there.items() <= reference.items(), f"step {at}: a file that is not complete has its name"
        assert packed_again(dest) == reference, f"step {at}"


def test_a_packer_that_is_killed_at_a_step_goes_on_to_the_same_files(tmp_path: Path, reference: dict[str, str]) -> None:
    check_kills(tmp_path, reference, every=23)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_a_packer_that_is_killed_at_every_step_goes_on_to_the_same_files(tmp_path: Path, reference: dict[str, str], part: int) -> None:
    check_kills(tmp_path, reference, every=8, first=part)


def test_a_packer_that_is_killed_again_and_again_ends_with_the_same_files(tmp_path: Path, reference: dict[str, str]) -> None:
    dest, lives = tmp_path / "dest", 0
    while (code := killed_at(dest, 26, after=False)) != 0:
        assert code == -signal.SIGKILL
        lives += 1
        assert lives < 20, "no life comes further than the one before"
    assert lives >= 2
    assert small.hashes(dest) == reference


def test_finished_shards_are_not_written_again(tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    names = small.StepDisk(-1)
    small.packed_with(names, tmp_path / "counted")
    half = len(names.names) // 2
    with pytest.raises(OSError):
        small.packed_with(small.FailingDisk(half), dest)
    before = {path.name: path.stat().st_mtime_ns for path in dest.glob("*.tfrecord")}
    assert 1 <= len(before) < 3
    small.packed_with(Disk(), dest)
    assert {name: (dest / name).stat().st_mtime_ns for name in before} == before


def test_a_finished_shard_that_was_changed_is_written_again(tmp_path: Path, reference: dict[str, str]) -> None:
    dest = tmp_path / "dest"
    counting = small.StepDisk(-1)
    small.packed_with(counting, tmp_path / "counted")
    with pytest.raises(OSError):  # behind the manifest, when it begins to clear up
        small.packed_with(small.FailingDisk(counting.names.index("remove")), dest)
    (dest / "data-manifest.json").unlink()
    (shard, *_) = sorted(dest.glob("*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    assert packed_again(dest) == reference


# -- D6 ----------------------------------------------------------------------------------------------------------------------------------


def test_a_second_packer_in_one_folder_is_refused(tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    held, go_on = threading.Event(), threading.Event()
    first = threading.Thread(target=small.packed_with, args=(small.WaitingDisk(12, held, go_on), dest))
    first.start()
    try:
        assert held.wait(60)
        with pytest.raises(PackError, match="another packer is at work in this folder"):
            small.packed_with(Disk(), dest)
    finally:
        go_on.set()
        first.join()
    assert (dest / "data-manifest.json").is_file()


# -- D7 ----------------------------------------------------------------------------------------------------------------------------------


def check_split(folder: Path, workers: int, num_shards: int, count: int, failing: int) -> None:
    one = pack(small.dataset(count), folder / "one", num_workers=1, num_shards=num_shards, executor="threads", format="tar")
    try:
        small.packed_with(small.FailingDisk(failing), folder / "many", count=count, num_shards=num_shards, format="tar")
    except OSError:
        pass
    many = pack(small.dataset(count), folder / "many", num_workers=workers, num_shards=num_shards, executor="threads", format="tar")
    assert small.hashes(folder / "one") == small.hashes(folder / "many")
    assert len(one) == len(many) == count == sum(shard.count for shard in one.shards)
    assert len(one.shards) == min(num_shards, count)
    assert max(shard.count for shard in one.shards) - min(shard.count for shard in one.shards) <= 1
    shutil.rmtree(folder)


@pytest.mark.parametrize(("workers", "num_shards", "count", "failing"), [(2, 1, 1, 5), (7, 3, 10, 30), (3, 60, 9, 80)])
def test_any_number_of_workers_before_and_after_an_error_gives_the_same_files(
    tmp_path: Path, workers: int, num_shards: int, count: int, failing: int
) -> None:
    check_split(tmp_path / "it", workers, num_shards, count, failing)


@pytest.mark.slow
@settings(max_examples=15)
@given(workers=st.integers(1, 7), num_shards=st.integers(1, 60), count=st.integers(1, 40), failing=st.integers(0, 200))
def test_any_split_of_any_dataset_gives_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, workers: int, num_shards: int, count: int, failing: int
) -> None:
    check_split(tmp_path_factory.mktemp("jobs") / "it", workers, num_shards, count, failing)


def test_processes_write_the_same_files_as_one_thread(tmp_path: Path) -> None:
    pack(small.dataset(), tmp_path / "a", num_workers=1, executor="threads", num_shards=5)
    pack(small.dataset(), tmp_path / "b", num_workers=2, num_shards=5)
    assert small.hashes(tmp_path / "a") == small.hashes(tmp_path / "b")


# -- D8 ----------------------------------------------------------------------------------------------------------------------------------


def test_a_bad_element_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="number 7 is bad") as caught:
        pack(small.dataset(100).map(small.bad_at_7), tmp_path / "dest", num_shards=4, executor="threads")
    assert any("bad_at_7" in note for note in caught.value.__notes__)
    assert not (tmp_path / "dest" / "data-manifest.json").exists()


def test_after_an_error_without_a_finished_shard_other_options_may_be_given(tmp_path: Path) -> None:
    bad = small.dataset(100).map(small.bad_at_7)
    with pytest.raises(ValueError, match="number 7 is bad"):
        pack(bad, tmp_path / "dest", num_shards=4, executor="threads", num_workers=1)
    assert len(pack(bad, tmp_path / "dest", num_shards=4, executor="threads", on_error=ps.Skip())) == 99


def test_a_bad_element_is_left_out_and_listed_in_the_manifest_and_counts_add_up(tmp_path: Path) -> None:
    bad = small.dataset(100).map(small.bad_at_7)
    manifest = pack(bad, tmp_path / "dest", num_shards=4, executor="threads", on_error=ps.Skip())
    assert len(manifest) == 99
    assert len(manifest.skipped) == manifest.record["num_skipped"] == 1
    assert len(manifest) + len(manifest.skipped) == manifest.record["num_positions"]
    (lost,) = manifest.skipped
    assert (lost["shard"], lost["key"], lost["error"], lost["text"]) == (0, [[0, 7, 0]], "ValueError", "number 7 is bad")


def test_more_bad_elements_than_the_policy_allows_are_an_error(tmp_path: Path) -> None:
    bad = small.dataset(200).map(small.bad_at_7)
    with pytest.raises(ps.errors.TooManySkipped):
        pack(bad, tmp_path / "a", num_shards=4, executor="threads", on_error=ps.Skip(0))
    with pytest.raises(ps.errors.TooManySkipped, match="1 of 200 elements failed"):
        pack(bad, tmp_path / "b", num_shards=4, executor="threads", on_error=ps.Skip(0.001))
    assert not (tmp_path / "b" / "data-manifest.json").exists()


# -- C2 ----------------------------------------------------------------------------------------------------------------------------------


def jpegs(count: int) -> list[dict[str, Any]]:
    encode = EncodeJpeg("image", 90)
    shades = np.random.default_rng(5).integers(0, 256, (count, 8, 8, 3), np.uint8)
    return [{**encode({"image": shade.repeat(8, 0).repeat(8, 1)}), "number": np.int64(number)} for number, shade in enumerate(shades)]


@pytest.mark.parametrize("kind", ["tfrecord", "tar"])
def test_a_jpeg_that_is_cut_is_an_error_or_left_out_while_it_is_packed(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    rows = jpegs(32)
    for sixteenth in range(1, 16):
        data = rows[2 * sixteenth]["image"]
        rows[2 * sixteenth]["image"] = data[: len(data) * sixteenth // 16]
    dataset = reencoded(ps.from_source(rows), "image", size=32, quality=80)
    with pytest.raises(DecodeError, match="image is damaged") as caught:
        pack(dataset, tmp_path / "a", format=kind, num_shards=3, executor="threads", num_workers=1)
    assert any("epoch 0 index 2" in note for note in caught.value.__notes__)
    assert not (tmp_path / "a" / "data-manifest.json").exists()

    manifest = pack(dataset, tmp_path / "b", format=kind, num_shards=3, executor="threads", on_error=ps.Skip(15))
    cut = list(range(2, 32, 2))
    assert sorted(lost["key"][0][1] for lost in manifest.skipped) == cut
    assert {lost["error"] for lost in manifest.skipped} == {"DecodeError"}
    whole = read_packed(tmp_path / "b")
    assert [int(row["number"]) for row in whole] == [number for number in range(32) if number not in cut]
    assert {image.decode(row["image"]).shape for row in whole} == {(32, 32, 3)}


# -- D9 ----------------------------------------------------------------------------------------------------------------------------------


class Meddler(Disk):
    """Changes an input file when the first shard gets its name."""

    def __init__(self, meddle: Any) -> None:
        super().__init__()
        self._meddle, self._done = meddle, False

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.endswith(".tfrecord") and not self._done:
            self._done = True
            self._meddle()


@pytest.mark.parametrize("what", ["grows", "replaced", "removed"])
def test_an_input_that_changes_while_it_is_packed_is_an_error(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02d}.bin").write_bytes(bytes([number]) * 100)
    victim = folder / "03.bin"

    def meddle() -> None:
        if what == "grows":
            victim.write_bytes(b"x" * 101)
        elif what == "replaced":
            other = tmp_path / "other"
            other.write_bytes(victim.read_bytes())
            status = victim.stat()
            os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.replace(other, victim)
        else:
            victim.unlink()

    files = ps.read_files(str(folder / "*"))
    with Meddler(meddle).used(), pytest.raises(SourceError, match=r"03\.bin' changed while it was packed"):
        pack(files, tmp_path / "dest", num_shards=4, num_workers=1, executor="threads")
    assert not (tmp_path / "dest" / "data-manifest.json").exists()


def test_an_input_that_changed_before_a_rerun_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(200):
        (folder / f"{number:03d}.bin").write_bytes(bytes([number]) * 100)
    (folder / "150.bin").unlink()
    files = ps.read_files(str(folder / "*"))
    (folder / "077.bin").unlink()
    with pytest.raises(FileNotFoundError):
        pack(files, tmp_path / "dest", num_shards=4, executor="threads", num_workers=1)
    (folder / "077.bin").write_bytes(b"now it is there")
    with pytest.raises(PackError, match="its inputs is another"):
        pack(files, tmp_path / "dest", num_shards=4, executor="threads", num_workers=1)


# -- D10 ---------------------------------------------------------------------------------------------------------------------------------


class Remover(Disk):
    """Takes the destination away when the first shard gets its name."""

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".tfrecord"):
            shutil.rmtree(os.path.dirname(target))
        super().rename(source, target)


def test_a_destination_that_is_removed_meanwhile_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        small.packed_with(Remover(), tmp_path / "dest")
    assert caught.value.filename.startswith(str(tmp_path / "dest" / ".packing" / "data-0000"))
    assert not (tmp_path / "dest").exists()


def test_a_destination_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError) as below:
        small.packed_with(Disk(), tmp_path / "file" / "dest")
    assert below.value.filename == str(tmp_path / "file" / "dest")
    with pytest.raises(PlanError, match="is there and is no folder"):
        small.packed_with(Disk(), tmp_path / "file")


# A root that is the owner of a folder and no more: it may not write where the owner may not.
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
DENIED = """
import sys
from pathlib import Path
from packing import small
from packing.small import Disk
try:
    small.packed_with(small.Disk(), Path(sys.argv[1]))
except OSError as error:
    print(error.errno, error.filename)
"""


@pytest.mark.parametrize("before", [False, True], ids=["new", "half packed"])
def test_a_destination_that_may_only_be_read_is_an_error_that_names_the_path(
    tmp_path: Path, reference: dict[str, str], before: bool
) -> None:
    if UNPRIVILEGED and shutil.which(UNPRIVILEGED[0]) is None:
        pytest.skip("no setpriv command here")
    dest = tmp_path / "dest"
    dest.mkdir()
    if before:
        with pytest.raises(OSError):
            small.packed_with(small.FailingDisk(40), dest)
    there = small.hashes(dest)
    work = dest / ".packing"
    folders = [folder for folder in (work, dest) if folder.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        done = ran([*UNPRIVILEGED, sys.executable, "-c", DENIED, str(dest)], check=True)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    code, path = done.stdout.split()
    assert int(code) == errno.EACCES
    assert path.startswith(str(work))
    assert small.hashes(dest) == there
    assert packed_again(dest) == reference


# -- D23: loss of power --------------------------------------------------------------------------------------------------------------------


LOSSES = list(itertools.product(small.Kept.NAMES, small.Kept.BYTES))


def check_power_loss(tmp_path: Path, reference: dict[str, str], every: int, first: int = 0) -> None:
    log = small.LogDisk(tmp_path / "logged")
    small.packed_with(log, tmp_path / "logged")
    assert len(log.steps) > 40
    for end in range(len(log.steps) + 1):
        for number, (names, contents) in enumerate(LOSSES):
            dest = tmp_path / f"after-{end}-{names}-{contents}"
            log.replay(end, dest, small.Kept(names, contents, seed=end))
            there = small.shards(dest)
            assert there.items() <= reference.items(), f"after step {end}: a file that is not complete has its name"
            if "data-manifest.json" in there:
                assert there == reference, f"after step {end}: the manifest is there before the shards"
            if (end + number) % every == first:
                assert packed_again(dest) == reference, f"after step {end}"
            shutil.rmtree(dest)


def test_after_a_loss_of_power_a_file_that_has_its_name_is_complete(tmp_path: Path, reference: dict[str, str]) -> None:
    check_power_loss(tmp_path, reference, every=97)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_after_a_loss_of_power_at_every_step_a_rerun_gives_the_same_files(tmp_path: Path, reference: dict[str, str], part: int) -> None:
    check_power_loss(tmp_path, reference, every=6, first=part)
