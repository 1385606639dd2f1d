"""Three values are put into a queue by hand and read four times: the second program of the classic guide, as it was.

    python examples/classic/four_reads.py

Shows: the read that hung. In TensorFlow the fourth `sess.run(y)` never returned. Here it ends the program at once, with an error that
names the queue, both lines and a remedy. TensorFlow's lines stand behind ours.
"""

from penstock.queues import FIFOQueue


def main():
    queue = FIFOQueue(capacity=3, dtypes=["float32"], name="q")  # q = tf.FIFOQueue(capacity=3, dtypes=tf.float32)
    queue.enqueue_many([0.1, 0.2, 0.3])  # sess.run(q.enqueue_many(x_input_data))
    for _ in range(4):
        y = queue.dequeue() + 1  # sess.run(y), of y = q.dequeue() + 1
        print(f"y = {y:.1f}, elements left: {queue.size()}")


if __name__ == "__main__":
    main()
