"""Six values, a queue of three, one runner, ten reads: how often does the producer run?

    python examples/classic/queue_runner.py

Shows: a QueueRunner fills the queue in a thread of its own, a Coordinator ends it. This is exercise.py with counts that are the same in
every run: it waits until the producer has begun its third run. The twelve values of two whole runs are in the queue or read by then. The
third run adds one value more, and blocks with the other five. The stop at the end cancels it; in TensorFlow 1 a thread that blocked there
was often never woken.
"""

import threading

from penstock.queues import Coordinator, FIFOQueue, QueueRunner, add_queue_runner, start_queue_runners

VALUES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def main():
    queue = FIFOQueue(capacity=3, dtypes=["float32"], shapes=[()], name="values")
    begun, done = [], []
    third = threading.Event()

    def produce():
        begun.append(len(begun) + 1)
        if len(begun) == 3:
            third.set()
        queue.enqueue_many(VALUES)  # blocks part way; what does not fit waits, nothing is dropped
        done.append(len(done) + 1)

    add_queue_runner(QueueRunner(queue, [produce]))  # [produce] * 4 would be four threads
    coord = Coordinator()
    threads = start_queue_runners(coord=coord)

    with coord.stop_on_exception():
        read = [float(queue.dequeue(timeout_s=60)) for _ in range(10)]
        print("read: " + ", ".join(f"{value:.1f}" for value in read))
        third.wait(60)
        print(f"the producer ran {len(done)} times to its end, and has begun to run {len(begun)} times")

    coord.request_stop()
    coord.join(threads)  # raises what the producer raised, once; here nothing
    print(f"ended: {sum(thread.is_alive() for thread in threads)} threads are alive, the queue is closed: {queue.is_closed()}")


if __name__ == "__main__":
    main()
