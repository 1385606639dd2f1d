"""The Pool split: a list of jobs, one part per core, each part in a process.

    python examples/classic/pool_split.py DONE_LIST

Shows: `parallel_jobs` in place of the part that everybody wrote by hand, `jobs[i * n // cores : (i + 1) * n // cores]` and a Pool, which
hung for ever when a worker was killed and began from nothing after a crash. Results come in the order of the jobs; a failed job is named;
with a done-list a second run does only what is missing.
"""

import sys

import numpy as np

import penstock as ps


def thumbnail(number):
    """Stand for the work on one image: return its number and mean after a resize."""
    image = np.random.default_rng(number).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    return number, round(float(ps.image.resize(image, (32, 32)).mean()), 2)


def main(done_list):
    jobs = list(range(103))  # a prime: no number of workers divides it
    results = ps.parallel_jobs(thumbnail, jobs, num_workers=4, done=done_list)
    print(f"{len(results)} results, in order: {[number for number, _ in results] == jobs}")
    print(f"the last one: {results[-1]}")

    again = ps.parallel_jobs(thumbnail, jobs, num_workers=2, done=done_list)  # nothing is left to do
    print(f"read from the done-list: {again == results}")


if __name__ == "__main__":
    main(sys.argv[1])
