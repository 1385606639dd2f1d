"""`feed.progress()` and `feed.show()` in a real notebook kernel: a text below the cell, which is updated."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

LINE = """
import time
import penstock as ps
with ps.from_source(range(400)).batch(4).feed(executor="threads", num_workers=1) as feed:
    for batch in feed.progress():
        time.sleep(0.01)
"""

PICTURE = """
import time
import penstock as ps
with ps.from_source(range(400)).batch(4).feed(executor="threads", num_workers=1) as feed, feed.show():
    for batch in feed:
        time.sleep(0.01)
        if feed.step % 50 == 0:
            print("done", feed.step)
"""

CLIENT = """
import json, sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
messages = []
try:
    reply = client.execute_interactive(sys.argv[1], timeout=60, output_hook=messages.append)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
assert reply["content"]["status"] == "ok", reply
print(json.dumps([[message["msg_type"], message["content"]] for message in messages], default=str))
"""


def shown_by(cell: str) -> list[tuple[str, dict[str, Any]]]:
    """Run a cell in a kernel of its own, and return what it showed: kind and content."""
    if importlib.util.find_spec("ipykernel") is None:
        pytest.skip("ipykernel is not installed")
    done = subprocess.run([sys.executable, "-c", CLIENT, cell], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    shown = [(kind, content) for kind, content in json.loads(done.stdout) if kind in ("display_data", "update_display_data", "stream")]
    assert shown[0][0] == "display_data"
    return shown


def test_in_a_notebook_the_line_is_a_display_that_is_updated() -> None:
    shown = shown_by(LINE)
    assert {kind for kind, _ in shown[1:]} == {"update_display_data"}
    assert len({content["transient"]["display_id"] for _, content in shown}) == 1
    texts = [content["data"]["text/plain"] for _, content in shown[1:]]
    assert texts[0] == "epoch 0: waiting for the first batch"
    assert 4 <= len(texts) <= 20
    assert "elements/s" in texts[2]
    assert texts[-1].startswith("epoch 0: 100/100 batches (100 %) in 0:0")


def test_in_a_notebook_the_picture_is_updated_and_what_is_printed_stands_below() -> None:
    shown = shown_by(PICTURE)
    assert "".join(content["text"] for kind, content in shown if kind == "stream") == "done 50\ndone 100\n"
    texts = [content["data"]["text/plain"] for kind, content in shown if kind == "update_display_data"]
    assert len(texts) >= 3
    assert texts[-1].startswith("epoch 0: 100/100 batches (100 %)")
    assert "training loop" in texts[-1]
