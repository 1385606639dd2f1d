"""The two-layer net, fed in line and through a queue: where "18 s became 11.5 s" came from.

    python examples/classic/two_layer_net.py [--steps 5000] [--framework numpy|torch]

Shows: in line (TensorFlow's feed_dict) the net waits while each batch is made; through a FIFOQueue with a QueueRunner the next batches are
made meanwhile. Both see the same batches in the same order, so they end with the same accuracy. The net is in nets.py.
"""

import argparse
import time

import numpy as np
from nets import BATCH, NETS, WIDTH, make_batch

from penstock.queues import Coordinator, FIFOQueue, QueueRunner


def run(net, next_batch, steps):
    """Return (seconds, share of them spent waiting for batches, accuracy over the last tenth)."""
    right, waited, begin = [], 0.0, time.perf_counter()
    for step in range(steps):
        asked = time.perf_counter()
        inputs, labels = next_batch(step)
        waited += time.perf_counter() - asked
        right.append(net.train(inputs, labels))
    seconds = time.perf_counter() - begin
    return seconds, waited / seconds, float(np.mean(right[-max(1, steps // 10) :]))


def through_a_queue(net, steps):
    queue = FIFOQueue(capacity=8, dtypes=["float32", "float32"], shapes=[(BATCH, WIDTH), (BATCH, 1)], name="batches")
    batches = (make_batch(step) for step in range(steps))  # at its end the runner closes the queue
    coord = Coordinator()
    threads = QueueRunner(queue, [batches]).create_threads(coord=coord, start=True)
    with coord.stop_on_exception():
        result = run(net, lambda step: queue.dequeue(), steps)
    coord.request_stop()
    coord.join(threads)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--framework", choices=sorted(NETS), default="numpy")
    options = parser.parse_args()
    make_net = NETS[options.framework]
    make_net().train(*make_batch(0))  # what is done once is not part of the comparison
    in_line = run(make_net(), make_batch, options.steps)
    queued = through_a_queue(make_net(), options.steps)
    for name, (seconds, waiting, accuracy) in (("in line", in_line), ("through a queue", queued)):
        print(f"{name:16}{seconds:8.2f} s, {100 * waiting:5.1f} % of it waiting for batches, accuracy {accuracy:.4f}")
    print(f"through a queue it takes {queued[0] / in_line[0]:.2f} of the time; same accuracy: {in_line[2] == queued[2]}")


if __name__ == "__main__":
    main()
