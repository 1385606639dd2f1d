"""`read_tar`: samples of real files, in any order, from any thread; what is damaged, left out or refused."""

from __future__ import annotations

import io
import json
import os
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.archives import END, header, member, sample
from programs import output_of

import penstock as ps
from penstock._storage.sameness import sampled_spans
from penstock.errors import PlanError, RecordError
from penstock.formats.index import decode
from penstock.formats.tar import TarWriter
from penstock.sources.tar import TarSource
from penstock.testing import check_source


def source(pattern: Any, **how: Any) -> TarSource:
    made = ps.read_tar(pattern, **how)._root.source  # type: ignore[attr-defined]
    assert isinstance(made, TarSource)
    return made


def content(number: int) -> dict[str, bytes]:
    return {"jpg": np.random.default_rng(number).bytes(number * 37 % 900), "cls": b"%d" % (number % 10)}


@pytest.fixture
def shards(tmp_path: Path) -> str:
    number = 0
    for shard in range(3):
        with open(tmp_path / f"train-{shard}.tar", "wb") as file, TarWriter(file) as writer:
            for _ in range(20):
                writer.write_sample(f"part/{number:04}", content(number))
                number += 1
    return str(tmp_path / "train-*.tar")


def test_the_laws_of_a_source_hold(shards: str) -> None:
    expected = [{"__key__": f"part/{number:04}", **content(number)} for number in range(60)]
    check_source(source(shards), expected=expected, again=lambda: source(shards))


def test_fields_are_chosen_renamed_ordered_and_decoded(shards: str) -> None:
    ds = ps.read_tar(shards, fields=["cls", "png;jpg"], decode="basic")
    assert list(ds[33]) == ["__key__", "cls", "png"]
    assert ds[33] == {"__key__": "part/0033", "cls": 3, "png": content(33)["jpg"]}
    batch = next(iter(ps.read_tar(shards, fields=["cls"], decode="basic").batch(12).feed()))
    assert batch["cls"].tolist() == [*range(10), 0, 1]
    check_source(source(shards, fields=["cls"], decode="basic"), again=lambda: source(shards, fields=["cls"], decode="basic"))


def test_large_fields_are_copied_and_decoded_as_small_ones_are(tmp_path: Path) -> None:
    array, text, blob = np.random.default_rng(5).standard_normal((300, 40)), ["x" * 20_000], io.BytesIO()
    np.save(blob, array)
    shared = {"npy": blob.getvalue(), "json": json.dumps(text).encode()}
    contents = [{"jpg": bytes([number]) * (20_000 + number), **shared, "cls": b"%d" % number} for number in range(5)]
    path = tmp_path / "large.tar"
    with open(path, "wb") as file, TarWriter(file) as writer:
        for number, fields in enumerate(contents):
            writer.write_sample(f"s{number}", fields)
    elements = list(ps.read_tar(path))
    assert elements == [{"__key__": f"s{number}", **fields} for number, fields in enumerate(contents)]
    assert all(type(value) is bytes for element in elements for name, value in element.items() if name != "__key__")
    for number, element in enumerate(ps.read_tar(path, fields=["png;jpg", "npy", "json", "cls"], decode="basic")):
        assert element["png"] == contents[number]["jpg"]
        assert np.array_equal(element["npy"], array)
        assert element["json"] == text
        assert element["cls"] == number


def test_a_field_that_is_missing_names_the_sample_and_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(sample(b"one", {b"jpg": b"1", b"cls": b"2"}) + sample(b"two", {b"jpg": b"3"}) + END)
    ds = ps.read_tar(tmp_path / "a.tar", fields=["jpg", "cls;label"])
    assert ds[0]["cls"] == b"2"
    with pytest.raises(RecordError, match="the sample has no field 'cls' or 'label'; it has 'jpg'") as caught:
        ds[1]
    notes = "\n".join(caught.value.__notes__)
    assert "in the sample with key 'two'" in notes
    assert "a.tar" in notes
    assert "offset 2048" in notes


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"fields": []}, "fields=[] is no list of different extensions"),
        ({"fields": "jpg"}, "fields='jpg' is no list"),
        ({"fields": ["jpg", "jpg;png"]}, "is no list of different extensions"),
        ({"fields": ["__key__"]}, "the key always comes as"),
        ({"fields": [7]}, "fields=[7] is no list"),
        ({"decode": "all"}, "decode='all' is not known"),
        ({"missing_end": "ignore"}, "missing_end='ignore' is not known"),
        ({"links": True}, "links=True is not known"),
    ],
)
def test_arguments_that_are_not_known_are_refused(shards: str, how: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        ps.read_tar(shards, **how)
    assert words in str(caught.value)


def test_without_verify_only_headers_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(sample(b"a", {b"txt": b"123"}) + END)
    made, status = source(path, verify=False), os.stat(path)
    with open(path, "r+b") as file:
        file.seek(512)
        file.write(b"9")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    rows: list[Any] = []
    made.gather([0], rows)
    assert rows[0]["txt"] == b"923"


def test_a_file_without_its_end_warns_is_refused_or_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(sample(b"a", {b"x": b"1"}))
    (tmp_path / "b.tar").write_bytes(sample(b"b", {b"x": b"1"}) + END[:512])
    pattern = str(tmp_path / "*.tar")
    with pytest.warns(UserWarning, match=r"a\.tar' and 1 more files: there are no two blocks of zeros at the end"):
        assert len(ps.read_tar(pattern)) == 2
    with pytest.raises(RecordError, match="may have been cut where a member ends") as caught:
        ps.read_tar(pattern, missing_end="error")
    assert "offset 1024" in str(caught.value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ps.read_tar(pattern, missing_end="accept")) == 2


def test_links_and_devices_are_refused_or_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(
        sample(b"a", {b"x": b"1"})
        + header(b"a.y", 0, b"1")
        + header(b"s.y", 0, b"2")
        + header(b"d/", 0, b"5")
        + header(b"n", 0, b"3")
        + END
    )
    with pytest.raises(RecordError, match="there are 2 links and 1 devices or other special members") as caught:
        ps.read_tar(path)
    assert "the first one at offset 1024" in str(caught.value)
    ds = ps.read_tar(path, links="skip")
    assert "left out: 1 directories, 2 links, 1 special" in str(ds)
    assert list(ds) == [{"__key__": "a", "x": b"1"}]


def test_shards_without_samples_are_read_with_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(END)
    (tmp_path / "b.tar").write_bytes(sample(b"b", {b"x": b"1"}) + END)
    assert [element["__key__"] for element in ps.read_tar(str(tmp_path / "*.tar"))] == ["b"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(ps.read_tar(tmp_path / "a.tar")) == []


def test_pickles_are_bytes_until_decoded_and_then_refused_with_key_and_place(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(sample(b"one", {b"pyd": b"cos\nsystem\n(S'false'\ntR."}) + END)
    assert ps.read_tar(tmp_path / "a.tar")[0]["pyd"].startswith(b"cos")
    with pytest.raises(RecordError, match="needs allow_pickle") as caught:
        ps.read_tar(tmp_path / "a.tar", decode="basic")[0]
    assert "key 'one'" in "\n".join(caught.value.__notes__)


def test_names_are_data_and_nothing_is_written_but_the_index(tmp_path: Path) -> None:
    """C28: a child process whose every call that could make or change a file is listed."""
    folder = tmp_path / "in"
    folder.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    names = [b"../outside/up.txt", os.fsencode(outside) + b"/absolute.txt", b"link/through.txt", b"C:\\x.txt", b"a\nb.txt", b"-rf.txt"]
    data = header(b"link", 0, b"2") + b"".join(member(name, b"%d" % number) for number, name in enumerate(names))
    (folder / "a.tar").write_bytes(data + END)
    code = textwrap.dedent("""
        import os, sys
        import penstock as ps
        made = []
        def hook(event, args):
            if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                made.append(os.path.basename(str(args[0])))
            elif event in ("os.mkdir", "os.symlink", "os.link", "os.chmod", "os.rename", "shutil.copyfile", "pickle.find_class"):
                made.append(event)
        ds = ps.read_tar(sys.argv[1], links="skip")
        sys.addaudithook(hook)
        print([element["__key__"] for element in ds])
        print(made)
    """)
    keys, made = output_of("-c", code, folder / "a.tar").splitlines()
    assert keys == repr([os.fsdecode(name[:-4]) for name in names])
    assert made == "[]"
    assert sorted(os.listdir(folder)) == [".penstock", "a.tar"]
    assert os.listdir(outside) == []


def test_a_sample_that_was_corrected_where_no_sampled_check_sum_looks_is_read_as_it_is_now(tmp_path: Path) -> None:
    path, past = tmp_path / "a.tar", 1_000_000_000_000_000_000
    parts = [sample(b"%06d" % number, {b"bin": bytes(2000), b"cls": b"3"}) for number in range(400)]
    path.write_bytes(b"".join(parts) + END)
    os.utime(path, ns=(past, past))
    sampled, length = sampled_spans(path.stat().st_size)
    ends = np.cumsum([len(part) for part in parts])
    unseen = [number for number, end in enumerate(ends) if not ((sampled < end) & (end - len(parts[number]) < sampled + length)).any()]
    one = unseen[len(unseen) // 2]
    before, rows = source(path), list[Any]()
    os.utime(path, ns=(past, past + 1))
    before.gather([one], rows)
    assert rows[0]["cls"] == b"3"
    parts[one] = sample(b"%06d" % one, {b"bin": bytes(2000), b"cls": b"7"})
    path.write_bytes(b"".join(parts) + END)
    os.utime(path, ns=(past, past + 2))
    with pytest.raises(RecordError, match="are not those that the index was built of") as caught:
        before.gather([one], [])
    assert "open the dataset again" in caught.value.fix
    for _ in range(2):
        rows.clear()
        source(path).gather([one], rows)
        assert rows[0]["cls"] == b"7"
    assert decode((tmp_path / ".penstock" / "a.tar.psidx").read_bytes(), "a").identity["mtime_ns"] == past + 2
