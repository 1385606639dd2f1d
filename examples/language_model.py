"""Train from JSONL on 4 ranks, kill them, and go on with 3 from the last checkpoint: each document is trained on once.

python examples/language_model.py FOLDER
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import penstock as ps

NUM_DOCUMENTS = 3000


def tokenise(element):
    tokens = np.array([len(word) for word in element["text"].split()], np.int32)
    return {"tokens": tokens, "document": np.full(len(tokens), element["id"], np.int32)}


def length(element):
    return len(element["tokens"])


def train(folder, rank, num_ranks):
    """Train as one rank. It prints each step with its documents, and waits for the other ranks as an all-reduce does."""
    documents = ps.read_jsonl(str(folder / "documents.jsonl")).map(tokenise)
    known = documents.measure(str(folder / "numbers"), length=length, num_workers=0)  # one rank computes, the others wait and read
    rows = known.pack_sequences(512, by="length").shuffle(seed=1)
    ds = rows.shard_by_rank("mask", rank=rank, num_ranks=num_ranks).batch(4)  # a row that only fills up the last round is not valid
    checkpoint = folder / "checkpoint.json"
    with ds.feed(executor="inline") as feed:
        if checkpoint.exists():
            feed.load_state_dict(checkpoint.read_text())
        for batch in feed:
            is_token = (batch["segment_ids"] > 0) & batch["valid"][:, None]
            print(json.dumps([feed.step, np.unique(batch["document"][is_token]).tolist()]), flush=True)
            sys.stdin.readline()
            if rank == 0 and feed.step % 4 == 0:  # one state serves all ranks, and any number of them
                (folder / "checkpoint.part").write_text(json.dumps(feed.state_dict()))
                os.replace(folder / "checkpoint.part", checkpoint)


def run_ranks(folder, num_ranks, last_step=None):
    """Run a process for each rank to the end of the data, or kill all in a step. Return the step and documents of each batch."""
    command, pipes = [sys.executable, __file__, str(folder)], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen([*command, str(rank), str(num_ranks)], **pipes) for rank in range(num_ranks)]
    trained = []
    while all(lines := [rank.stdout.readline() for rank in ranks]):
        trained += map(json.loads, lines)
        if trained[-1][0] == last_step:
            break
        for rank in ranks:
            print(file=rank.stdin, flush=True)
    for rank in ranks:
        rank.kill()
        rank.communicate()
    return trained


def main(folder):
    texts = ({"id": number, "text": "some words " * (1 + number * 37 % 100)} for number in range(NUM_DOCUMENTS))
    (folder / "documents.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    before = run_ranks(folder, 4, last_step=10)
    saved = json.loads((folder / "checkpoint.json").read_text())["step"]
    print(f"4 ranks were killed in step {before[-1][0]}; the last checkpoint is of step {saved}")
    after = run_ranks(folder, 3)
    print(f"3 ranks went on with step {after[0][0]}, and the data ended with step {after[-1][0]}")
    trained = [document for step, documents in before if step <= saved for document in documents]
    trained += [document for _, documents in after for document in documents]
    print(f"each of {NUM_DOCUMENTS} documents was trained on once: {sorted(trained) == list(range(NUM_DOCUMENTS))}")


if __name__ == "__main__":
    folder, *rank = sys.argv[1:]
    train(Path(folder), *map(int, rank)) if rank else main(Path(folder))
