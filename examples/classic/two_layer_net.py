"""The two-layer net, fed without and with a queue: where "18 s became 11.5 s" came from.

    python examples/classic/two_layer_net.py [--steps 5000] [--framework numpy|torch]

Shows: without a queue (TensorFlow's feed_dict) the net waits while each batch is made; through a FIFOQueue with a QueueRunner the next
batches are made meanwhile. Both see the same batches in the same order, so they end with the same accuracy. Where the CPU computes the net
as well there is little to win. So without a GPU the same batches also go to a stand-in for one (see nets.py, where the net is, too).
"""

import argparse
import time

import numpy as np
from nets import BATCH, NETS, WIDTH, StandInDevice, make_batch

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


def compare(make_net, steps, tell):
    """Feed one net without and one with a queue; print what `tell(net, result)` says of each. Returns both nets and results."""
    nets = make_net(), make_net()
    results = run(nets[0], make_batch, steps), through_a_queue(nets[1], steps)
    for name, net, result in zip(("without a queue", "through a queue"), nets, results, strict=True):
        print(f"{name}{result[0]:9.2f} s, {tell(net, result)}")
    print(f"through a queue it takes {results[1][0] / results[0][0]:.2f} of the time; ", end="")
    return nets, results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--framework", choices=sorted(NETS), default="numpy")
    options = parser.parse_args()
    make_net = NETS[options.framework]
    make_net().train(*make_batch(0))  # what is done once is not part of the comparison

    words = "{:5.1f} % of it waiting for batches, accuracy {:.4f}"
    nets, results = compare(make_net, options.steps, lambda net, result: words.format(100 * result[1], result[2]))
    print(f"same accuracy: {results[0][2] == results[1][2]}")

    if not nets[0].on_gpu:  # the classic program's GPU was busy for a third of the time: a step took half as long as making a batch
        step_s = min(run(StandInDevice(0), make_batch, 10)[0] / 10 for _ in range(5)) / 2
        print(f"a stand-in for a GPU: a step takes {1000 * step_s:.2f} ms and no CPU, making a batch twice as long")
        busy = "device busy for {:.0f} % of it"
        nets, _ = compare(
            lambda: StandInDevice(step_s), options.steps, lambda net, result: busy.format(100 * options.steps * step_s / result[0])
        )
        print(f"same batches: {nets[0].seen == nets[1].seen}")


if __name__ == "__main__":
    main()
