"""What packing bought."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.cli.pack import Gain, measured


def test_both_are_read_and_counted(tmp_path: Path) -> None:
    dataset = ps.from_source(range(100))
    manifest = ps.pack(dataset, tmp_path, executor="threads")
    gain = measured(dataset, manifest, 1, ps.Raise())
    assert gain.raw_per_s > 0
    assert gain.packed_per_s > 0
    assert gain.times == gain.packed_per_s / gain.raw_per_s
    assert (gain.num_workers, gain.batch_size) == (1, 12)


def test_each_pass_makes_every_sample_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "made"

    def noted(number: int) -> dict[str, int]:  # in a worker process
        with open(log, "a") as file:
            file.write(f"{number}\n")
        return {"number": number}

    dataset = ps.from_source(range(320))
    manifest = ps.pack(dataset.map(lambda number: {"number": number}), tmp_path / "packed", executor="threads")
    assert measured(dataset.map(noted), manifest, 1, ps.Raise()).batch_size == 32
    made = [int(line) for line in log.read_text().splitlines()]
    first, second = made[:320], made[320:640]  # one thread makes them in the order of the loop
    assert sorted(first) == sorted(second) == list(range(320))
    assert first not in (sorted(first), second)


def test_samples_that_no_loop_could_put_into_a_batch_are_an_error(tmp_path: Path) -> None:
    manifest = ps.pack(ps.from_source(range(80)), tmp_path, executor="threads")
    other = ps.from_source([np.zeros((2,) * (1 + number % 2)) for number in range(80)])
    with pytest.raises(ps.errors.SpecError, match="two elements of one batch differ"):
        measured(other, manifest, 1, ps.Raise())


@pytest.mark.parametrize("ending", ["none", "filter"])
def test_samples_of_other_lengths_are_padded_and_a_filter_is_shuffled_in_a_buffer(tmp_path: Path, ending: str) -> None:
    dataset = ps.from_source([{"text": np.arange(3 + number % 5)} for number in range(80)])
    if ending == "filter":
        dataset = dataset.filter(lambda element: len(element["text"]) > 3)
    manifest = ps.pack(dataset, tmp_path, executor="threads")
    gain = measured(dataset, manifest, 1, ps.Raise())
    assert gain.raw_per_s > 0
    assert gain.packed_per_s > 0
    assert gain.batch_size == len(manifest) // 8


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_small_set_is_read_again_and_again(tmp_path: Path, compression: str | None) -> None:
    log = tmp_path / "taken"

    def noted(element: int) -> int:  # in a worker process
        with open(log, "a") as file:
            file.write("x")
        return element

    dataset = ps.from_source(range(10)).map(noted)
    manifest = ps.pack(ps.from_source(range(10)), tmp_path / "packed", executor="threads", compression=compression)
    gain = measured(dataset, manifest, 1, ps.Raise())
    assert log.stat().st_size > 100  # half a second of what takes microseconds
    assert gain.packed_per_s > 0


def test_of_images_pixels_are_taken_and_nothing_is_encoded(tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    from penstock.packing.reencode import EncodeJpeg, reencoded

    elements = [EncodeJpeg("data")({"data": np.zeros((40, 60 + number, 3), np.uint8)}) for number in range(20)]  # of different widths
    source = ps.from_source(elements)
    dataset = reencoded(source, "data", size=20, quality=90)
    manifest = ps.pack(dataset, tmp_path, executor="threads")
    gain = measured(dataset, manifest, 1, ps.Raise(), (source, 20))
    assert (gain.raw_words, gain.packed_words) == ("decoded, resized and cropped", "read, decoded and cropped")
    gain = measured(dataset, manifest, 1, ps.Raise(), (source, None))
    assert (gain.raw_words, gain.packed_words) == ("decoded, resized to 224x224", "read, decoded, resized to 224x224")


def test_it_pays_only_when_it_is_faster() -> None:
    assert Gain(raw_per_s=10, packed_per_s=20, num_workers=1).pays_after_epochs == pytest.approx(2)
    assert Gain(raw_per_s=10, packed_per_s=10, num_workers=1).pays_after_epochs is None
