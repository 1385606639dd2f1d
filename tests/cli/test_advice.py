"""What `penstock bench` advises, from hand-made figures."""

from __future__ import annotations

from penstock.cli.bench import Cost, Figures, advise
from penstock.observe import ConsumerStats, Snapshot, StageStats


def figures(*costs: tuple[str, float], ceiling: float, pixels: float | None = None, side: int | None = None) -> Figures:
    stage = StageStats(name="decode", num_elements=10_000, num_blocks=100, busy_s=19.7, cpu_s=19.5, workers=(0, 1))
    consumer = ConsumerStats(num_batches=150, first_wait_s=0.1, wait_s=9.8, span_s=9.9, mean_ready=0.1)
    return Figures(
        costs=tuple(Cost(name=name, us=us) for name, us in costs),
        first_batch_s=0.1,
        ceiling_per_s=ceiling,
        waits=(),
        batch_size=100,
        num_workers=2,
        pixels=pixels,
        side=side,
        snapshot=Snapshot(elapsed_s=10.0, num_cpus=2, stages=(stage,), consumer=consumer, notices=()),
    )


def test_the_step_that_need_not_wait_is_named() -> None:
    sentences = advise(figures(("read", 50.0), ("decode", 450.0), ceiling=4_000))
    assert "a training step of 27.5 ms or longer for 100 elements need not wait" in sentences[0]
    assert "down to 25 ms per batch" in sentences[0]


def test_the_limiting_stage_is_named_with_its_numbers() -> None:
    text = " ".join(advise(figures(("read", 50.0), ("decode", 450.0), ceiling=4_000)))
    assert "without a training step stage 'decode' is the bottleneck, CPU-bound: its 2 workers were busy 98 %" in text


def test_halving_the_dearest_operator_is_worth_what_amdahl_says() -> None:
    text = " ".join(advise(figures(("read", 50.0), ("augment", 450.0), ceiling=4_000)))
    assert "'augment' takes 90 % of an element's time (450 us): at half its cost the ceiling would be about 7,273 elements/s" in text


def test_large_images_should_be_stored_smaller_and_the_gain_is_estimated() -> None:
    text = " ".join(advise(figures(("read", 50.0), ("decode", 950.0), ceiling=2_000, pixels=2_000_000.0, side=224)))
    assert "the images have 2.00 million pixels, of which 224x224 are kept: stored once with about 291 pixels a side" in text
    assert "they would give about 22,167 elements/s" in text


def test_images_of_about_the_right_size_are_left_alone() -> None:
    text = " ".join(advise(figures(("read", 50.0), ("decode", 950.0), ceiling=2_000, pixels=90_000.0, side=224)))
    assert "stored once" not in text


def test_stacking_is_never_the_dearest_operator_because_penstock_does_none() -> None:
    text = " ".join(advise(figures(("read", 50.0), ("augment", 450.0), ("stack", 900.0), ceiling=4_000)))
    assert "'augment' takes 90 % of an element's time" in text
    assert "'stack'" not in text


def test_threads_that_do_not_help_are_called_so() -> None:
    text = " ".join(advise(figures(("read", 50.0), ("tokenize", 450.0), ceiling=2_100)))
    assert "2 threads are only 1.05 times as fast as one: an operator holds the GIL or waits for a lock" in text


def test_threads_that_do_help_are_not_blamed() -> None:
    text = " ".join(advise(figures(("read", 50.0), ("tokenize", 450.0), ceiling=3_800)))
    assert "times as fast as one" not in text


def test_an_array_file_with_reading_alone_has_no_dearest_operator() -> None:
    text = " ".join(advise(figures(("read", 5.0), ceiling=400_000)))
    assert "at half its cost" not in text
