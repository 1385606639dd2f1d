"""A generator of batches of 128, run ahead of the training by GeneratorEnqueuer: Keras's way to keep a generator from holding up a step.

    python examples/classic/generator_enqueuer.py [--processes]

Shows: the same calls as in Keras, `start`, `get`, `stop`. A generator that is shared by threads is guarded, so each batch comes once; in
processes each worker makes a generator of its own from the function and takes its share of the batches. An error in the
generator is raised by the loop that takes the batches, with its own traceback: in Keras it was printed and looked like the end of the data.
"""

import argparse

import numpy as np

import penstock as ps

NUM_BATCHES, BATCH_SIZE = 12, 128


def batches():
    """Yield (inputs, labels) of 128 samples each; one sample of batch 9 is broken."""
    for number in range(NUM_BATCHES):
        inputs = np.random.default_rng(number).standard_normal((BATCH_SIZE, 32)).astype(np.float32)
        if number == 9:
            raise ValueError(f"sample {BATCH_SIZE * number + 5} cannot be read")
        yield inputs, inputs.sum(axis=1) > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", action="store_true")
    processes = parser.parse_args().processes
    generator = batches if processes else batches()  # a generator cannot travel to a process; the function that makes it can
    enqueuer = ps.GeneratorEnqueuer(generator, use_multiprocessing=processes, random_seed=7, share=processes)
    enqueuer.start(workers=2, max_queue_size=10)
    total = 0
    try:
        for inputs, _ in enqueuer.get():
            total += len(inputs)
    except ValueError as error:
        print(f"{total} samples came before: {type(error).__name__}: {error}")
    finally:
        enqueuer.stop()
    print(f"running: {enqueuer.is_running()}")


if __name__ == "__main__":
    main()
