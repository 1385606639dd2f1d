"""Which faults of the project's fault list are tested, and where. One row per fault; `test_registry.py` checks it."""

from __future__ import annotations

from typing import NamedTuple

from faults import process_rows, record_rows

__all__ = ["FAULTS", "Fault"]


class Fault(NamedTuple):
    """A row of the list: its number there, what goes wrong, what the user must see, and the tests, as 'file::name' below tests/."""

    number: str
    what: str
    outcome: str
    tests: tuple[str, ...]


def _in(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{file}::test_{name}" for name in names)


_WORKERS, _LOOPS, _PROCESSES = "faults/test_workers.py", "faults/test_loops.py", "faults/test_processes.py"
_STALLS, _ASYNC_STALLS = "faults/test_stalls.py", "faults/test_async_stalls.py"
_DATA, _RESUME, _KILLS, _SOAK = "faults/test_data.py", "faults/test_resume.py", "faults/test_kills.py", "faults/test_soak.py"
_DECODING, _HEADER, _READING = "image/test_decoding.py", "image/test_header.py", "sources/test_reading.py"
_POLICIES, _COMPLETED = "laws/test_policies.py", "laws/test_completion.py"
_FUNCTIONS, _OPERATORS, _COMPLETION = "faults/test_functions.py", "faults/test_operators.py", "faults/test_completion.py"
_RANKS, _COORDINATION, _LOAD = "faults/test_ranks.py", "faults/test_coordination.py", "faults/test_load.py"
_COORDINATOR, _FORKED = "faults/test_coordinator.py", "faults/test_forked_feeds.py"
_HELD, _EVERYTHING = "faults/test_resume_operators.py", "faults/test_everything.py"
_ENQUEUER, _IN_PROCESSES, _IN_THREADS = "enqueuer/test_enqueuer.py", "enqueuer/test_in_processes.py", "enqueuer/test_in_threads.py"
_CHILD, _OUTBOX = "_workers/test_child.py", "_workers/test_outbox.py"
_LISTFILE, _LISTPARSE, _FILES = "sources/test_listfile.py", "sources/test_listparse.py", "sources/test_files.py"

_ROWS = (
    # -- workers
    Fault(
        "A1",
        "a user's function raises",
        "its own exception with stage, worker, key and traceback, behind everything before it",
        _in(
            _WORKERS,
            "the_error_of_a_map_function_comes_as_itself_behind_everything_before_it",
            "all_whole_batches_before_the_failing_element_are_delivered",
            "an_error_anywhere_in_the_pipeline_comes_as_itself_behind_everything_before_it",
            "the_key_of_the_error_is_the_place_in_the_source_whatever_the_order_and_the_epoch",
            "after_an_error_the_saved_state_goes_on_with_the_element_that_failed",
        ),
    ),
    Fault(
        "A4",
        "a user's function raises StopIteration",
        "StopRaised, never a short epoch",
        _in(
            _WORKERS,
            "an_exception_that_would_pass_for_an_end_is_an_error_and_never_a_short_epoch",
            "a_generator_function_that_raises_an_end_itself_is_an_error",
        )
        + _in(_DATA, "a_stop_iteration_of_a_source_is_an_error_behind_the_elements_before_it"),
    ),
    Fault(
        "A5",
        "GeneratorExit, SystemExit, sys.exit(0) or KeyboardInterrupt in a user's function",
        "StopRaised; a KeyboardInterrupt in the caller's own thread stays one",
        _in(
            _WORKERS,
            "an_exception_that_would_pass_for_an_end_is_an_error_and_never_a_short_epoch",
            "a_keyboard_interrupt_of_a_users_function_in_a_thread_is_an_error",
            "a_keyboard_interrupt_in_the_callers_thread_stays_one_because_it_is_the_users_and_the_feed_goes_on",
        ),
    ),
    Fault(
        "A11",
        "a worker hangs: an endless loop, a lock, an event that never comes",
        "FeedStalled with stage, element, worker, stack and likely cause; the state goes on with that element",
        _in(
            _STALLS,
            "an_element_that_waits_for_ever_is_an_error_with_stage_key_worker_and_stack",
            "a_feed_that_stalled_is_closed_and_its_state_goes_on_with_the_element_that_was_stuck",
            "a_loop_without_end_is_named_as_one_that_computes",
            "two_operators_that_wait_for_each_others_lock_are_both_named",
            "a_stage_with_workers_of_its_own_is_named_while_the_others_idle",
            "a_filter_that_does_not_return_is_named_with_its_element",
            "a_map_above_a_batch_is_named_with_the_first_element_of_its_batch",
            "a_lock_that_the_training_loop_itself_holds_is_reported",
            "a_warning_is_given_for_the_loops_own_line_once_per_doubled_time_and_the_feed_goes_on",
            "without_a_timeout_nobody_looks",
        )
        + _in(
            _ASYNC_STALLS,
            "a_call_that_awaits_for_ever_is_an_error_with_stage_key_and_what_it_awaits",
            "of_many_calls_that_hang_some_are_listed_and_all_are_counted",
            "a_blocking_call_in_an_async_function_is_named_as_what_holds_up_the_loop",
            "a_computation_in_an_async_function_is_named_as_one",
            "a_task_of_the_users_own_that_blocks_the_loop_is_none_of_the_calls",
            "an_element_that_hangs_only_when_it_is_tried_again_is_named",
        )
        + _in(
            _ASYNC_STALLS,
            "a_sleep_and_a_future_have_causes_of_their_own",
            "calls_that_begin_and_end_are_no_stall_however_long_the_next_element_takes_to_come",
        ),
    ),
    Fault(
        "A13",
        "a worker or generator blocked in a read",
        "FeedStalled that names the read",
        _in(
            _STALLS,
            "a_read_from_a_fifo_that_nobody_writes_is_a_blocked_read",
            "a_generator_that_waits_for_an_empty_queue_is_an_empty_source",
            "a_generator_stuck_in_a_call_of_its_own_is_dead",
        )
        + _in(_ASYNC_STALLS, "a_queue_that_nobody_fills_is_an_empty_source", "a_socket_that_never_answers_is_a_blocked_read"),
    ),
    Fault(
        "A14",
        "one worker is far slower than the others",
        "the order stays, what is read ahead stays inside the byte budget",
        _in(
            _WORKERS,
            "one_stuck_worker_keeps_the_order_and_the_others_run_ahead_no_further_than_the_byte_budget",
            "elements_of_very_uneven_cost_come_in_order",
        ),
    ),
    Fault(
        "A17",
        "a process is forked while a feed runs",
        "in the child the feed raises at once and its end disturbs nobody; a new feed of the same dataset delivers everything",
        _in(
            _FORKED,
            "a_feed_raises_at_once_in_a_forked_process_where_a_new_one_gives_everything",
            "a_feed_whose_lock_is_held_by_a_thread_that_waits_in_it_raises_in_a_forked_process",
            "a_function_that_forks_inside_a_feed_leaves_the_feed_to_the_parent",
            "a_feed_that_has_ended_or_is_closed_says_so_in_a_forked_process_too",
            "a_feed_in_a_worker_of_a_data_loader_is_refused_and_outside_of_one_it_runs",
            "a_feed_is_not_pickled_and_says_what_is",
        ),
    ),
    Fault(
        "A20",
        "200 workers are started and killed",
        "no zombie",
        (
            *_in(_CHILD, "two_hundred_children_that_are_killed_leave_no_zombie"),
            *_in(_IN_PROCESSES, "a_worker_that_is_killed_at_any_item_is_never_an_end_and_the_others_go_too"),
        ),
    ),
    Fault(
        "A21",
        "the parent is killed while workers are idle, computing, blocked or in C",
        "the workers end with it",
        _in(_IN_PROCESSES, "the_workers_of_a_program_that_is_killed_end_with_it"),
    ),
    Fault(
        "A22",
        "the parent is killed while workers begin",
        "the workers end with it",
        (),
    ),
    Fault(
        "A23",
        "the thread that started the workers ends",
        "the workers live on",
        (),
    ),
    # -- loops
    Fault(
        "B1",
        "the loop is left by break",
        "nothing is left, the next epoch is whole",
        _in(
            _LOOPS,
            "a_loop_left_by_break_at_any_step_leaves_nothing_and_the_next_epoch_is_whole",
            "a_plain_for_loop_left_by_break_leaves_nothing_either",
        ),
    ),
    Fault(
        "B2",
        "a feed is dropped without close, in a cycle, held by a traceback",
        "its threads end with it",
        _in(
            _LOOPS,
            "a_dropped_feed_ends_its_threads_at_once",
            "a_feed_in_a_reference_cycle_ends_with_the_cycle",
            "a_feed_held_by_a_traceback_lives_as_long_as_it_and_no_longer",
        ),
    ),
    Fault(
        "B3",
        "the training loop raises while queues are full",
        "the user's exception alone, exit status 1",
        (
            *_in(_LOOPS, "an_error_of_the_loop_with_full_queues_stays_the_users_and_closes_the_feed"),
            *_in(_PROCESSES, "an_error_of_the_training_loop_exits_with_1_and_one_traceback_without_the_librarys_frames"),
        ),
    ),
    Fault(
        "B4",
        "close() in each state, twice, through a generator",
        "clean, the second does nothing",
        _in(
            _LOOPS,
            "close_works_in_every_state_and_a_second_close_does_nothing",
            "a_generator_around_a_feed_closes_it_with_itself",
            "close_from_another_thread_wakes_a_consumer_that_waits",
        ),
    ),
    Fault("B5", "next() after close()", "FeedClosed at once", _in(_LOOPS, "close_works_in_every_state_and_a_second_close_does_nothing")),
    Fault(
        "B6",
        "two loops over one dataset, or over one feed",
        "independent; or each element to one of them",
        _in(_LOOPS, "two_feeds_of_one_dataset_at_once_are_independent", "two_loops_over_one_feed_share_its_elements"),
    ),
    Fault(
        "B7", "four threads on one feed", "each element exactly once", _in(_LOOPS, "four_threads_on_one_feed_get_each_element_exactly_once")
    ),
    Fault("B8", "next() behind the end", "StopIteration each time", _in(_LOOPS, "a_feed_at_its_end_says_so_each_time")),
    Fault(
        "B9",
        "the interpreter exits with a running feed",
        "the script's own status within 2 s, nothing on stderr",
        _in(_PROCESSES, "a_program_with_a_running_feed_exits_at_once_with_its_own_status_and_nothing_on_stderr"),
    ),
    Fault(
        "B11",
        "Ctrl-C at random times, once and twice",
        "one KeyboardInterrupt, one traceback; the second does not wait",
        _in(
            _PROCESSES,
            "ctrl_c_at_any_time_is_one_keyboard_interrupt_and_one_traceback",
            "ctrl_c_at_200_random_times_is_always_one_keyboard_interrupt",
            "a_second_ctrl_c_does_not_wait_for_the_grace_period",
        ),
    ),
    Fault(
        "B12",
        "SIGTERM with and without a handler that saves",
        "gone; the state continues right behind what the loop got",
        _in(
            _PROCESSES,
            "sigterm_ends_a_program_at_once",
            "the_state_saved_in_a_sigterm_handler_goes_on_right_behind_what_the_loop_got",
            "a_handler_that_saves_and_exits_leaves_a_state_that_continues_the_log",
        ),
    ),
    Fault(
        "B14",
        "the pipeline lives outside the main thread",
        "works",
        _in(_PROCESSES, "a_pipeline_built_and_run_outside_the_main_thread_works", "a_feed_outlives_the_thread_that_started_it"),
    ),
    Fault(
        "B19",
        "the consumer keeps all batches",
        "none is written again; they cost their own bytes and no descriptor",
        _in(
            _LOOPS,
            "batches_that_are_kept_are_never_written_again",
            "views_of_a_batch_keep_it_as_it_is",
            "kept_batches_cost_their_own_bytes_and_no_descriptor",
        )
        + _in(_STALLS, "a_consumer_that_keeps_all_batches_is_no_stall"),
    ),
    Fault(
        "B20",
        "a slow consumer",
        "what is in flight is bounded, waiting costs no CPU",
        _in(_LOOPS, "a_slow_consumer_stops_the_workers_at_the_bound_and_waiting_costs_no_cpu"),
    ),
    Fault(
        "B21",
        "a slow producer",
        "waiting costs no CPU, the report names the stage; progress without a result is warned about",
        (
            *_in(_LOOPS, "a_consumer_that_waits_for_a_slow_source_uses_no_cpu", "the_report_names_the_stage_that_starved_the_loop"),
            *_in(_STALLS, "work_that_goes_on_without_a_result_is_warned_about_and_never_an_error"),
        ),
    ),
    Fault(
        "B24",
        "two errors at once; an error while closing",
        "the first is raised once, the other is its note",
        (
            *_in(_WORKERS, "an_error_is_raised_once_and_then_the_feed_says_that_it_has_failed"),
            *_in(
                _LOOPS,
                "of_two_errors_at_once_the_first_in_order_is_raised_and_the_other_is_its_note",
                "an_error_of_a_generators_cleanup_does_not_hide_the_first_error",
                "an_error_of_a_generators_cleanup_is_raised_by_close_after_all_threads_have_ended",
                "an_error_of_a_generators_cleanup_at_the_end_of_a_pass_is_an_error_behind_all_elements",
            ),
        ),
    ),
    Fault(
        "B25",
        "a function does not stop inside the grace period",
        "StillRunning names its thread, the main thread goes on",
        _in(
            _LOOPS,
            "a_function_that_does_not_stop_is_named_after_the_grace_period_and_the_main_thread_goes_on",
            "a_function_that_does_not_stop_becomes_a_note_of_the_loops_own_error",
            "a_dropped_feed_whose_function_does_not_stop_warns_with_the_name_of_its_thread",
        ),
    ),
    Fault(
        "B28",
        "a function returns a lambda, an open file, a generator",
        "SpecError with stage, field and type in a batch; itself without one",
        _in(
            _DATA,
            "what_cannot_stand_in_a_batch_is_an_error_that_names_field_type_and_element",
            "a_number_beyond_64_bits_is_an_error_of_its_element_alone",
            "without_a_batch_any_object_goes_through_as_itself",
        ),
    ),
    Fault(
        "B29",
        "results of any size, layout, byte order and dtype",
        "the same bytes; strings are not cut",
        _in(
            _DATA,
            "arrays_of_every_dtype_shape_and_layout_stand_in_the_batch_with_the_same_bytes",
            "strings_of_growing_length_are_never_cut",
            "empty_rows_and_a_batch_of_zero_bytes_are_batches",
            "object_arrays_keep_their_objects",
            "one_huge_element_among_small_ones_does_not_stop_the_others",
            "a_batch_beyond_two_gibibytes_keeps_its_bytes",
        ),
    ),
    Fault(
        "B15",
        "no memory left for a batch of a process",
        "the system's error with how much was asked for; never SIGBUS",
        _in(_OUTBOX, "memory_that_is_not_there_is_an_error_and_not_a_signal"),
    ),
    Fault(
        "B30",
        "GeneratorEnqueuer: worker error, stop before start and twice, get after stop, not thread-safe, no workers, order in processes",
        "the generator's own error, everything ended, the order kept",
        (
            *_in(
                _ENQUEUER,
                "an_error_comes_as_itself_behind_the_items_before_it_once_and_never_as_an_end",
                "stop_before_start_and_twice_does_nothing_and_get_says_that_it_does_not_run",
                "the_arguments_of_keras_by_position_and_wait_time_is_accepted",
                "every_item_comes_once_and_in_order_and_then_the_end",
                "no_worker_means_the_thread_that_asks",
                "stop_from_another_thread_ends_a_loop_that_waits",
            ),
            *_in(_IN_THREADS, "a_generator_shared_by_threads_runs_in_one_at_a_time_and_keeps_its_order"),
            *_in(
                _IN_PROCESSES,
                "with_share_each_item_comes_once_and_in_order",
                "a_worker_that_is_killed_is_named_with_its_signal_behind_what_it_gave",
            ),
        ),
    ),
    Fault(
        "B32",
        "elements are finished out of order",
        "they are delivered in order",
        _in(_LOOPS, "elements_finished_out_of_order_are_delivered_in_order"),
    ),
    # -- data
    Fault(
        "C1",
        "bytes of an image are changed",
        "DecodeError where the format can tell",
        _in(
            _DECODING,
            "bytes_changed_in_a_jpegs_entropy_data_are_an_error_where_libjpeg_can_tell",
            "any_changed_byte_of_png_pixels_is_an_error",
            "flipped_bytes_and_cuts_give_an_image_or_a_decode_error",
        ),
    ),
    Fault(
        "C2",
        "an image is cut",
        "DecodeError",
        _in(_DECODING, "a_file_cut_at_any_sixteenth_is_an_error", "a_truncated_jpeg_says_premature_end"),
    ),
    Fault(
        "C3",
        "the wrong type behind the extension",
        "decoded by content, or an error that names what it is",
        (
            *_in(_DECODING, "the_content_counts_and_not_the_name", "an_empty_file_an_html_page_and_another_format_name_the_field"),
            *_in(_HEADER, "an_html_page_is_an_error_that_says_so_with_its_first_bytes"),
        ),
    ),
    Fault(
        "C4",
        "CMYK, grey, palette, 16 bits, alpha, rotated, animated",
        "defined conversions",
        _in(
            _DECODING,
            "the_exif_orientation_is_applied_once",
            "grey_becomes_three_equal_channels",
            "cmyk_jpeg_as_adobe_writes_it_becomes_rgb",
            "ycck_jpeg_becomes_rgb",
            "alpha_is_dropped",
            "a_palette_becomes_its_colours_with_and_without_transparency",
            "16_bits_become_8_by_a_shift",
            "the_first_picture_of_an_animation_is_taken",
        ),
    ),
    Fault(
        "C5",
        "a decompression bomb",
        "DecodeError from the header",
        _in(_DECODING, "a_decompression_bomb_is_refused_from_its_header", "the_pixel_limit_is_exact"),
    ),
    Fault(
        "C14",
        "shapes differ inside a batch",
        "SpecError with both elements and both shapes",
        _in(_DATA, "an_element_that_differs_from_its_batch_is_an_error_with_both_elements_and_what_differs"),
    ),
    Fault(
        "C15",
        "the dtype changes in the middle",
        "SpecError inside a batch or a locked spec, never a promotion",
        _in(
            _DATA,
            "an_element_that_differs_from_its_batch_is_an_error_with_both_elements_and_what_differs",
            "a_dtype_that_changes_between_batches_changes_that_batch_and_no_other",
            "a_locked_spec_refuses_the_first_batch_that_changes",
            "an_odd_object_in_a_column_is_refused_as_it_is_among_elements",
        ),
    ),
    Fault(
        "C16",
        "NaN and infinity",
        "delivered bit by bit; a check in a map names the element",
        _in(_DATA, "nan_infinity_and_minus_zero_come_through_bit_by_bit", "a_check_in_a_map_names_the_element_with_the_bad_value"),
    ),
    Fault(
        "C17",
        "a label out of range",
        "a check in a map names the element",
        _in(_DATA, "a_check_in_a_map_names_the_element_with_the_bad_value"),
    ),
    Fault(
        "C18",
        "a missing file",
        "the system's error with path and line; or skipped, with both in the quarantine file",
        (
            *_in(_LISTFILE, "a_missing_file_is_the_systems_error_with_list_line_and_path"),
            *_in(_FILES, "a_file_deleted_after_listing_is_the_systems_error_with_a_note"),
            *_in("dataset/test_quarantine.py", "a_read_that_failed_is_read_again"),
        ),
    ),
    Fault(
        "C19",
        "no permission, a folder, a dangling link, a link loop, a FIFO",
        "an error at once",
        (
            *_in(
                _READING,
                "what_is_no_regular_file_is_an_error_at_once",
                "missing_files_dangling_links_and_link_loops_are_the_systems_errors",
                "a_file_without_permission_is_a_permission_error",
            ),
            *_in(_FILES, "a_fifo_among_the_files_is_an_error_and_does_not_block"),
        ),
    ),
    Fault(
        "C20",
        "odd paths",
        "read, and shown escaped",
        (
            *_in(_LISTFILE, "odd_paths_are_read_and_shown_escaped"),
            *_in(_FILES, "odd_names_are_read_and_shown_escaped"),
            *_in(_READING, "a_name_that_is_too_long_is_the_systems_error"),
        ),
    ),
    Fault(
        "C21",
        "list files with every kind of line",
        "the number of the line in the error",
        (
            *_in(
                _LISTPARSE,
                "a_bad_line_is_an_error_with_its_number_its_text_and_the_fix",
                "what_was_written_is_read_back_whatever_the_chunks",
                "a_path_outside_root_is_an_error",
            ),
            *_in(
                _LISTFILE,
                "duplicates_are_kept_and_counted",
                "an_empty_list_is_an_error",
                "a_million_lines_cost_no_python_objects_and_a_bounded_memory",
            ),
        ),
    ),
    Fault(
        "C22",
        "nothing to deliver",
        "an end with a warning, or an error; never endless",
        _in(_DATA, "a_dataset_that_gives_nothing_ends_at_once_with_a_warning", "repeating_nothing_for_ever_ends"),
    ),
    Fault("C23", "fewer elements than workers", "each exactly once", _in(_DATA, "fewer_elements_than_workers_come_exactly_once")),
    Fault(
        "C24",
        "a source with a wrong length, an index out of range",
        "LengthMismatch, IndexError",
        _in(
            _DATA,
            "a_source_with_fewer_elements_than_its_length_is_an_error_behind_those_it_has",
            "an_index_out_of_range_is_an_index_error_and_a_negative_one_counts_from_the_end",
            "a_source_that_is_not_thread_safe_is_read_whole_behind_a_lock_of_its_own",
        ),
    ),
    Fault(
        "C25",
        "a generator that ends early, never, cannot start again, yields None",
        "counted; an error and not an empty epoch",
        _in(
            _DATA,
            "a_generator_that_gives_another_number_than_declared_is_an_error",
            "a_generator_that_never_ends_is_stopped_by_take_and_by_close",
            "the_second_epoch_of_a_one_shot_generator_is_an_error_and_not_an_empty_epoch",
            "a_generator_that_yields_none_delivers_none_and_a_batch_of_it_is_an_error",
        ),
    ),
    Fault(
        "C33",
        "file times in the future or before 1970",
        "the fingerprint does not look at them",
        _in(_FILES, "the_fingerprint_tells_other_names_other_content_and_one_more_file_but_not_another_place_or_time"),
    ),
    Fault(
        "C34",
        "one sample far larger than the others",
        "it is delivered, the others flow",
        _in(_DATA, "one_huge_element_among_small_ones_does_not_stop_the_others"),
    ),
    # -- resume
    Fault(
        "E1",
        "a state of another pipeline",
        "StateMismatch with the first difference",
        _in(
            _RESUME,
            "a_state_of_another_pipeline_is_refused_with_the_first_difference",
            "a_state_of_another_pipeline_keeps_its_position_when_that_is_asked_for",
        ),
    ),
    Fault(
        "E2",
        "a state of other data",
        "StateMismatch with what differs",
        _in(_RESUME, "a_state_of_other_data_is_refused_with_what_differs", "files_that_changed_since_the_save_are_refused"),
    ),
    Fault(
        "E3",
        "a state of another version",
        "StateMismatch with both versions",
        _in(_RESUME, "a_state_of_another_format_is_refused_with_both_versions"),
    ),
    Fault(
        "E4",
        "a damaged state",
        "StateDamaged; nothing is run, nothing is skipped",
        _in(
            _RESUME,
            "every_cut_of_the_json_is_refused",
            "every_changed_byte_of_the_json_is_refused_or_says_the_same",
            "what_is_no_state_is_refused_quickly_and_never_run",
            "positions_out_of_bounds_are_refused_even_with_a_right_checksum",
            "lies_about_folds_passes_and_shards_are_refused",
            "a_state_without_one_of_its_fields_is_refused_with_its_name",
            "a_damaged_state_leaves_a_running_feed_as_it_was",
        ),
    ),
    Fault(
        "H9",
        "a state with a right checksum and wrong types or absurd numbers",
        "a StateError within a second that names the field, or a run that ends properly",
        _in(
            "faults/test_hostile_states.py",
            "a_state_with_any_one_value_changed_is_refused_or_runs_to_a_proper_end",
            "a_state_with_several_values_changed_is_refused_or_runs_to_a_proper_end",
            "a_value_that_no_feed_wrote_is_named_with_what_is_expected",
            "more_results_than_an_element_gives_are_refused_in_completion_order_too",
        ),
    ),
    Fault(
        "H1",
        "Skip or Replace in a batch below cache, zip, concatenate, mix, interleave or another batch",
        "only the failing element is replaced; counts, limit and quarantine are those of the element",
        _in(
            "laws/test_inner_batches.py",
            "only_the_failing_element_of_a_batch_is_replaced",
            "the_policies_of_the_feed_act_on_the_same_elements",
            "a_limit_counts_single_elements",
            "the_quarantine_names_the_element",
        ),
    ),
    Fault(
        "H2",
        "batches that are numbered, with Skip, with and without a bad element, also under python -O",
        "full batches, and no assertion decides over data",
        (
            *_in("laws/test_enumerate.py", "batches_keep_their_numbers_beside_skip"),
            *_in("laws/test_random_plans.py", "the_laws_hold_under_python_o"),
        ),
    ),
    Fault(
        "H3",
        "batch, skip, shard or take above an endless repeat, a dataset fed several times",
        "what was asked for, each time; an error only for a pass that gives the repeat nothing",
        _in(
            "laws/test_endless_repeats.py",
            "a_repeat_of_something_delivers_each_time_the_dataset_is_fed",
            "a_repeat_of_nothing_is_an_error",
        ),
    ),
    Fault(
        "H4",
        "a take above an endless repeat, and a repeat above both, with elements left out between them",
        "all passes, or an error before the first element",
        _in(
            "laws/test_endless_repeats.py",
            "a_take_of_what_skip_leaves_of_an_endless_repeat_begins_again",
            "a_full_take_ends_the_run_whatever_takes_again_below_it",
            "a_take_that_could_not_begin_again_is_refused",
        ),
    ),
    Fault(
        "H5",
        "elements that grow, or a few that are very large",
        "the bytes held stay within the bound of memory_bytes",
        _in("_engine/test_memory_bound.py", "what_a_feed_holds_is_bounded_whatever_elements_turn_out_to_be"),
    ),
    Fault(
        "H8",
        "a worker of jobs is killed while it starts",
        "another takes its place, within the number of retries",
        _in("jobs/test_pool.py", "a_worker_that_is_killed_while_it_starts_is_replaced_within_the_number_of_retries"),
    ),
    Fault(
        "H10",
        "shuffle(reshuffle_each_epoch=False) of nothing",
        "nothing",
        _in("_order/test_permutation.py", "a_shuffle_of_nothing_is_nothing"),
    ),
    Fault(
        "H12",
        "lists of numbers where arrays are meant, tables where rows are meant",
        "arrays; rows",
        (
            *_in(
                "laws/test_lists.py", "a_batch_of_lists_is_what_numpy_makes_of_them", "an_odd_element_in_the_middle_is_refused_alike_by_all"
            ),
            *_in("sources/test_parquet.py", "an_arrow_table_is_read_by_rows_as_its_parquet_file_is"),
        ),
    ),
    Fault(
        "E5",
        "a save before the first next(), at every step, behind the end",
        "exact resume",
        _in(_RESUME, "a_state_of_any_step_from_before_the_first_to_behind_the_end_resumes_exactly_there"),
    ),
    Fault(
        "E6",
        "a resume of a resume at every step",
        "no drift",
        _in(
            _RESUME,
            "a_resume_of_a_resume_at_every_step_does_not_drift",
            "loading_and_saving_ten_times_without_progress_changes_nothing",
            "two_resumes_of_one_state_are_equal_and_leave_it_as_it_was",
        ),
    ),
    Fault(
        "E7",
        "SIGKILL at random times of a program that saves",
        "exactly the steps since the last saved state are repeated",
        _in(
            _KILLS,
            "a_program_killed_three_times_goes_on_to_the_sequence_of_the_run_that_was_never_killed",
            "a_program_killed_at_many_random_times_loses_and_repeats_nothing",
        ),
    ),
    Fault("E8", "reading ahead of the consumer", "only what was delivered counts", _in(_RESUME, "what_was_read_ahead_does_not_count")),
    Fault(
        "E10", "another number of workers on resume", "the same sequence", _in(_RESUME, "a_run_goes_on_with_any_other_number_of_workers")
    ),
    Fault(
        "E13",
        "shuffle windows, augmentation, several samples per row, partial batches",
        "exact resume",
        _in(_RESUME, "a_state_of_any_step_from_before_the_first_to_behind_the_end_resumes_exactly_there"),
    ),
    Fault(
        "E14",
        "elements skipped before the save",
        "the same place and the same count after the resume; none is run again, one that fails only now raises and shifts nothing",
        (
            *_in(
                _POLICIES,
                "a_state_saved_anywhere_resumes_with_the_same_elements_and_the_same_count",
                "an_element_that_was_skipped_before_the_save_is_skipped_again_without_being_run",
                "an_element_that_fails_only_after_the_resume_raises_where_leaving_it_out_would_shift_others",
                "what_stood_in_before_the_save_stands_in_again_where_it_is_needed_again",
            ),
            *_in(_KILLS, "a_program_that_skips_and_is_killed_has_every_skipped_element_in_its_file_and_feeds_them_again"),
        ),
    ),
    Fault("E15", "the dataset grew or lost a file", "StateMismatch", _in(_RESUME, "files_that_changed_since_the_save_are_refused")),
    Fault(
        "E16",
        "states from another thread, from a signal handler, at a high rate",
        "consistent, under 1 ms, of constant size",
        (
            *_in(
                _RESUME,
                "states_taken_by_another_thread_at_a_high_rate_are_all_consistent",
                "a_state_is_quick_and_of_constant_size",
            ),
            *_in(_PROCESSES, "the_state_saved_in_a_sigterm_handler_goes_on_right_behind_what_the_loop_got"),
        ),
    ),
    Fault(
        "E17",
        "a generator without a state",
        "StateUnavailable at the save; fast-forward on demand",
        _in(
            _RESUME,
            "a_generator_refuses_at_the_save_unless_it_may_be_read_again",
            "a_generator_that_became_shorter_than_the_state_is_an_error_and_not_an_end",
        ),
    ),
    Fault(
        "E18",
        "a resume in a later epoch",
        "the orders of the run that never stopped",
        _in(_RESUME, "epochs_behind_a_resume_have_the_orders_of_the_run_that_never_stopped"),
    ),
    # -- soak
    Fault(
        "G2",
        "1,000 epochs, abandoned feeds, starts and stops, in a short form",
        "no growth, no leak",
        _in(
            _SOAK,
            "ten_thousand_epochs_of_a_hundred_samples_in_one_feed_are_whole_and_grow_nothing",
            "a_thousand_abandoned_feeds_leave_nothing",
            "two_hundred_starts_and_stops_leave_nothing",
            "python_objects_do_not_grow_with_the_epochs",
        ),
    ),
    # -- the machine
    Fault(
        "G6",
        "64 workers on few cores",
        "correct, no false alarm",
        _in(_STALLS, "64_workers_that_compute_on_few_cores_give_no_false_alarm"),
    ),
    Fault(
        "G9",
        "the process is stopped and goes on",
        "the pause does not count as waiting",
        _in(_STALLS, "time_in_which_the_process_was_stopped_does_not_count"),
    ),
    # -- rows of the second milestone
    Fault(
        "A2",
        "an exception that cannot be made again from its pickle",
        "the object that was raised, with its note",
        (),
    ),
    Fault(
        "A3",
        "an exception that cannot be pickled, shown or given a note",
        "the object that was raised; it hides no other",
        (),
    ),
    Fault(
        "A10",
        "no memory is left",
        "MemoryError with the size; the next feed of the process works",
        _in(
            _FUNCTIONS,
            "a_batch_for_which_there_is_no_memory_is_a_memory_error_and_the_next_feed_works",
        ),
    ),
    Fault(
        "A27",
        "equal random numbers in workers or epochs",
        "each element of each epoch has its own, the same in each run",
        _in(
            _FUNCTIONS,
            "every_element_of_every_epoch_has_random_numbers_of_its_own_and_the_same_in_each_run",
            "the_librarys_draws_do_not_touch_the_global_random_state_nor_depend_on_it",
            "threads_that_draw_from_the_global_generators_share_one_stream_and_never_repeat_it",
        ),
    ),
    Fault(
        "A28",
        "a function changes folder, mask, environment, signal handlers, standard streams",
        "no other stage notices",
        _in(
            _FUNCTIONS,
            "a_function_that_changes_the_working_folder_mask_and_environment_changes_no_other_stage",
            "a_relative_cache_folder_is_where_it_was_when_the_pipeline_was_built",
            "a_relative_quarantine_is_one_file_also_when_a_function_changes_the_working_folder",
            "a_function_that_sets_signal_handlers_is_refused_by_python_in_threads_and_the_librarys_none_are_lost",
            "closed_standard_input_and_output_do_not_concern_a_feed",
        ),
    ),
    Fault(
        "B10",
        "os._exit, sys.exit, an uncaught error in another thread",
        "gone at once with its own status; other feeds go on",
        _in(
            _COORDINATION,
            "a_program_that_exits_with_a_running_feed_is_gone_at_once_with_its_own_status",
            "an_uncaught_error_in_another_thread_ends_its_feed_and_not_that_of_the_main_thread",
        ),
    ),
    Fault(
        "B13",
        "SIGCHLD, SIGPIPE, SIGHUP handlers of the host, waitpid(-1), handlers that raise",
        "every element all the same",
        _in(
            _COORDINATION,
            "a_program_that_reaps_all_children_and_handles_its_own_signals_gets_every_element",
            "a_handler_that_raises_reaches_the_loop_once_and_the_feed_goes_on_exactly",
        ),
    ),
    Fault(
        "B22",
        "a wake-up pipe is full, a thread is late",
        "no deadlock, no call lost",
        (
            *_in(
                _COORDINATION,
                "100000_tiny_elements_through_a_consumer_that_stops_and_goes_come_whole",
                "an_event_loop_that_does_not_read_its_wake_up_pipe_holds_up_nobody_for_ever",
                "a_wake_up_pipe_that_is_full_loses_no_call",
            ),
            *_in("_engine/test_engine.py", "a_ring_that_wakes_a_worker_that_may_not_work_is_passed_on"),
        ),
    ),
    Fault(
        "B23",
        "a worker dies at any instruction, a process with the lock of a shared cache",
        "no lock is left, the state goes on",
        _in(
            _COORDINATION,
            "a_worker_that_dies_anywhere_holds_no_lock_and_loses_nothing",
            "a_process_killed_while_it_writes_a_shared_cache_holds_up_no_other",
        ),
    ),
    Fault(
        "B26",
        "a stop before the start, twice, from a worker; clear_stop and again",
        "each order ends as a model of two flags says; nobody is called back to work",
        (
            *_in(_COORDINATOR, "one_coordinator_serves_runs_that_end_in_every_way_one_after_another"),
            *_in(
                "queues/test_runner.py",
                "every_order_of_starting_and_stopping_has_a_defined_end",
                "a_runner_whose_queue_a_stop_closed_needs_a_new_queue_to_run_again",
            ),
            *_in(
                "queues/test_coordinator.py",
                "stops_in_a_signal_handler_between_any_two_instructions_hold_up_nobody",
                "join_from_a_thread_that_it_waits_for_is_an_error_and_no_deadlock",
            ),
        ),
    ),
    Fault(
        "B27",
        "exceptions that other libraries take for a clean end",
        "errors; a generator's end counts only if the number fits",
        _in(
            _FUNCTIONS,
            "what_other_libraries_take_for_an_end_is_an_error_of_the_function",
            "a_nested_feed_that_ends_inside_a_function_does_not_end_the_outer_one",
        ),
    ),
    Fault(
        "B31",
        "shards of different lengths",
        "the steps of each rank are known before; nobody waits for another",
        _in(
            _RANKS,
            "the_number_of_steps_of_each_rank_is_known_before_the_start",
            "equal_steps_come_by_leaving_out_or_by_starting_over",
            "more_ranks_than_elements_leave_some_without_and_none_waiting",
        ),
    ),
    Fault(
        "E9",
        "a run killed at random times, 1,000 times",
        "the sequence of the run that was never killed; in completion order, its elements",
        _in(
            _EVERYTHING,
            "a_feed_with_everything_killed_at_20_random_points_loses_nothing_and_gives_nothing_twice",
            "a_feed_with_everything_killed_at_100_random_points_loses_nothing_and_gives_nothing_twice",
            "a_feed_in_order_killed_at_20_random_points_gives_the_sequence_of_one_that_was_never_killed",
            "a_feed_in_order_killed_at_many_random_points_gives_the_sequence_of_one_that_was_never_killed",
        ),
    ),
    Fault(
        "E11",
        "another number of ranks",
        "the same order dealt out anew, or StateMismatch before the first element",
        _in(
            _RANKS,
            "a_run_goes_on_with_any_other_number_of_ranks_without_loss_or_repeat",
            "the_global_order_is_kept_when_the_number_of_ranks_changes",
            "a_length_that_the_ranks_do_not_divide_loses_nothing_in_one_pass",
            "a_state_that_cannot_move_to_other_ranks_is_refused_before_the_first_element",
        ),
    ),
    Fault(
        "E12",
        "ranks saved at different steps, the state of one is missing",
        "each is exact with its own state, any serves all at one step; the global places tell that they differ",
        _in(
            _RANKS,
            "a_rank_whose_state_is_missing_goes_on_with_that_of_any_other",
            "states_of_different_steps_are_exact_on_their_own_ranks_and_show_that_they_differ",
            "a_state_of_another_rank_is_refused_where_it_is_not_the_place_of_all",
        ),
    ),
    Fault(
        "G4",
        "10^6 records of 10 bytes, 100 of 20 MB (not 200 MB: 20 GB take too long here), sizes with a heavy tail",
        "memory inside the budget, no step that is quadratic in the records",
        _in(
            _LOAD,
            "a_million_records_of_ten_bytes_come_once_each_in_bounded_memory",
            "twice_as_many_records_are_twice_the_work",
            "batches_of_records_of_20_mb_stay_in_the_byte_budget",
            "records_of_heavy_tailed_sizes_keep_their_bytes_in_bounded_memory",
            "one_sequence_as_long_as_all_others_together_is_packed_beside_them",
        ),
    ),
    Fault(
        "G5",
        "a list of 10^7 lines, 10^5 files in a folder (not 10^6: making them takes too long here)",
        "at most 100 bytes per entry",
        _in(
            _LOAD,
            "a_list_of_300000_lines_costs_at_most_100_bytes_per_line",
            "a_list_of_ten_million_lines_costs_at_most_100_bytes_per_line",
            "a_folder_of_5000_files_costs_at_most_100_bytes_per_file",
            "a_folder_of_100000_files_costs_at_most_100_bytes_per_file",
        ),
    ),
)

_FURTHER = {
    "B7": _in(_ENQUEUER, "four_threads_each_with_a_get_share_the_items"),
    "B8": _in(_ENQUEUER, "every_item_comes_once_and_in_order_and_then_the_end"),
    "B11": _in(_IN_PROCESSES, "ctrl_c_is_one_keyboard_interrupt_of_the_program_alone"),
    "B25": _in(_IN_THREADS, "a_thread_that_does_not_stop_is_named_and_the_caller_goes_on"),
    "B28": (
        *_in(_IN_PROCESSES, "an_item_that_cannot_be_pickled_is_an_error_with_its_type_and_the_worker"),
        *_in(_CHILD, "a_message_that_cannot_be_pickled_is_an_error_with_its_place_and_type"),
    ),
    "B29": _in(_OUTBOX, "trees_of_arrays_of_any_dtype_layout_and_size_arrive_bit_by_bit"),
    "C25": _in(
        _ENQUEUER,
        "a_second_epoch_of_what_can_be_read_once_is_an_error_and_not_an_empty_epoch",
        "none_is_left_out_and_a_generator_without_items_is_at_its_end_at_once",
    ),
}
"""Tests of rows of this table for processes and `GeneratorEnqueuer`."""

_ALSO = {
    "A10": _in(
        "faults/test_memory_limit.py",
        "a_warning_with_the_stage_comes_before_the_kernel_kills",
        "a_run_that_stays_below_the_limit_has_no_warning_and_tells_the_limit",
        "page_faults_from_a_disk_are_counted",
    ),
    "A1": (
        *_in(
            "faults/test_odd_exceptions.py",
            "an_odd_exception_reaches_the_consumer_as_it_is",
            "an_odd_exception_of_an_enqueuers_thread_a_job_or_a_runner_is_the_consumers",
            "an_odd_exception_of_a_process_comes_as_itself_or_with_its_type_and_traceback",
            "an_odd_exception_is_skipped_counted_and_written_down",
            "all_that_is_asked_of_an_odd_exception_has_an_answer",
        ),
        *_in(
            _OPERATORS,
            "a_function_that_fails_in_any_operator_loses_nothing",
            "a_balance_of_what_comes_first_gives_each_element_once_at_most_and_fails_all_the_same",
        ),
        *_in(_COMPLETED, "an_error_is_raised_once_and_the_state_behind_it_has_everything_else"),
    ),
    "A4": (
        *_in(_OPERATORS, "what_would_pass_for_an_end_is_an_error_in_any_operator"),
        *_in("faults/test_odd_exceptions.py", "an_odd_end_is_an_error_that_has_it_as_its_cause"),
    ),
    "A5": _in(_OPERATORS, "what_would_pass_for_an_end_is_an_error_in_any_operator"),
    "A14": _in(_COMPLETION, "a_stuck_element_holds_up_nobody_and_comes_when_it_is_done"),
    "B2": (
        *_in(_FORKED, "what_a_forked_process_leaves_behind_is_not_finalised_there", "a_leaked_object_is_never_finalised"),
        *_in("faults/test_remote.py", "a_feed_that_ends_breaks_off_its_reads_loses_nothing_and_the_dataset_stays_of_use"),
    ),
    "B3": _in(_COORDINATOR, "an_error_of_the_loop_with_full_queues_is_the_one_traceback_of_the_program"),
    "B9": (
        *_in(_COORDINATOR, "a_program_with_blocked_runners_exits_at_once_with_its_own_status_and_nothing_on_stderr"),
        *_in(
            "faults/test_exit.py",
            "a_program_that_exits_while_objects_are_alive_says_nothing",
            "nothing_of_penstock_is_finalised_by_a_method",
        ),
        *_in(_FORKED, "a_forked_process_exits_by_itself_inside_the_block_of_its_parents_feed_and_says_nothing"),
    ),
    "C31": _in(
        "faults/test_parquet_footers.py",
        "a_changed_byte_of_a_footer_does_not_end_the_process",
        "no_change_of_a_byte_of_a_footer_ends_the_process",
    ),
    "B11": (
        *_in(
            _COORDINATOR,
            "ctrl_c_with_queues_and_a_coordinator_is_one_keyboard_interrupt_and_one_traceback",
            "ctrl_c_at_100_random_times_with_queues_is_always_one_keyboard_interrupt",
            "ctrl_c_in_join_does_not_wait_for_a_thread_that_ignores_the_stop",
        ),
        *_in(
            _COORDINATION,
            "ctrl_c_in_completion_order_is_one_keyboard_interrupt_and_one_traceback",
        ),
        *_in("faults/test_interrupts.py", "ctrl_c_in_a_call_that_waits_is_one_keyboard_interrupt_at_the_line_of_the_user"),
        *_in(
            "faults/test_interrupted_loops.py",
            "a_loop_goes_on_behind_each_of_fifty_interrupts",
            "a_feed_whose_start_was_interrupted_starts_again",
            "a_start_that_is_interrupted_anywhere_leaves_no_process",
            "an_interrupted_generator_that_cannot_be_read_again_is_named",
            "a_time_limit_that_a_function_sets_itself_fails_its_element_where_a_policy_cares",
            "an_error_of_a_function_is_raised_as_it_is_whatever_it_was_made_of_and_wherever_the_loop_runs",
        ),
    ),
    "B24": (
        *_in(_COMPLETED, "an_error_is_raised_once_and_the_state_behind_it_has_everything_else"),
        *_in(
            _COORDINATOR,
            "of_two_errors_of_runners_one_is_raised_once_and_the_other_is_its_note",
            "an_error_while_a_stop_ends_things_is_a_note_of_the_one_that_asked_for_it",
            "a_program_that_never_joins_is_told_of_the_error_when_it_exits",
        ),
        *_in("queues/test_runner.py", "without_a_coordinator_the_reader_gets_the_error_once_behind_what_was_enqueued"),
    ),
    "B25": _in(_COORDINATOR, "a_runner_that_ignores_the_stop_is_named_with_its_line_and_the_main_thread_goes_on"),
    "B27": (
        *_in(
            _COORDINATOR,
            "the_end_of_a_queue_is_clean_only_if_the_number_fits",
            "only_what_is_listed_is_a_clean_end_of_a_thread",
        ),
        *_in(
            "queues/test_runner.py",
            "an_operation_that_raises_what_would_pass_for_an_end_is_an_error",
            "too_few_elements_for_an_operations_read_are_an_error_unless_the_type_is_named",
        ),
    ),
    "B32": _in(_COMPLETION, "a_stuck_element_holds_up_nobody_and_comes_when_it_is_done"),
    "C14": _in(_COMPLETION, "shapes_that_differ_inside_a_batch_are_an_error_with_both"),
    "E1": _in(_HELD, "a_state_of_other_operators_is_refused_with_the_first_difference"),
    "E2": _in(_HELD, "a_state_of_other_data_in_one_of_several_sources_is_refused"),
    "E5": _in(_COMPLETED, "a_run_of_slow_elements_saved_twice_anywhere_loses_nothing"),
    "E6": (
        *_in(_HELD, "a_resume_of_a_resume_of_all_operators_does_not_drift"),
        *_in(_COMPLETED, "a_run_of_slow_elements_saved_twice_anywhere_loses_nothing"),
    ),
    "E10": _in(_COMPLETED, "a_run_of_slow_elements_saved_twice_anywhere_loses_nothing"),
    "E13": (
        *_in(_HELD, "a_state_of_any_step_of_all_operators_at_once_resumes_exactly_there"),
        *_in(
            _EVERYTHING,
            "a_feed_with_everything_killed_at_20_random_points_loses_nothing_and_gives_nothing_twice",
            "a_feed_with_everything_killed_at_100_random_points_loses_nothing_and_gives_nothing_twice",
        ),
    ),
    "E15": _in(_HELD, "files_that_changed_below_a_mix_are_refused"),
    "E16": (
        *_in(
            _COORDINATION,
            "states_taken_by_a_signal_handler_at_a_high_rate_are_all_consistent",
            "a_state_at_each_of_100000_steps_is_of_constant_size",
        ),
        *_in(_COMPLETION, "states_taken_by_another_thread_and_at_a_high_rate_are_all_consistent"),
    ),
}
"""Tests of the same rows in completion order, and with the operators that hold, mix, pack, cache or await elements."""

_QUEUES = "faults/test_queues.py"
_OF_QUEUES: dict[str, tuple[str, ...]] = {
    "B7": _in(_QUEUES, "four_threads_on_one_queue_get_each_element_exactly_once")
    + _in(
        "laws/test_queues.py",
        "random_calls_of_8_threads_lose_nothing_give_nothing_twice_and_keep_the_order",
        "many_random_calls_of_8_threads_lose_nothing_give_nothing_twice_and_keep_the_order",
        "4_writers_and_4_readers_without_time_limits_move_everything_until_the_end",
    ),
    "B8": _in(_QUEUES, "a_queue_at_its_end_says_so_each_time"),
    "B11": _in(
        _QUEUES,
        "a_reader_that_is_interrupted_anywhere_loses_nothing",
        "a_writer_that_is_interrupted_anywhere_puts_each_element_in_once_at_most",
        "ctrl_c_ends_a_call_that_waits_and_everything_stays_as_it_was",
    ),
    "B12": _in(_QUEUES, "a_signal_handler_may_look_at_a_queue_fill_it_and_close_it"),
    "B22": _in(
        _QUEUES,
        "100000_tiny_elements_through_a_reader_that_stops_and_goes_come_whole",
        "finalisers_that_run_inside_a_queue_may_fill_it",
    ),
    "B23": _in(_QUEUES, "an_exception_thrown_into_a_thread_anywhere_leaves_the_queue_to_the_others"),
}
"""Tests of the same rows with a queue in place of a feed."""

_CREW, _JOBS, _LIVES = "jobs/test_pool.py", "jobs/test_run.py", "jobs/test_lives.py"
_JOB_ROWS = (
    Fault(
        "A6",
        "os._exit in a worker",
        "WorkerDied with the exit code and the job",
        _in(_CREW, "a_dead_worker_is_reported_with_the_job_that_it_was_at"),
    ),
    Fault(
        "A7",
        "a worker crashes",
        "WorkerDied with the signal and the job; by policy the job is left out or tried again, and another worker goes on",
        _in(
            _CREW,
            "a_dead_worker_is_reported_with_the_job_that_it_was_at",
            "a_dead_worker_may_be_a_job_left_out_and_another_goes_on",
            "a_failing_job_and_one_whose_worker_dies_are_tried_again",
        ),
    ),
    Fault(
        "A8",
        "SIGKILL of a worker that begins, idles, computes or gives its result",
        "WorkerDied, by policy another worker; the order stays and no job is lost",
        _in(
            _CREW,
            "a_dead_worker_is_reported_with_the_job_that_it_was_at",
            "a_worker_that_dies_before_its_first_job_is_an_error_if_the_policy_does_not_retry",
            "a_worker_that_is_killed_while_it_starts_is_replaced_within_the_number_of_retries",
            "when_every_start_dies_the_number_of_starts_is_bounded",
            "a_worker_that_is_killed_while_it_waits_is_an_error_without_a_job",
            "a_dead_worker_may_be_a_job_left_out_and_another_goes_on",
        ),
    ),
    Fault(
        "A15",
        "a worker fails while it starts: no guard in the program, a function that it cannot read",
        "an error that says what to do",
        (
            *_in(
                _JOBS,
                "a_program_that_a_child_process_of_its_own_imports_is_told_of_the_guard",
                "a_program_without_a_file_runs_its_own_function",
                "a_lambda_and_a_class_of_an_inner_scope_go_there_and_come_back_as_they_are",
            ),
            *_in(_CREW, "a_function_that_cannot_be_read_in_a_worker_is_an_error"),
        ),
    ),
    Fault(
        "A25",
        "processes are started in a worker process",
        "PlanError",
        _in(_JOBS, "a_worker_may_not_start_others"),
    ),
)
_OF_JOBS: dict[str, tuple[str, ...]] = {
    "A1": _in(_CREW, "an_error_comes_as_itself_with_job_worker_and_traceback_and_stops_the_rest"),
    "A2": _in(_CREW, "an_error_that_cannot_travel_is_told_in_full"),
    "A5": _in(_CREW, "an_error_that_would_be_taken_for_something_else_is_a_stop_raised"),
    "A11": _in(_CREW, "a_job_that_does_not_end_is_ended"),
    "A14": _in(_CREW, "no_job_waits_for_a_slow_one"),
    "A21": _in(
        _LIVES, "a_kill_while_a_job_never_ends_leaves_no_process", "a_program_that_is_killed_goes_on_with_the_jobs_that_are_not_done"
    ),
    "A23": _in(_CREW, "jobs_may_be_run_from_another_thread_and_outlive_nobody"),
    "B11": _in(_LIVES, "ctrl_c_leaves_no_process_and_the_next_run_goes_on", "two_ctrl_cs_leave_no_process_either"),
    "B24": _in(_CREW, "a_job_in_work_at_an_error_is_booked_when_it_ends_and_its_error_noted"),
    "B25": _in(_CREW, "a_thread_that_does_not_end_is_named"),
    "B28": _in(_CREW, "a_result_that_cannot_be_sent_or_read_is_the_jobs_error", "a_job_that_cannot_be_sent_is_an_error_that_names_it"),
    "C23": _in(_JOBS, "results_are_those_of_a_loop_in_its_order"),
    "E2": _in("jobs/test_donelist.py", "a_list_of_other_jobs_is_refused_and_left_alone"),
    "E4": _in(
        "jobs/test_donelist.py",
        "a_cut_last_line_is_dropped_wherever_it_is_cut",
        "a_damaged_line_in_the_middle_is_an_error_that_names_it",
        "a_file_that_is_no_done_list_is_refused_and_left_alone",
    ),
    "E7": _in(
        _LIVES,
        "a_program_that_is_killed_goes_on_with_the_jobs_that_are_not_done",
        "a_program_that_is_killed_many_times_does_every_job",
    ),
}
"""Rows of `parallel_jobs`, and its tests of rows above."""

FAULTS = tuple(
    row._replace(
        tests=row.tests
        + _ALSO.get(row.number, ())
        + _FURTHER.get(row.number, ())
        + _OF_QUEUES.get(row.number, ())
        + _OF_JOBS.get(row.number, ())
        + record_rows.FURTHER.get(row.number, ())
        + process_rows.FURTHER.get(row.number, ())
    )
    for row in (*_ROWS, *_JOB_ROWS, *(Fault(*row) for row in (*record_rows.ROWS, *process_rows.ROWS)))
)
