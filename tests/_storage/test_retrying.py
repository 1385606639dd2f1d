from __future__ import annotations

from typing import Any

import pytest
from _storage.remotes import options

from penstock._storage.requests import AskAgain, Client, CredentialsRefused, Turn, backoff_s, persist
from penstock.errors import StorageError


class Failing:
    """Fails as its script says, then succeeds."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.num_refreshed = 0
        self.num_asked = 0

    def attempt(self) -> str:
        self.num_asked += 1
        if self.faults:
            raise self.faults.pop(0)
        return "done"

    def refresh(self) -> None:
        self.num_refreshed += 1


def run(transport: Any, **given: Any) -> str:
    result: str = persist(transport.attempt, transport, lambda: "bytes 0 to 9", Turn(Client(options(**given)), "it"))
    return result


def test_the_wait_doubles_up_to_its_bound_and_differs_each_time():
    given = options(backoff_s=0.1, max_backoff_s=5.0)
    for num_failed, mean in ((1, 0.1), (2, 0.2), (3, 0.4), (6, 3.2), (7, 5.0), (1000, 5.0)):
        waits = [backoff_s(given, num_failed) for _ in range(50)]
        assert 0.75 * mean <= min(waits) < max(waits) <= 1.25 * mean


def test_what_may_succeed_is_asked_again_as_often_as_the_options_say():
    transport = Failing(*[AskAgain("503")] * 3)
    assert run(transport, retries=3) == "done"
    assert transport.num_asked == 4
    transport = Failing(*[AskAgain("it said 503")] * 4)
    with pytest.raises(StorageError) as caught:
        run(transport, retries=3)
    assert caught.value.what == "bytes 0 to 9 did not come after 4 tries: it said 503"
    assert isinstance(caught.value, OSError)


def test_credentials_are_refreshed_once():
    transport = Failing(CredentialsRefused("it said 403"))
    assert run(transport) == "done"
    assert (transport.num_asked, transport.num_refreshed) == (2, 1)
    transport = Failing(CredentialsRefused("it said 401"), CredentialsRefused("it said 403"))
    with pytest.raises(StorageError) as caught:
        run(transport)
    assert caught.value.what == "'bytes 0 to 9' may not be read: it said 403"
    assert (transport.num_asked, transport.num_refreshed) == (2, 1)


def test_a_wait_that_ends_behind_the_deadline_is_not_begun():
    transport = Failing(AskAgain("it said 429", wait_s=3600))
    with pytest.raises(StorageError) as caught:
        run(transport)
    assert caught.value.what.endswith("it said 429; the server asks for 3600 s, which end behind the deadline")
    assert transport.num_asked == 1


def test_the_reason_of_a_try_has_no_secrets():
    assert "hunter2" not in str(AskAgain("GET https://me:hunter2@example.org/x?sig=hunter2 failed"))
    assert "hunter2" not in str(CredentialsRefused("Authorization: Bearer hunter2hunter2"))
