"""Lightning, Accelerate and the Trainer of Hugging Face: killed in the middle of an epoch, they go on, and each batch is trained once."""

from __future__ import annotations

import json
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
    with _pipeline().feed(output=ps.Torch(device=accelerator.device)) as feed:
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


# -- validation on several ranks --------------------------------------------------------------------------------------------------------

_EVALUATE = """
import json, sys
import numpy as np, torch
import penstock as ps
from penstock.adapters.hugging_face import FeedTrainerMixin
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

count, batch_size, folder, is_filtered = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "filtered"

class Config(PretrainedConfig):
    model_type = "one-layer"

class Model(PreTrainedModel):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(1, 1)
        self.post_init()

    def forward(self, x, labels=None):
        logits = self.layer(x)[:, 0] * 0 + 2 * x[:, 0]
        return {"loss": ((logits - labels) ** 2).mean(), "logits": logits}

class FeedTrainer(FeedTrainerMixin, Trainer):
    pass

def pipeline(even):
    numbers = np.arange(count, dtype=np.float32)
    ds = ps.from_arrays({"x": numbers[:, None], "labels": numbers}).shuffle(seed=7)
    return (ds.filter(lambda row: row["labels"] >= 0) if is_filtered else ds).shard_by_rank(even).batch(batch_size)

def metrics(found):
    return {"labels": sorted(found.label_ids.tolist()), "right": bool((found.predictions == 2 * found.label_ids).all())}

arguments = TrainingArguments(
    output_dir=folder, report_to=[], use_cpu=True, disable_tqdm=True, remove_unused_columns=False, max_steps=2, save_strategy="no",
    logging_strategy="no", label_names=["labels"], eval_strategy="steps", eval_steps=2,
)
with pipeline("mask").feed(output="torch") as feed, pipeline("drop").feed(output="torch") as train:
    trainer = FeedTrainer(
        model=Model(Config()), args=arguments, train_dataset=train, eval_dataset={"own": feed}, compute_metrics=metrics
    )
    trainer.train()
    found = trainer.evaluate()
    out = {"loss": found["eval_own_loss"], "labels": found["eval_own_labels"], "right": found["eval_own_right"]}
    out["number"] = round(found["eval_own_samples_per_second"] * found["eval_own_runtime"])
    out["loss again"] = trainer.evaluate(feed)["eval_loss"]
    predicted = trainer.predict(feed)
    out["predicted"] = sorted((predicted.predictions / 2).tolist())
    out["same"] = trainer.predict(feed).predictions.tolist() == predicted.predictions.tolist()
if trainer.accelerator.num_processes == 1:
    columns = [{"x": np.float32([n]), "labels": np.float32(n)} for n in range(8)]
    out["others"] = len(trainer.get_eval_dataloader(columns)), len(trainer.get_test_dataloader(columns))
print(json.dumps(out))
"""

_VALIDATE = """
import json, sys
import lightning, torch, torchmetrics
import numpy as np
import penstock as ps
from penstock.adapters.ranks import valid_rows

count, batch_size = int(sys.argv[1]), int(sys.argv[2])
seen = []

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.mean = torchmetrics.MeanMetric()  # exact over ranks; the mean of log(sync_dist=True) divides by a rounded number of rows
        self.norm = torch.nn.BatchNorm1d(1)  # its buffers are sent to all ranks at each step: ranks wait for one that makes fewer

    def validation_step(self, batch, index):
        self.norm(batch["x"])
        seen.extend(batch["number"].tolist())
        if len(batch["x"]):  # a batch of a rank may be padding alone
            self.mean.update(batch["x"])
        self.log("mean", self.mean, on_epoch=True, on_step=False, batch_size=1)

    def val_dataloader(self):  # Lightning's processes know their ranks here
        numbers = np.arange(count)
        ds = ps.from_arrays({"x": numbers.astype(np.float32)[:, None], "number": numbers}).shard_by_rank("mask").batch(batch_size)
        return ds.feed(output=ps.Torch(transform=valid_rows))

trainer = lightning.Trainer(
    accelerator="cpu", devices=int(sys.argv[3]), strategy="ddp" if int(sys.argv[3]) > 1 else "auto", logger=False,
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
)
found = trainer.validate(Model(), verbose=False)
print(json.dumps({"seen": seen, "mean": found[0]["mean"]}))
"""


def _on_ranks(program: str, num_ranks: int, *arguments: Any) -> list[Any]:
    """Run a program on several ranks, as torchrun would; return what each printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        shared = {
            "WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": num_ranks, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "one",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": probe.getsockname()[1], "ACCELERATE_USE_CPU": "true",
        }  # fmt: skip
    own = {name: str(value) for name, value in shared.items()} if num_ranks > 1 else {}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
            env={**os.environ, **own, **({"RANK": str(rank), "LOCAL_RANK": str(rank)} if own else {})},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(num_ranks)
    ]  # fmt: skip
    out = []
    for rank in ranks:
        printed, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors
        out.append(json.loads(printed.splitlines()[-1]))
    return out


@pytest.mark.parametrize(
    ("count", "batch_size", "num_ranks", "how"),
    [
        (51, 5, 2, "plain"),  # the last batch of rank 1 is padding alone
        (51, 8, 2, "filtered"),
        (40, 5, 3, "plain"),
        (30, 4, 1, "plain"),
    ],
)
def test_the_trainer_evaluates_and_predicts_each_sample_once(count: int, batch_size: int, num_ranks: int, how: str, tmp_path: Path) -> None:
    want = [float(n) for n in range(count)]
    for found in _on_ranks(_EVALUATE, num_ranks, count, batch_size, tmp_path, how):
        assert found["labels"] == found["predicted"] == want
        assert found["right"]
        assert found["same"]
        assert found["loss"] == pytest.approx(np.mean(np.square(want)))
        assert found["loss again"] == pytest.approx(found["loss"])
        assert found["number"] == pytest.approx(count, abs=1)
        assert found.get("others", [1, 1]) == [1, 1]  # datasets of the Trainer's own are its business


@pytest.mark.parametrize(("count", "batch_size", "num_ranks"), [(51, 5, 2), (51, 8, 2), (30, 4, 1)])
def test_lightning_validates_each_sample_once(count: int, batch_size: int, num_ranks: int) -> None:
    found = _on_ranks(_VALIDATE, num_ranks, count, batch_size, num_ranks)
    assert sorted(number for one in found for number in one["seen"]) == list(range(count))
    assert [one["mean"] for one in found] == pytest.approx([np.mean(np.arange(count))] * num_ranks)
