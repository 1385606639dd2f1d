from __future__ import annotations

import pytest

from penstock._system.text import redacted

SECRETS = [
    "https://user:hunter2@example.org/data.txt",
    "https://hunter2@example.org/data.txt",
    "s3://AKIAABCDEFGHIJKLMNOP:hunter2@bucket/key",
    "s3://AKIAABCDEFGHIJKLMNOP:hunter2/hunter2@bucket/key",
    "https://example.org/key?X-Amz-Signature=hunter2&X-Amz-Expires=7",
    "https://example.org/key?sig=hunter2#hunter2",
    "Authorization: Bearer hunter2.hunter2",
    "'authorization': 'AWS4-HMAC-SHA256 Credential=hunter2/today/us-east-1/s3, Signature=hunter2'",
    "<AWSAccessKeyId>hunter2</AWSAccessKeyId><SecretAccessKey>hunter2</SecretAccessKey>",
    "x-amz-security-token=hunter2",
    '{"access_token": "hunter2", "session_token": "hunter2"}',
    "secret_access_key='hunter2'",
    "the server said Basic aHVudGVyMjpodW50ZXIyaHVudGVyMg== to us",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_removed(text: str):
    shown = redacted(text)
    assert "hunter2" not in shown
    assert "AKIA" not in shown
    assert "aHVudGVy" not in shown
    assert "[removed]" in shown


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org:8443/folder/name@2x.png",
        "s3://bucket/folder/part-00001.tfrecord",
        "http://127.0.0.1:80/a",
        "the server said 503",
        "no connection to example.org:443 for 5 s",
        "a token is 2 bytes",
    ],
)
def test_what_is_no_secret_stays(text: str):
    assert redacted(text) == text


def test_host_and_path_stay_beside_what_is_removed():
    assert (
        redacted("GET https://me:secret@example.org/a/b.txt?sig=1 failed") == "GET https://[removed]@example.org/a/b.txt?[removed] failed"
    )
