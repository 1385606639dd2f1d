"""The two-layer net of TensorFlow's queue days: fed in line and through a queue, by TensorFlow 1's own means and by Penstock.

The net is that of examples/classic/nets.py: 128 x 1024 inputs, 1,024 ReLU, one logit, Adam with 1e-2. All see the same batches in the
same order.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from data import Size

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "classic"))
import nets
import two_layer_net

_SHAPES = [(nets.BATCH, nets.WIDTH), (nets.BATCH, 1)]


def _num_steps(run: rounds.Run) -> int:
    return max(20, run.size.num_integers // 20_000)  # 500 in the full size: the classic program's 5,000 differ in length only


def _result(steps: int, seconds: float, accuracy: float, **others: float) -> dict[str, Any]:
    return {"rate": steps / seconds, "seconds": seconds, "accuracy": accuracy, **others}


def _ours(framework: str, queued: bool) -> Any:
    def measure(run: rounds.Run) -> dict[str, Any]:
        if framework == "torch":
            rounds.torch()
        steps, make = _num_steps(run), nets.NETS[framework]
        make().train(*nets.make_batch(0))
        net = make()
        result = two_layer_net.through_a_queue(net, steps) if queued else two_layer_net.run(net, nets.make_batch, steps)
        return _result(steps, result[0], result[2], waiting=result[1])

    return measure


def _tensorflow(queued: bool) -> Any:
    def measure(run: rounds.Run) -> dict[str, Any]:
        try:
            import tensorflow
        except ImportError:
            raise rounds.Missing("tensorflow is not installed") from None
        tf = tensorflow.compat.v1
        tf.disable_v2_behavior()
        steps = _num_steps(run)
        numbers = iter(range(steps))
        tf.set_random_seed(7)
        inputs, labels = [tf.placeholder(tf.float32, shape) for shape in _SHAPES]
        if queued:
            queue = tf.FIFOQueue(8, [tf.float32, tf.float32], _SHAPES)
            made = tf.py_func(lambda: nets.make_batch(next(numbers)), [], [tf.float32, tf.float32])
            tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(made)]))
            inputs, labels = queue.dequeue()
        train, accuracy = _graph(tf, inputs, labels)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            coord = tf.train.Coordinator()
            right, begin = [], time.perf_counter()
            threads = tf.train.start_queue_runners(session, coord) if queued else []
            for step in range(steps):
                given = {} if queued else dict(zip((inputs, labels), nets.make_batch(step), strict=True))
                right.append(session.run([accuracy, train], given)[0])
            seconds = time.perf_counter() - begin
            coord.request_stop()
            coord.join(threads)
        return _result(steps, seconds, float(np.mean(right[-max(1, steps // 10) :])))

    return measure


def _graph(tf: Any, inputs: Any, labels: Any) -> tuple[Any, Any]:
    """Return the step of training and the share of right answers before it."""

    def weights(*shape: int) -> Any:
        return tf.Variable(tf.random_normal(shape, stddev=1 / 32))

    hidden = tf.nn.relu(tf.matmul(inputs, weights(nets.WIDTH, nets.WIDTH)) + tf.Variable(tf.zeros([nets.WIDTH])))
    logits = tf.matmul(hidden, weights(nets.WIDTH, 1)) + tf.Variable(tf.zeros([1]))
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(logits > 0, labels > 0), tf.float32))
    with tf.control_dependencies([accuracy]):
        return tf.train.AdamOptimizer(nets.RATE).minimize(loss), accuracy


def _nothing(size: Size, root: Path) -> None:
    """There are no data to make."""


CLAIM = rounds.Claim(
    name="classic",
    title="The two-layer net of the classic advice, fed in line and through a queue",
    unit="steps/s",
    prepare=_nothing,
    reference="tensorflow_feed_dict",
    references={"numpy_queue": "numpy_in_line", "torch_queue": "torch_in_line", "numpy_in_line": "", "torch_in_line": ""},
    also=("seconds", "waiting", "accuracy"),
    timeout_s=900.0,
)

if __name__ == "__main__":
    contestants = {
        "tensorflow_feed_dict": _tensorflow(queued=False),
        "tensorflow_queue": _tensorflow(queued=True),
        "numpy_in_line": _ours("numpy", queued=False),
        "numpy_queue": _ours("numpy", queued=True),
        "torch_in_line": _ours("torch", queued=False),
        "torch_queue": _ours("torch", queued=True),
    }
    rounds.main(CLAIM, contestants)
