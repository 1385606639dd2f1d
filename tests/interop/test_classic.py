"""What docs/classic.md says of TensorFlow's queues and of its decoder, held against TensorFlow."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

PAGE = (Path(__file__).parents[2] / "docs" / "classic.md").read_text(encoding="utf-8")
LIMIT_S = 60


def said(call: Callable[[], object]) -> list[str]:
    """Return the lines of the error that a call raises, without the names of queues."""
    with pytest.raises(Exception) as caught:
        call()
    return [f"{type(caught.value).__name__}: {line}" for line in plain(str(caught.value)).splitlines()]


def plain(text: str) -> str:
    return re.sub(r"'_\d+_fifo_queue\w*'", "'_0_fifo_queue'", text)


def test_the_error_texts_are_those_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make interop")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        queue = tf.queue.FIFOQueue(3, [tf.float32])
        read, add, close = queue.dequeue(), queue.enqueue(1.0), queue.close()
        session.run(close)
        found = [said(lambda call=call: session.run(call)) for call in (read, add, close)]
        found.append(said(lambda: queue.enqueue_many([1.0, 2.0])))
    coord, leave = tf.train.Coordinator(), threading.Event()
    thread = threading.Thread(target=leave.wait, name="Thread-1")
    thread.start()
    coord.register_thread(thread)
    coord.request_stop()
    found.append(said(lambda: coord.join(stop_grace_period_secs=0.1)))
    leave.set()
    thread.join()
    headings = [line for line in PAGE.splitlines() if line.startswith("## ")]
    for lines in found:
        texts = {text for line in lines for text in (line, line.partition(": ")[2])}
        assert any(f"`{text}`" in heading for heading in headings for text in texts), lines


def test_close_waits_there_behind_pending_enqueues_and_here_it_does_not() -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make interop")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        theirs = tf.queue.FIFOQueue(1, [tf.float32], shapes=[()])
        # One enqueue of three values: that one value can be read shows that it is pending.
        add, read, close, closed = theirs.enqueue_many([[1.0, 2.0, 3.0]]), theirs.dequeue(), theirs.close(), theirs.is_closed()
        threads = [threading.Thread(target=session.run, args=(what,)) for what in (add, close)]
        threads[0].start()
        session.run(read)
        threads[1].start()
        threads[1].join(0.2)
        assert threads[1].is_alive()
        assert not session.run(closed)
        assert [session.run(read) for _ in range(2)] == [2, 3]
        for thread in threads:
            thread.join(LIMIT_S)
        assert session.run(closed)
    ours = ps.queues.FIFOQueue(1)
    producer = threading.Thread(target=ours.enqueue_many, args=([1, 2, 3],))
    producer.start()
    ours.dequeue()
    ours.close()
    assert ours.is_closed()
    assert [ours.dequeue(), ours.dequeue()] == [2, 3]
    producer.join(LIMIT_S)


@pytest.mark.parametrize("colours", ["420", "444"])
@pytest.mark.parametrize("quality", [75, 90])
def test_pixels_are_those_of_the_accurate_transform(quality: int, colours: str) -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make interop")
    simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    coarse = np.random.default_rng(7).integers(0, 256, (15, 20, 3), np.uint8)
    data = simplejpeg.encode_jpeg(cv2.resize(coarse, (320, 240)), quality=quality, colorsubsampling=colours)
    ours: Any = ps.image.decode(data).astype(int)
    exact, fast = (tf.io.decode_jpeg(data, 3, dct_method=method).numpy() for method in ("INTEGER_ACCURATE", ""))
    assert (ours == exact).all()
    assert 0 < abs(ours - fast).max() < 20
