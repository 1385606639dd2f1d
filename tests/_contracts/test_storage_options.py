from __future__ import annotations

import pickle
from typing import Any

import pytest

import penstock as ps
from penstock._contracts.storage import StorageOptions, storage_options
from penstock.errors import PlanError


def test_names_of_ours_are_options_and_all_others_go_to_obstore():
    given = storage_options({"region": "eu-west-1", "retries": 3, "store": {"endpoint": "http://localhost"}}, "read_text")
    assert given == ps.StorageOptions(retries=3, store={"endpoint": "http://localhost", "region": "eu-west-1"})
    assert storage_options(None, "read_text") == StorageOptions()
    assert storage_options(given, "read_text") is given


def test_no_secret_stands_in_the_text_of_options():
    given = StorageOptions(store={"secret_access_key": "hunter2"}, headers={"Authorization": "Bearer hunter2"})
    assert "hunter2" not in repr(given)
    assert "retries=8" in repr(given)


def test_a_whole_number_may_be_written_as_a_float():
    assert repr(StorageOptions(read_ahead_bytes=8e6).read_ahead_bytes) == "8000000"


def test_options_go_to_other_processes():
    given = StorageOptions(store={"region": "here"}, redirect_hosts=("CDN.example.org",), deadline_s=3)
    assert pickle.loads(pickle.dumps(given)) == given
    assert given.redirect_hosts == ("cdn.example.org",)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"deadline_s": 0}, "deadline_s is 0, not a number above 0"),
        ({"timeout_s": "hunter2"}, "timeout_s is a str, not a number above 0"),
        ({"max_range_bytes": 8.5}, "max_range_bytes is 8.5, not a whole number"),
        ({"cache_bytes": float("inf")}, "cache_bytes is inf, not a whole number"),
        ({"retries": -1}, "retries is -1, not a number of 0 or more"),
        ({"max_requests": True}, "max_requests is True, not a number above 0"),
        ({"cache_bytes": 100}, "cache_bytes=100 holds fewer than 4 blocks of cache_block_bytes=2097152"),
        ({"redirect_hosts": "cdn.example.org"}, "redirect_hosts='cdn.example.org' is no tuple of names"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(values: dict[str, Any], what: str):
    with pytest.raises(PlanError) as caught:
        StorageOptions(**values)
    assert caught.value.what == what
    assert caught.value.where == "StorageOptions"


def test_something_that_is_no_mapping_is_refused():
    with pytest.raises(PlanError) as caught:
        storage_options(7, "read_text")  # type: ignore[arg-type]
    assert caught.value.what == "options is int, not StorageOptions or a dict"
    assert caught.value.where == "read_text"


def test_urls_carry_their_options_and_a_dict_becomes_the_record():
    assert ps.RemoteFiles("s3://bucket/x", {"retries": 3}).options == StorageOptions(retries=3)
    with pytest.raises(PlanError) as caught:
        ps.RemoteFiles("s3://bucket/x", 7)  # type: ignore[arg-type]
    assert caught.value.where == "RemoteFiles"
