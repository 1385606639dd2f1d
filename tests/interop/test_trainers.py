"""Lightning, Accelerate and the Trainer of Hugging Face: killed in the middle of an epoch, they go on, and each batch is trained once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.adapters.hugging_face import FeedTrainerMixin

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("lightning", reason="lightning is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

tqdm = pytest.importorskip("tqdm", reason="tqdm is not installed").tqdm  # of the Trainer: its thread and its lock outlive a test
tqdm.monitor_interval = 0
tqdm.get_lock()

NUM_EPOCHS, KILLED_AT = 3, 14


class Killed(Exception):
    """In place of a signal: trainers must not be able to end in order."""


def _pipeline() -> ps.Dataset:
    numbers = np.arange(40)
    return ps.from_arrays({"x": numbers.astype(np.float32).reshape(40, 1), "number": numbers}).shuffle(seed=7).batch(4)


def _whole() -> list[list[int]]:
    with _pipeline().feed() as feed:
        return [batch["number"].tolist() for _ in range(NUM_EPOCHS) for batch in feed]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- Lightning -------------------------------------------------------------------------------------------------------------------------


def _lightning_run(folder: Path, ds: ps.Dataset, killed_at: int | None, checkpoint: str | None = None) -> list[list[int]]:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    seen: list[list[int]] = []

    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            if len(seen) == killed_at:
                raise Killed
            seen.append(batch["number"].tolist())
            return self.layer(batch["x"]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-3)

    save = ModelCheckpoint(dirpath=folder, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    trainer = lightning.Trainer(
        max_epochs=NUM_EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[save],
        default_root_dir=folder,
    )
    with ds.feed(output="torch") as feed:
        try:
            trainer.fit(Model(), feed, ckpt_path=checkpoint)
        except Killed:
            assert killed_at is not None
    return seen


def test_lightning_saves_the_feed_and_goes_on_with_the_next_batch(tmp_path: Path) -> None:
    first = _lightning_run(tmp_path, _pipeline(), KILLED_AT)
    rest = _lightning_run(tmp_path, _pipeline(), None, str(tmp_path / f"step={KILLED_AT}.ckpt"))
    assert first + rest == _whole()


def test_lightning_fetches_one_ahead_where_the_length_is_not_known(tmp_path: Path) -> None:
    """So its state counts that batch as trained, as docs/torch.md says."""
    ds = _pipeline().unbatch().filter(lambda element: element["number"] % 3 > 0).batch(4)
    first = _lightning_run(tmp_path, ds, 3)
    state = torch.load(tmp_path / "step=3.ckpt", weights_only=False)["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]
    assert (len(first), state["step"]) == (3, 4)


# -- Accelerate ------------------------------------------------------------------------------------------------------------------------


def _accelerate_run(folder: Path, killed_at: int | None, *, resumes: bool = False) -> list[list[int]]:
    from accelerate import Accelerator

    accelerator, seen = Accelerator(cpu=True), []
    with _pipeline().feed(output="torch", device=accelerator.device) as feed:
        layer = torch.nn.Linear(1, 1)
        model, optimizer, same = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 1e-3), feed)
        assert same is feed
        accelerator.register_for_checkpointing(feed)
        if resumes:
            accelerator.load_state(str(folder))
        for _ in range(feed.epoch, NUM_EPOCHS):
            for batch in feed:
                accelerator.backward(model(batch["x"]).mean())
                optimizer.step()
                seen.append(batch["number"].tolist())
                if len(seen) == killed_at:
                    accelerator.save_state(str(folder), safe_serialization=False)
                    return seen
    return seen


def test_accelerate_saves_the_feed_and_goes_on_with_the_next_batch(tmp_path: Path) -> None:
    first = _accelerate_run(tmp_path, KILLED_AT)
    assert first + _accelerate_run(tmp_path, None, resumes=True) == _whole()


_SHARDED_TWICE = """
import numpy as np
from accelerate import Accelerator
from torch.utils.data import DataLoader
import penstock as ps

accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2
with ps.from_arrays(np.arange(40)).shard_by_rank().batch(4).feed(output="torch") as feed:
    for batch in accelerator.prepare(DataLoader(feed, batch_size=None)):
        print("a batch")
"""


def test_accelerate_may_not_shard_a_feed_again() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1]), "ACCELERATE_USE_CPU": "true"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _SHARDED_TWICE],
            env={**os.environ, **own, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for rank in ranks:
        out, errors = rank.communicate(timeout=90)
        assert rank.returncode == 1
        assert out == ""
        assert "gives each rank a part of a feed that has the part of its rank already" in errors


# -- Hugging Face ----------------------------------------------------------------------------------------------------------------------


def _trainer_run(
    folder: Path, killed_at: int | None, checkpoint: Any = None, *, accumulate: int = 1, ds: ps.Dataset | None = None, max_steps: int = -1
) -> list[list[int]]:
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

    seen: list[list[int]] = []

    class Config(PretrainedConfig):  # type: ignore[misc]
        model_type = "one-layer"

    class Model(PreTrainedModel):  # type: ignore[misc]
        config_class = Config

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = torch.nn.Linear(1, 1)
            self.post_init()

        def forward(self, x: Any, number: Any) -> Any:
            seen.append(number.tolist())
            return {"loss": self.layer(x).mean()}

    class FeedTrainer(FeedTrainerMixin, Trainer):  # type: ignore[misc]
        pass

    class Kill(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.global_step * accumulate == killed_at:
                raise Killed

    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=NUM_EPOCHS,
        max_steps=max_steps,
        gradient_accumulation_steps=accumulate,
        save_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        remove_unused_columns=False,
    )
    with (ds or _pipeline()).feed(output="torch") as feed:
        trainer = FeedTrainer(model=Model(Config()), args=arguments, train_dataset=feed, callbacks=[Kill()])
        try:
            trainer.train(resume_from_checkpoint=checkpoint)
        except Killed:
            assert killed_at is not None
    return seen


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("by_name", [True, False])
def test_the_trainer_saves_the_feed_and_goes_on_with_the_next_batch(tmp_path: Path, accumulate: int, by_name: bool) -> None:
    first = _trainer_run(tmp_path, KILLED_AT, accumulate=accumulate)
    checkpoint = str(tmp_path / f"checkpoint-{KILLED_AT // accumulate}") if by_name else True
    rest = _trainer_run(tmp_path, None, checkpoint, accumulate=accumulate)
    assert first + rest == _whole()


def test_the_trainer_goes_on_in_the_right_epoch_where_the_length_is_not_known(tmp_path: Path) -> None:
    ds = _pipeline().unbatch().filter(lambda element: element["number"] % 3 > 0).batch(4)  # 26 elements, 7 batches
    with ds.feed() as feed:
        want = [batch["number"].tolist() for _ in range(3) for batch in feed][:18]
    first = _trainer_run(tmp_path, 10, ds=ds, max_steps=18)
    rest = _trainer_run(tmp_path, None, str(tmp_path / "checkpoint-10"), ds=ds, max_steps=18)
    assert first + rest == want
