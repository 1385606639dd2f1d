"""Rows of the fault list that concern records, storage and packing, and tests of earlier rows there; `registry.py` adds them."""

from __future__ import annotations

__all__ = ["FURTHER", "ROWS"]

ROWS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "A18",
        "a client that was made before a fork is used behind it",
        "HTTP connections are made anew; obstore's cannot be: an error that says so, no hang",
        (
            "_storage/test_buckets.py::test_behind_a_fork_connections_are_made_anew_or_an_error_says_why_not",
            "_storage/test_buckets.py::test_a_storage_goes_to_another_process",
            "_storage/test_remote.py::test_thread_and_connections_end_with_the_object",
        ),
    ),
    (
        "B18",
        "no more files may be opened",
        "storage holds an eighth of them at most, reads with one when there are no more, and says ulimit -n when there is none",
        (
            "_storage/test_local.py::test_a_process_without_descriptors_to_spare_reads_with_one_and_without_any_says_ulimit",
            "_storage/test_local.py::test_many_more_files_than_may_be_open_are_read_by_several_threads",
        ),
    ),
    (
        "C6",
        "a decompression bomb around records",
        "RecordError with the ratio, and memory grows by less than 64 MB",
        (
            "faults/test_tfrecord.py::test_a_gibibyte_of_zeros_in_a_compressed_file_is_refused_in_little_memory",
            "formats/test_tfrecord.py::test_a_bomb_in_one_record_is_refused_with_its_ratio",
            "formats/test_tfrecord.py::test_many_small_records_of_nothing_are_no_bomb",
            "formats/test_compression.py::test_no_read_gives_more_than_was_asked_for",
        ),
    ),
    (
        "C7",
        "a TFRecord file with a flipped bit",
        "RecordError with file, record number, offset and both sums; others are read",
        (
            "formats/test_tfrecord.py::test_every_flipped_bit_is_found_in_its_record",
            "formats/test_tfrecord.py::test_behind_every_flipped_bit_the_other_records_can_be_read",
            "formats/test_tfrecord.py::test_every_flipped_bit_and_every_cut_of_a_compressed_file_is_found",
            "sources/test_tfrecord.py::test_every_flipped_bit_is_found_in_its_record_and_the_others_are_read",
            "sources/test_tfrecord_opening.py::test_a_bad_record_is_one_skipped",
            "faults/test_tfrecord.py::test_a_bad_record_in_every_file_is_left_out_and_counted",
            "sources/test_tfrecord_verify.py::test_every_flipped_bit_is_one_bad_record_with_its_number_and_offset",
        ),
    ),
    (
        "C8",
        "a TFRecord file that is cut anywhere",
        "RecordError that says truncated; between two records a count of an index tells",
        (
            "formats/test_tfrecord.py::test_every_cut_inside_a_record_is_found_there",
            "sources/test_tfrecord.py::test_every_cut_inside_a_record_is_an_error",
            "formats/test_tfrecord_scan.py::test_every_cut_inside_a_record_is_found",
            "sources/test_tfrecord_verify.py::test_a_cut_between_two_records_is_found_by_a_count_alone",
        ),
    ),
    (
        "C9",
        "a huge length with the right check sum",
        "RecordError with both numbers, before memory is taken",
        (
            "formats/test_tfrecord.py::test_a_huge_length_with_the_right_check_sum_is_an_error_before_memory_is_taken",
            "formats/test_tfrecord_scan.py::test_a_huge_length_is_compared_with_what_is_left",
        ),
    ),
    (
        "C10",
        "records and files of no bytes, files of zeros",
        "an empty record is delivered; a file of 0 bytes is an error or an empty shard; zeros are an error",
        (
            "formats/test_tfrecord.py::test_empty_records_and_no_records_are_what_they_are",
            "formats/test_tfrecord.py::test_zeros_and_garbage_behind_the_last_record_are_errors_at_their_offset",
            "sources/test_tfrecord.py::test_an_empty_file_is_an_error_unless_it_is_meant",
            "sources/test_tfrecord_stream.py::test_files_without_records_are_an_error_unless_they_are_meant",
        ),
    ),
    (
        "C11",
        "garbage behind the last record",
        "RecordError at its offset",
        (
            "formats/test_tfrecord.py::test_zeros_and_garbage_behind_the_last_record_are_errors_at_their_offset",
            "formats/test_tfrecord.py::test_two_files_one_behind_the_other_are_one_file",
            "sources/test_tfrecord_verify.py::test_what_stands_behind_the_last_record_is_one_problem_at_its_offset",
        ),
    ),
    (
        "C12",
        "the wrong compression",
        "RecordError that says what it looks like",
        (
            "sources/test_tfrecord_opening.py::test_the_wrong_compression_is_told_by_the_first_bytes",
            "sources/test_tfrecord_opening.py::test_files_of_several_compressions_are_refused",
        ),
    ),
    (
        "C13",
        "malformed tf.train.Example: bad varint, wrong wire type, deep nesting, missing feature, wrong kind, a million features",
        "RecordError with record and feature; the parser is bounded",
        (
            "faults/test_examples.py::test_a_malformed_example_is_an_error_with_its_record_and_feature",
            "faults/test_examples.py::test_a_record_of_a_million_features_is_read",
            "faults/test_examples.py::test_every_cut_of_a_record_in_a_good_frame_is_an_error",
        ),
    ),
    (
        "C26",
        "a tar file cut in a header, in data, in padding, or without its end blocks",
        "RecordError 'unexpected end' with offset; missing end blocks warn, or are an error by choice",
        (
            "formats/test_tar.py::test_a_cut_at_any_byte_is_an_error_or_a_missing_end",
            "formats/test_tar.py::test_each_cut_is_named_for_what_it_cuts",
            "sources/test_tar.py::test_a_file_without_its_end_warns_is_refused_or_accepted",
        ),
    ),
    (
        "C27",
        "tar members of 2^40 bytes, bad sizes and check sums, PAX overrides, sparse, long names, links, devices, 10^6 members, duplicates",
        "RecordError with offset and name, or left out and counted; limits before anything is used",
        (
            "formats/test_tar.py::test_a_size_of_2_to_the_40_in_any_way_of_writing_it_is_compared_with_the_file",
            "formats/test_tar.py::test_a_size_that_is_negative_too_large_or_no_number_is_an_error",
            "formats/test_tar.py::test_sizes_are_read_as_octal_base_256_pax_and_blank",
            "formats/test_tar.py::test_check_sums_of_old_programs_that_add_signed_bytes_are_good_ones",
            "formats/test_tar.py::test_every_flipped_bit_of_a_header_is_found_or_means_the_same",
            "formats/test_tar.py::test_names_come_from_prefix_gnu_and_pax_headers",
            "formats/test_tar.py::test_headers_that_are_wrong_or_mislead_are_refused_with_their_place",
            "formats/test_tar.py::test_members_that_are_no_part_of_a_sample_are_counted_by_kind",
            "formats/test_tar.py::test_half_a_million_members_of_any_number_of_pieces_are_no_quadratic_work",
            "formats/test_tar.py::test_members_are_scanned_without_a_python_object_for_each",
            "formats/test_tar.py::test_parts_that_do_not_lie_side_by_side_are_an_error_with_both_places",
            "formats/test_tar.py::test_two_members_with_one_extension_are_an_error_also_in_another_case",
            "formats/test_tar.py::test_a_sample_has_at_most_256_members_and_its_bytes_fit_32_bits",
            "sources/test_tar.py::test_links_and_devices_are_refused_or_left_out_and_counted",
        ),
    ),
    (
        "C28",
        "names in a tar file that lead out: ../../x, /abs, through a link",
        "they are data; nothing is extracted",
        ("sources/test_tar.py::test_names_are_data_and_nothing_is_written_but_the_index",),
    ),
    (
        "C29",
        "a pickle in the bytes of a record",
        "it is bytes: nothing is ever unpickled",
        (
            "faults/test_examples.py::test_bytes_of_a_record_are_never_unpickled",
            "formats/test_tar_fields.py::test_pickles_never_run_and_nobody_looks_for_their_classes",
            "sources/test_tar.py::test_pickles_are_bytes_until_decoded_and_then_refused_with_key_and_place",
            "formats/test_parquet.py::test_extension_types_are_what_they_are_stored_as_and_their_metadata_are_never_unpickled",
        ),
    ),
    (
        "C30",
        "commands and URLs in patterns of shards; braces for a billion names; a shard that is missing",
        "PlanError or SourceError; no shell is ever asked",
        (
            "_storage/test_listing.py::test_urls_and_commands_are_refused",
            "_storage/test_listing.py::test_no_shell_is_asked",
            "_storage/test_listing.py::test_every_name_of_braces_and_shards_must_be_there",
            "_storage/test_expanding.py::test_commands_and_file_urls_are_refused_by_name",
            "_storage/test_expanding.py::test_patterns_for_too_many_names_are_refused_before_one_is_made",
            "faults/test_remote.py::test_lists_of_urls_run_nothing_and_ask_nobody_who_holds_credentials",
            "_storage/test_web.py::test_a_redirect_that_is_not_followed_says_why",
        ),
    ),
    (
        "C31",
        "Parquet: no footer, cut, wrong magic, a bad page, other schemas, bombs, very many columns, types without a conversion, replaced",
        "RecordError with file and row group; the first difference of two schemas; nothing unbounded is allocated",
        (
            "formats/test_parquet.py::test_what_is_no_parquet_file_is_told_with_the_reason",
            "formats/test_parquet.py::test_any_byte_of_a_footer_that_is_changed_is_an_error_or_a_file_with_another_check_sum",
            "formats/test_parquet.py::test_a_footer_larger_than_the_bound_is_refused_before_it_is_read",
            "formats/test_parquet.py::test_a_type_without_a_conversion_is_an_error_that_names_the_column",
            "formats/test_parquet.py::test_the_first_difference_of_two_schemas_is_named",
            "sources/test_parquet_files.py::test_every_bit_that_is_changed_in_a_page_with_a_check_sum_is_found",
            "sources/test_parquet_files.py::test_bad_bytes_without_a_check_sum_that_cannot_be_decoded_are_an_error",
            "sources/test_parquet_files.py::test_a_file_with_another_schema_is_an_error_that_names_both",
            "sources/test_parquet_files.py::test_a_row_group_that_would_be_too_large_decoded_is_refused_before_it_is_read",
            "sources/test_parquet_files.py::test_a_dictionary_of_a_huge_word_stays_one_word",
            "sources/test_parquet_files.py::test_many_columns_cost_only_those_that_are_read",
            "sources/test_parquet_files.py::test_a_file_that_was_replaced_or_cut_is_never_read_silently",
            "sources/test_parquet.py::test_a_bad_row_group_fails_its_rows_alone_and_they_are_named",
            "sources/test_parquet.py::test_a_null_is_an_error_of_its_element_unless_a_value_stands_for_it",
            "sources/test_parquet.py::test_strings_that_are_not_utf8_are_an_error_of_their_file",
        ),
    ),
    (
        "C32",
        "lines of text, JSON and CSV: no UTF-8, a line of 1 GB, deep nesting, what is no JSON, ragged records",
        "an error with file and line; a line beyond the limit is never held",
        (
            "formats/test_linescan.py::test_a_line_beyond_the_limit_is_found_before_it_is_read_whole",
            "formats/test_linescan.py::test_a_quote_that_is_not_closed_is_an_error_at_the_record_that_opened_it",
            "formats/test_linescan.py::test_a_file_that_is_no_text_is_refused_by_its_first_bytes",
            "sources/test_text.py::test_bytes_that_are_no_utf_8_are_an_error_of_their_line_alone",
            "sources/test_text.py::test_a_sparse_file_of_one_gigabyte_without_a_newline_is_refused_in_bounded_memory",
            "sources/test_jsonl.py::test_what_is_no_json_is_an_error_with_file_and_line",
            "sources/test_jsonl.py::test_a_field_that_does_not_fit_is_never_bent",
            "sources/test_csvrecords.py::test_a_record_that_does_not_fit_names_file_line_column_and_text",
        ),
    ),
    (
        "D1",
        "the disk is full at any write, sync, close or rename of packing",
        "the error of that step; no file under its final name that is not complete; a rerun gives the same bytes",
        (
            "faults/test_packing.py::test_a_full_disk_at_any_step_is_an_error_and_a_rerun_gives_the_same_files",
            "faults/test_packing.py::test_a_full_disk_says_how_much_is_needed",
            "faults/test_packing.py::test_a_disk_without_room_is_an_error_before_anything_is_written",
        ),
    ),
    (
        "D2",
        "a write is short, or the size of files is limited",
        "it goes on until all is written, or is an error",
        (
            "faults/test_packing.py::test_short_writes_are_continued",
            "faults/test_packing.py::test_a_limit_on_the_size_of_files_is_an_error_and_no_record_is_cut",
        ),
    ),
    (
        "D3",
        "EIO, EINTR, ESTALE, EDQUOT, EROFS while reading and publishing",
        "EINTR is taken up again, ESTALE opened again once; others are the system's error with the path",
        (
            "faults/test_reading_files.py::test_an_interrupted_read_is_taken_up_again",
            "faults/test_reading_files.py::test_a_read_that_fails_is_the_systems_error_with_the_path_and_the_next_one_works",
            "faults/test_reading_files.py::test_a_stale_handle_is_opened_again_once",
            "faults/test_reading_files.py::test_a_publish_that_fails_at_any_step_says_so_and_leaves_the_old_file_alone",
            "faults/test_reading_files.py::test_a_process_that_is_killed_around_the_rename_leaves_no_index_or_a_whole_one",
            "faults/test_packing.py::test_another_error_of_a_step_is_an_error_and_a_rerun_gives_the_same_files",
            "faults/test_packing.py::test_any_error_at_every_step_is_an_error_and_a_rerun_gives_the_same_files",
            "faults/test_packing.py::test_a_system_call_that_fails_is_an_error",
        ),
    ),
    (
        "D4",
        "a packer is killed at any moment, alone or with its workers",
        "a rerun goes on, keeps finished shards and gives the same bytes",
        (
            "faults/test_packing.py::test_a_packer_that_is_killed_again_and_again_ends_with_the_same_files",
            "faults/test_packing.py::test_a_packer_with_workers_that_is_killed_leaves_nobody_and_goes_on_to_the_same_files",
            "faults/test_packing.py::test_a_packer_with_workers_is_killed_at_a_hundred_moments",
            "faults/test_packing.py::test_finished_shards_are_not_written_again",
            "faults/test_packing.py::test_a_finished_shard_that_was_changed_is_written_again",
        ),
    ),
    (
        "D5",
        "a kill between any two steps of publishing",
        "the old state or the new one; what was left is removed",
        (
            "faults/test_packing.py::test_a_packer_that_is_killed_at_a_step_goes_on_to_the_same_files",
            "faults/test_packing.py::test_a_packer_that_is_killed_at_every_step_goes_on_to_the_same_files",
        ),
    ),
    (
        "D6",
        "two packers on one folder",
        "the second gets a PackError; so does a worker whose packer is gone",
        (
            "faults/test_packing.py::test_a_second_packer_in_one_folder_is_refused",
            "packing/test_shard.py::test_a_worker_whose_packer_is_gone_writes_nothing",
        ),
    ),
    (
        "D7",
        "another number of jobs, also after a failure",
        "the same files",
        (
            "faults/test_packing.py::test_any_number_of_workers_before_and_after_an_error_gives_the_same_files",
            "faults/test_packing.py::test_any_split_of_any_dataset_gives_the_same_files",
            "faults/test_packing.py::test_processes_write_the_same_files_as_one_thread",
        ),
    ),
    (
        "D8",
        "a bad input while packing",
        "its error, or it is left out and listed in the manifest, and the counts add up",
        (
            "faults/test_packing.py::test_a_bad_element_is_an_error_that_names_it",
            "faults/test_packing.py::test_after_an_error_without_a_finished_shard_other_options_may_be_given",
            "faults/test_packing.py::test_a_bad_element_is_left_out_and_listed_in_the_manifest_and_counts_add_up",
            "faults/test_packing.py::test_more_bad_elements_than_the_policy_allows_are_an_error",
        ),
    ),
    (
        "D9",
        "an input file changes while it is packed, or before a rerun",
        "SourceError or PackError that says so; no manifest",
        (
            "faults/test_packing.py::test_an_input_that_changes_while_it_is_packed_is_an_error",
            "faults/test_packing.py::test_an_input_that_changed_before_a_rerun_is_an_error",
        ),
    ),
    (
        "D10",
        "the destination is removed, or cannot be written",
        "the error of the system",
        (
            "faults/test_packing.py::test_a_destination_that_is_removed_meanwhile_is_an_error",
            "faults/test_packing.py::test_a_destination_that_cannot_be_written_is_an_error",
        ),
    ),
    (
        "D11",
        "a file that changes after its index was built: longer, shorter, of the same size, replaced, deleted",
        "indexed again when it is opened; IndexStale with what differs when the dataset is open",
        (
            "sources/test_indexing.py::test_a_file_that_changed_after_its_index_is_indexed_again",
            "sources/test_indexing.py::test_a_file_of_this_moment_is_sampled_so_that_a_write_in_the_same_tick_is_seen",
            "sources/test_indexing.py::test_a_file_that_changes_while_it_is_indexed_is_an_error",
            "sources/test_records.py::test_a_file_that_changes_while_the_dataset_lives_is_stale",
            "sources/test_records.py::test_a_file_that_is_deleted_while_it_is_open_is_read_on",
            "_storage/test_local.py::test_a_file_that_changed_is_an_error_that_says_how",
            "sources/test_text.py::test_a_file_that_changed_since_its_index_was_built_is_indexed_again",
            "sources/test_text.py::test_a_file_that_changes_while_the_dataset_is_open_is_an_error_that_names_it",
        ),
    ),
    (
        "D12",
        "an index that is missing, cut, of another version, of another file, empty, or changed by a bit",
        "built again; with a warning when it was damaged",
        (
            "formats/test_index.py::test_every_bit_flip_is_found",
            "formats/test_index.py::test_every_cut_and_every_added_byte_is_found",
            "sources/test_indexing.py::test_an_index_that_is_none_is_built_again_and_a_damaged_one_with_a_warning",
            "sources/test_indexing.py::test_an_index_of_another_file_is_not_trusted",
            "sources/test_indexing.py::test_processes_that_build_the_same_indices_at_once_all_get_them",
        ),
    ),
    (
        "D13",
        "a file is cut while it is read",
        "IndexStale; no signal, as nothing is mapped",
        (
            "_storage/test_local.py::test_a_file_that_is_cut_while_threads_read_it_is_an_error_and_not_a_signal",
            "faults/test_tfrecord.py::test_a_file_that_is_cut_while_a_feed_reads_it_is_an_error_and_no_signal",
            "sources/test_tfrecord.py::test_a_file_that_is_cut_while_it_is_read_is_an_error_that_names_it",
            "sources/test_tokens.py::test_a_file_that_is_cut_while_it_is_read_is_an_error_behind_the_windows_before_it",
        ),
    ),
    (
        "D14",
        "a store says 500, 502, 503 or 429, with Retry-After",
        "asked again, later each time, as often as the options say; then StorageError",
        (
            "faults/test_remote.py::test_what_goes_wrong_is_asked_again_and_is_never_an_end",
            "faults/test_remote.py::test_faults_while_objects_are_looked_for_are_asked_again_too",
            "faults/test_remote.py::test_a_server_is_left_alone_for_as_long_as_it_wants",
        ),
    ),
    (
        "D15",
        "refused, reset, no such name, a host that accepts and says nothing",
        "asked again, then StorageError; the deadline is kept",
        (
            "faults/test_remote.py::test_the_deadline_of_a_read_is_kept",
            "faults/test_remote.py::test_a_host_that_accepts_and_says_nothing_is_given_up",
            "faults/test_remote.py::test_nobody_there_is_an_error_after_the_retries",
        ),
    ),
    (
        "D16",
        "a short body, chunks without end, 200 or another range for a range, coded bodies",
        "never taken for an end: the rest is asked for",
        (
            "faults/test_remote.py::test_bytes_that_came_before_a_break_are_not_asked_for_again",
            "faults/test_remote.py::test_chunks_without_an_end_and_coded_bodies_are_asked_again",
        ),
    ),
    (
        "D17",
        "a server that stops at nine tenths, or gives a byte at a time",
        "given up, the rest asked for again",
        (
            "faults/test_remote.py::test_a_server_that_stops_after_nine_tenths_is_asked_for_the_rest",
            "faults/test_remote.py::test_a_server_that_gives_a_byte_at_a_time_is_given_up",
            "faults/test_remote.py::test_a_slow_object_store_is_asked_again",
        ),
    ),
    (
        "D18",
        "an object is replaced between two reads",
        "ObjectChanged",
        ("faults/test_remote.py::test_an_object_that_is_replaced_between_two_reads_is_an_error",),
    ),
    (
        "D19",
        "404, 403, expired credentials, redirects to other hosts or without end, a login page",
        "an error at once; credentials are refreshed once; redirects are limited",
        (
            "faults/test_remote.py::test_an_object_that_is_gone_or_forbidden_is_an_error_at_once",
            "_storage/test_web.py::test_a_redirect_to_another_host_is_refused_unless_it_is_named",
            "_storage/test_web.py::test_ten_redirects_are_too_many",
            "_storage/test_web.py::test_headers_of_a_function_are_asked_for_again_once_when_they_are_refused",
            "_storage/test_buckets.py::test_credentials_that_expired_are_looked_for_again_once",
        ),
    ),
    (
        "D20",
        "a cache: leftovers of a crash, two processes at one block, full, evicted in use, damaged",
        "complete files only, one download, the bound holds, fetched again once and then an error",
        (
            "_storage/test_cache.py::test_two_processes_that_want_the_same_blocks_fetch_them_once",
            "_storage/test_cache.py::test_blocks_that_a_killed_process_was_fetching_are_fetched_by_the_next",
            "_storage/test_cache.py::test_a_damaged_block_is_fetched_again_once_and_then_an_error",
            "_storage/test_cachefiles.py::test_the_bound_holds_at_all_times_and_what_was_used_last_stays",
            "_storage/test_cachefiles.py::test_a_block_in_use_may_be_dropped",
            "_storage/test_cachefiles.py::test_what_a_dead_process_left_half_written_is_removed",
        ),
    ),
    (
        "D21",
        "64 readers start in the same second",
        "requests in flight are limited; all finish",
        ("faults/test_remote.py::test_readers_that_start_together_are_held_to_the_limit_and_all_finish",),
    ),
    (
        "D22",
        "a write whose error only sync or close tells; a rename that fails",
        "the system's error; what was under the name stays",
        (
            "faults/test_reading_files.py::test_a_publish_that_fails_at_any_step_says_so_and_leaves_the_old_file_alone",
            "_storage/test_publish.py::test_when_writing_fails_the_old_file_stays_and_nothing_is_left",
            "faults/test_packing.py::test_an_error_that_only_close_tells_is_an_error",
        ),
    ),
    (
        "D23",
        "power is lost: what was not synced is gone",
        "what has its name is complete; the manifest is there only behind all shards; a rerun gives the same bytes",
        (
            "faults/test_packing.py::test_after_a_loss_of_power_a_file_that_has_its_name_is_complete",
            "faults/test_packing.py::test_after_a_loss_of_power_at_every_step_a_rerun_gives_the_same_files",
        ),
    ),
    (
        "F9",
        "passwords, signatures and keys in URLs, options and answers",
        "in no name and no error",
        ("faults/test_remote.py::test_no_error_shows_a_secret",),
    ),
    (
        "R8",
        "ten thousand reads from a store with every fault",
        "no wrong byte, no false end",
        (
            "faults/test_remote.py::test_hundreds_of_reads_from_a_store_with_every_fault_give_no_wrong_byte_and_no_false_end",
            "faults/test_remote.py::test_ten_thousand_reads_from_a_store_with_every_fault_give_no_wrong_byte_and_no_false_end",
        ),
    ),
)
"""Number, what goes wrong, what the user must see, tests."""

FURTHER: dict[str, tuple[str, ...]] = {
    "C19": (
        "_storage/test_local.py::test_what_is_no_file_is_refused_at_once",
        "_storage/test_local.py::test_a_file_that_becomes_a_fifo_does_not_block",
    ),
    "C20": (
        "_storage/test_local.py::test_odd_names_are_read",
        "_storage/test_listing.py::test_the_very_name_of_a_file_comes_before_what_the_name_could_mean",
    ),
    "C2": ("faults/test_packing.py::test_a_jpeg_that_is_cut_is_an_error_or_left_out_while_it_is_packed",),
    "C34": ("faults/test_load.py::test_a_record_of_200_mb_is_packed_and_read_among_those_of_100_kb",),
    "C33": ("sources/test_indexing.py::test_a_time_alone_neither_makes_nor_breaks_an_index",),
    "G4": ("sources/test_records.py::test_a_million_tiny_records_and_some_large_ones_are_read",),
    "G5": (
        "sources/test_text.py::test_ten_million_lines_take_twelve_bytes_each",
        "sources/test_indexing.py::test_a_hundred_thousand_shards_are_opened",
    ),
}
"""More tests of rows of the registry."""
