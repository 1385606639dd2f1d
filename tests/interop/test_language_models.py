"""What docs/language-models.md says of checkpoints of PyTorch DCP and Orbax, with ranks that are killed, and of chat templates."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

# JAX is not imported here: beside it, no test of this process could fork.
pytestmark = pytest.mark.slow

_TORCH = """
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=num_ranks)
model = torch.nn.Linear(2, 2)

def save(feed):
    dcp.save({"model": model.state_dict(), "feed": json.dumps(feed.state_dict())}, checkpoint_id=folder)
    dcp.save({"feed": feed}, checkpoint_id=folder + "-taken-apart")

def load(feed):
    state = {"model": model.state_dict(), "feed": ""}
    dcp.load(state, checkpoint_id=folder)
    try:
        dcp.load({"feed": feed}, checkpoint_id=folder + "-taken-apart")
        sys.exit("a state with fields of both ranks was taken")
    except ps.errors.StateDamaged:
        feed.load_state_dict(state["feed"])
"""
_ORBAX = """
import jax, orbax.checkpoint as ocp
jax.distributed.initialize(address, num_processes=num_ranks, process_id=rank)
everywhere = jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices(), "all"), jax.sharding.PartitionSpec())
weights = {"w": jax.jit(lambda: jax.numpy.ones(2), out_shardings=everywhere)()}
manager = ocp.CheckpointManager(folder)

def save(feed):
    parts = {"weights": ocp.args.StandardSave(weights), "feed": ocp.args.JsonSave(feed.state_dict())}
    manager.save(feed.step, args=ocp.args.Composite(**parts))
    manager.wait_until_finished()

def load(feed):
    parts = {"weights": ocp.args.StandardRestore(weights), "feed": ocp.args.JsonRestore()}
    feed.load_state_dict(manager.restore(manager.latest_step(), args=ocp.args.Composite(**parts))["feed"])
"""
_RANK = """
import json, os, sys
import numpy as np
import penstock as ps

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # gloo prints
rank, num_ranks, address, folder, goes_on = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5], len(sys.argv) > 5
{library}
small = ps.from_arrays(np.arange(1000, 1050))
ds = ps.from_arrays(np.arange(101)).shuffle(seed=7).mix(small, weights=[2, 1]).filter(lambda n: n % 3 > 0).shard_by_rank().batch(4)
with ds.feed() as feed:
    if goes_on:
        load(feed)
    for batch in feed:
        if feed.step == 3 and not goes_on:
            save(feed)
        print(json.dumps([feed.step, batch.tolist()]), file=out, flush=True)
        sys.stdin.readline()
"""


def _run(library: str, folder: Path, num_ranks: int, *goes_on: str, last_step: int = 0) -> list[tuple[int, int]]:
    """Run ranks in step to the end, or kill them in a step; return the step and the number of each element, in the global order."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK.replace("{library}", library), str(rank), str(num_ranks), address, str(folder), *goes_on],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(num_ranks)
    ]  # fmt: skip
    seen, step = [], -1
    while step != last_step and all(lines := [rank.stdout.readline() for rank in ranks if rank.stdout]):
        (step, *_), *_ = steps = [json.loads(line) for line in lines]
        seen += [(step, number) for numbers in zip(*(batch for _, batch in steps), strict=True) for number in numbers]
        for rank in ranks:
            print(file=rank.stdin, flush=True)
    for rank in ranks:
        if last_step:
            rank.kill()
        rank.communicate(timeout=60)
    return seen


@pytest.mark.parametrize(("package", "library"), [("torch", _TORCH), ("orbax.checkpoint", _ORBAX)])
def test_ranks_that_are_killed_behind_a_checkpoint_go_on_with_fewer(package: str, library: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    whole = [number for _, number in _run(library, tmp_path / "whole", 1)]
    killed = _run(library, tmp_path / "killed", 2, last_step=5)
    rest = _run(library, tmp_path / "killed", 1, "goes on")
    assert [killed[-1][0], rest[0][0]] == [5, 4]
    assert [number for step, number in killed if step <= 3] + [number for _, number in rest] == whole


TEMPLATE = (
    "{% for one in messages %}<{{ one['role'] }}> {% if one['role'] == 'assistant' %}{% generation %}{{ one['content'] }} </s> "
    "{% endgeneration %}{% else %}{{ one['content'] }} </s> {% endif %}{% endfor %}"
)


def test_a_chat_template_of_transformers_marks_what_is_learnt_in_batches_by_a_budget(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(
        models.WordLevel({word: id for id, word in enumerate(["?", "<user>", "<assistant>", "</s>", "how", "well"])}, unk_token="?")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, chat_template=TEMPLATE)

    def render(chat: Any) -> Any:
        found = tokenizer.apply_chat_template(chat["messages"], return_dict=True, return_assistant_tokens_mask=True)
        tokens, learnt = np.array(found["input_ids"]), np.array(found["assistant_masks"])
        return {"tokens": tokens, "labels": np.where(learnt, tokens, -100)}

    def length(element: Any) -> int:
        return len(element["tokens"])

    with open(tmp_path / "chats.jsonl", "w", encoding="utf-8") as file:
        for count in (1, 3, 2):
            messages = [{"role": "user", "content": "how"}, {"role": "assistant", "content": "well " * count}]
            print(json.dumps({"messages": messages}), file=file)
    chats = ps.read_jsonl(str(tmp_path / "chats.jsonl")).map(render, name="render")
    known = chats.measure(str(tmp_path / "numbers"), length=length, version="1", num_workers=0)
    first, last = known.batch_by_cost("length", 14, padding_values={"tokens": 0, "labels": -100})
    assert first["tokens"].tolist() == [[1, 4, 3, 2, 5, 3, 0], [1, 4, 3, 2, 5, 5, 3]]
    assert first["labels"].tolist() == [[-100] * 4 + [5, 3, -100], [-100] * 4 + [5, 5, 3]]
    assert last["labels"].tolist() == [[-100] * 4 + [5, 5, 5, 3]]
