from __future__ import annotations

from pathlib import Path

import pytest
from tools.files import write

from check_rooms import main


def check(root: Path, name: str, text: str) -> int:
    write(root, f"src/penstock/{name}", text)
    return main([str(root)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("image/decode.py", "import numpy as np\nimport struct\n\ndef decode():\n    import cv2\n"),
        ("image/decode.py", "if TYPE_CHECKING:\n    import cv2\n"),
        ("sources/indexing.py", "import os\nHOME = os.environ.get('XDG_CACHE_HOME')\n"),
        ("cli/bench.py", "import argparse\nimport multiprocessing\nimport os\n\nHOME = os.environ.get('HOME')\n"),
        ("_engine/worker.py", "import threading\nimport time\nfrom penstock._contracts import event\n"),
        ("sources/files.py", "def read():\n    from urllib.parse import urlsplit\n"),
    ],
)
def test_what_a_room_may_reach_passes(tmp_path: Path, name: str, text: str) -> None:
    assert check(tmp_path, name, text) == 0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("image/decode.py", "import cv2\n", "1: cv2 is optional: import it inside the function"),
        ("image/decode.py", "try:\n    import simplejpeg\nexcept ImportError:\n    simplejpeg = None\n", "2: simplejpeg is optional"),
        ("feed.py", "def f():\n    from torch import Tensor\n", "2: torch may be imported only in adapters, cli"),
        ("sources/a.py", "import pandas\n", "1: pandas is not a dependency of any extra"),
        ("dataset.py", "import logging\n", "1: logging is slow to import"),
        ("dataset.py", "class A:\n    from concurrent.futures import Future\n", "2: concurrent is slow to import"),
        ("_order/a.py", "def f():\n    import time\n", "2: _order is pure, it has no use for time"),
        ("_plan/a.py", "from threading import Lock\n", "1: _plan is pure, it has no use for threading"),
        ("_engine/a.py", "from penstock.sources.files import Files\n", "1: _engine must not see sources"),
        ("_engine/a.py", "def f():\n    import penstock.image\n", "2: _engine must not see image"),
        ("_engine/a.py", "from penstock import observe\n", "1: _engine must not see observe"),
        ("feed.py", "import os\nx = os.environ['A']\n", "2: only cli and kernels read the environment"),
        ("feed.py", "from os import getenv\n", "1: only cli and kernels read the environment"),
        ("feed.py", "x = 1\ndef f():\n    global x\n    x = 2\n", "3: `global x`"),
    ],
)
def test_what_a_room_must_not_reach_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: str) -> None:
    assert check(tmp_path, name, text) == 1
    assert f"src/penstock/{name}:{words}" in capsys.readouterr().out
