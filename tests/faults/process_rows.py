"""The rows of the fault list that are about worker processes, and the tests of these that belong to other rows."""

from __future__ import annotations

from faults.cells import CELLS

__all__ = ["FURTHER", "ROWS"]


def _in(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"faults/{file}.py::test_{name}" for name in names)


_MATRIX = _in("test_matrix", "a_cell_of_the_matrix_ends_as_the_table_says_and_leaves_nothing")
_POINTS = _in("test_failpoints", "a_worker_that_ends_at_any_point_of_its_work_changes_nothing")
_RANDOM = _in("test_deaths", "workers_that_die_at_random_change_no_byte", "workers_that_die_at_many_random_times_change_no_byte")
_POISON = _in("test_deaths", "what_kills_twice_is_named_and_left_out_where_the_policy_says_so")
_RESUMED = _in(
    "test_deaths",
    "a_run_broken_off_and_resumed_with_other_workers_while_some_die_is_the_undisturbed_one",
    "40_runs_broken_off_and_resumed_while_workers_die_are_the_undisturbed_ones",
)
_MACHINE = _in(
    "test_feed_machine",
    "a_feed_delivers_the_plain_list_whatever_is_done_to_it_and_its_workers",
    "a_feed_delivers_the_plain_list_whatever_is_done_to_it_and_its_workers_at_length",
)


def _program(*names: str) -> tuple[str, ...]:
    return _in("test_worker_programs", *names)


ROWS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "A9",
        "the kernel kills a worker for want of memory",
        "WorkerDied with the element and a hint at the kernel's log",
        _program("a_worker_that_the_kernel_kills_for_want_of_memory_is_named_with_a_hint") + _MATRIX,
    ),
    ("A12", "a worker is stopped", "FeedStalled; close() kills it", _MATRIX),
    ("A16", "a worker dies at every start", "WorkerDied after a few starts", _MATRIX),
    ("A19", "libraries with threads of their own before the workers", "no hang", _MATRIX),
    ("A24", "a function starts a program and leaves it", "it ends with its worker", _MATRIX),
    (
        "G7",
        "workers import for longer than a stall takes",
        "no stall; batches as soon as they are ready",
        _in("test_deaths", "a_process_that_imports_for_longer_than_a_stall_is_no_stall"),
    ),
    (
        "G1",
        "feeds with processes and with threads run for hours over several sources",
        "memory, descriptors, threads, processes and speed stay what they were",
        _in(
            "test_long_run",
            "a_run_of_some_seconds_holds_no_more_at_its_end",
            "a_function_that_keeps_its_elements_is_found",
            "what_changes_in_a_long_run_is_named",
        ),
    ),
    (
        "G3",
        "a list of ten million texts is read in worker processes",
        "it lies in memory once for all workers, and reading it copies nothing",
        _in("test_soak", "a_list_of_texts_lies_in_memory_once_for_all_worker_processes_and_reading_it_copies_nothing"),
    ),
    (
        "B16",
        "shared memory of a crashed run, or of another user, has the name that is wanted",
        "shared memory has no name",
        _program("the_memory_of_workers_has_no_name_that_another_run_could_take_or_find_left"),
    ),
    (
        "B17",
        "the process that workers are forked from is killed; no resource tracker runs",
        "the feed goes on, and nothing is left",
        _program("the_process_that_workers_are_forked_from_may_be_killed_and_a_worker_behind_it"),
    ),
    ("G8", "several feeds at once, one of which is closed", "independent", _MATRIX),
)
"""Rows that are about processes alone."""

FURTHER: dict[str, tuple[str, ...]] = {
    "A6": _RANDOM,
    "A7": _RANDOM + _POISON,
    "A8": _POINTS + _RANDOM,
    "A21": _program("workers_end_with_a_program_that_is_killed_whatever_they_do"),
    "A22": _program("workers_end_with_a_program_that_is_killed_while_they_start"),
    "B3": _program("an_error_of_the_program_is_its_only_traceback"),
    "B9": _program("a_program_with_worker_processes_exits_with_its_own_status_and_says_nothing"),
    "B10": _program(
        "a_program_with_worker_processes_exits_with_its_own_status_and_says_nothing", "an_error_of_the_program_is_its_only_traceback"
    ),
    "B11": _program("ctrl_c_of_the_terminal_is_one_keyboard_interrupt_and_leaves_nothing"),
    "B12": _program("sigterm_leaves_no_worker", "the_state_that_a_handler_of_sigterm_saves_goes_on_behind_what_the_loop_got"),
    "B13": _program("a_program_that_reaps_all_children_and_handles_sigchld_itself_is_no_hindrance"),
    "B15": _program("a_full_folder_of_shared_memory_is_no_hindrance"),
    "B18": _program("a_program_without_descriptors_gets_everything_or_an_error_and_goes_on"),
    "B23": _POINTS,
    "B32": ("laws/test_processes.py::test_worker_processes_deliver_what_the_loops_own_thread_does",),
    "E7": _RESUMED,
    "E10": _RESUMED + _MACHINE,
}

for one in CELLS.values():
    for number in one.rows:
        if not any(row[0] == number for row in ROWS) and _MATRIX[0] not in FURTHER.get(number, ()):
            FURTHER[number] = FURTHER.get(number, ()) + _MATRIX
