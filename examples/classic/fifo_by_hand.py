"""A queue of three elements that is read four times by hand: the first program of TensorFlow's guide to queues.

    python examples/classic/fifo_by_hand.py

Shows: first in, first out; an element that is put back comes again behind the others; and the read that nobody can ever serve. In
TensorFlow 1 that read hung for ever, with no word. Here it is an error at once, for no thread could fill the queue.
"""

from penstock.errors import QueueStarved
from penstock.queues import FIFOQueue


def main():
    queue = FIFOQueue(capacity=3, dtypes=["float32"], shapes=[()], name="by_hand")
    queue.enqueue_many([0.1, 0.2, 0.3])  # three elements: slices along dimension 0
    print(f"{queue.size()} of {queue.capacity} elements are in the queue")

    for _ in range(4):  # take one, add one to it, put it back: the queue stays full
        value = queue.dequeue()
        queue.enqueue(value + 1)
        print(f"took {value:.1f}, put back {value + 1:.1f}")

    print("in the end: " + ", ".join(f"{queue.dequeue():.1f}" for _ in range(3)))
    try:
        queue.dequeue()  # the classic program stopped here for ever
    except QueueStarved as starved:
        print(f"the read of the empty queue: {type(starved).__name__}: {starved}")


if __name__ == "__main__":
    main()
