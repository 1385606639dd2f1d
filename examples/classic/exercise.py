"""The exercise of the classic guide, as it was: six values, a queue of three, one runner, ten reads. How often does the producer run?

    python examples/classic/exercise.py

Shows: the answer depends on when you look. The producer adds six values at a time and blocks part way whenever three are in the queue.
Each read makes room, and lets the next waiting value in itself. So the ninth read lets the twelfth value in, the last of the second run,
and behind the tenth read two values are left. The producer's thread has only been woken: it has not returned from its second run yet,
which makes 1 run ended and 2 begun. As soon as it gets to work it begins a third run and adds one value more, and blocks: 2 ended, 3 begun
and 3 left. queue_runner.py waits for that. TensorFlow's runner is woken sooner, and printed "Raw inputs data generated" three times.
"""

from penstock.queues import Coordinator, FIFOQueue, QueueRunner, add_queue_runner, start_queue_runners


def main():
    queue = FIFOQueue(capacity=3, dtypes=["float32"])
    begun, ended = [], []

    def produce():
        begun.append(1)  # where the original printed "Raw inputs data generated"
        queue.enqueue_many([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
        ended.append(1)

    add_queue_runner(QueueRunner(queue, [produce]))
    coord = Coordinator()
    threads = start_queue_runners(coord=coord)
    for _ in range(10):
        queue.dequeue()  # sess.run(y)
    print(f"behind the tenth read: {len(ended)} ended, {len(begun)} begun, {queue.size()} left")
    coord.request_stop()
    coord.join(threads)


if __name__ == "__main__":
    main()
