from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

from penstock._contracts.storage import StorageOptions
from penstock._storage.urls import check_host, expand_url, is_loopback, key_matcher, literal_prefix, parse_url
from penstock.errors import PlanError

PLAIN = StorageOptions()


def test_a_url_is_taken_apart():
    bucket = parse_url("s3://my-bucket/a b/part-*", PLAIN, "read_text")
    assert (bucket.scheme, bucket.host, bucket.key, bucket.in_bucket, bucket.shown) == (
        "s3", "my-bucket", "a b/part-*", True, "s3://my-bucket/a b/part-*",
    )  # fmt: skip
    web = parse_url("HTTPS://me:p%40ss@Example.org:8443/d%20d/f.txt?sig=abc#part", PLAIN, "read_text")
    assert (web.scheme, web.host, web.port, web.key, web.user) == ("https", "example.org", 8443, "/d%20d/f.txt?sig=abc", "me:p@ss")
    assert web.shown == "https://example.org:8443/d%20d/f.txt?[removed]"
    assert parse_url("https://[2001:db8::1]/x", PLAIN, "read_text").shown == "https://[2001:db8::1]/x"


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("pipe:cat /etc/passwd", "has the scheme 'pipe'"),
        ("file:///etc/passwd", "has the scheme 'file'"),
        ("ftp://example.org/x", "has the scheme 'ftp'"),
        ("s3://bucket", "names no key"),
        ("s3:///key", "names no bucket"),
        ("s3://KEY:hunter2@bucket/key", "holds credentials"),
        ("s3://KEY:hunt/er2@bucket/key", "holds credentials"),
        ("s3://bu cket/key", "is no name of a bucket"),
        ("https:///x", "names no host"),
        ("https://example.org:99999/x", "is no URL"),
        ("https://example.org/a b", "holds a space"),
        ("https://example.org/a\r\nX-Evil: 1", "holds a space or control character"),
        ("https://example.org/part-*", "is a pattern"),
        ("http://example.org/x", "is not encrypted"),
        ("http://169.254.169.254/latest/meta-data/", "is where clouds keep credentials"),
        ("http://[fe80::1]/x", "is where clouds keep credentials"),
        ("http://[::ffff:169.254.169.254]/x", "is where clouds keep credentials"),
        ("http://[fd00:ec2::254]/x", "is where clouds keep credentials"),
        ("http://0xA9FEA9FE/x", "is where clouds keep credentials"),
        ("http://2852039166/x", "is where clouds keep credentials"),
        ("https://metadata.google.internal/x", "is where clouds keep credentials"),
    ],
)
def test_a_url_that_is_not_read_is_refused_without_its_secrets(url: str, what: str):
    with pytest.raises(PlanError) as caught:
        parse_url(url, StorageOptions(), "read_text")
    assert what in caught.value.what
    assert "hunt" not in str(caught.value)
    assert caught.value.where == "read_text"


def test_plain_http_is_for_this_machine_or_by_option():
    assert parse_url("http://localhost:1/x", PLAIN, "read_text").port == 1
    assert parse_url("http://example.org/x", StorageOptions(allow_http=True), "read_text").port == 80
    assert is_loopback("127.9.9.9")
    assert is_loopback("::1")
    assert not is_loopback("128.0.0.1")
    assert not is_loopback("example.org")


def test_the_peer_of_a_connection_is_checked_too():
    check_host("93.184.216.34", "here")
    with pytest.raises(PlanError):
        check_host("169.254.169.254", "here")


def test_the_prefix_in_front_of_a_wildcard():
    assert literal_prefix("a/b-*.txt") == "a/b-"
    assert literal_prefix("a/[0-9]") == "a/"
    assert literal_prefix("a/b") is None


PATTERNS = [
    "*", "*.txt", "a/*", "a/**", "**", "**/*.txt", "a/**/*.txt", "**/c/*", "a/?.txt", "a/[x-z].txt", "a/[!x].txt", "*/b/*", "a/[.txt",
    "a/x.txt", "a/[]x].txt", "a.txt", ".*", "a/.*", ".b/*", "**/.h*", "a/?b", "a/[.]b", "a/**/.*", ".b/**", "a/*.b", "*.b/x", "**/x", "*/x",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_the_keys_that_glob_finds_as_files(pattern: str, tmp_path: Path):
    names = [
        "a.txt",
        "x",
        "a/x.txt",
        "a/y.txt",
        "a/].txt",
        "a/xx.txt",
        "a/[.txt",
        "a/b/z.txt",
        "a/b/c/x.txt",
        "a/b/c/d/x",
        "q/c/x",
        "q+b.txt",
        ".h",
        "a/.b",
        "a/a.b",
        "a/b/.h.txt",
        ".b/x",
        ".b/c/x.txt",
        ".b/.c/x.txt",
        "a/.b.b/x",
    ]
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    found = {os.path.relpath(path, tmp_path) for path in glob.glob(str(tmp_path / pattern), recursive=True) if os.path.isfile(path)}
    matcher = key_matcher(pattern)
    assert {name for name in names if matcher.fullmatch(name)} == found


def test_a_range_without_letters_is_refused_and_odd_letters_in_brackets_stand_for_themselves() -> None:
    with pytest.raises(PlanError) as caught:
        key_matcher("a/[z-a]*.txt")
    assert "the pattern 'a/[z-a]*.txt' cannot be read: bad character range z-a" in caught.value.what
    assert "[a-z]" in caught.value.fix
    matcher = key_matcher("[&&||~~]x")
    assert [matcher.fullmatch(name) is not None for name in ("&x", "|x", "~x", "ax")] == [True, True, True, False]


def test_braces_and_numbers_of_shards_stand_in_the_path_alone():
    assert expand_url("s3://b/p-{08..10}.tar", "read_text") == ["s3://b/p-08.tar", "s3://b/p-09.tar", "s3://b/p-10.tar"]
    assert expand_url("gs://b/p@2", "read_text") == ["gs://b/p-00000-of-00002", "gs://b/p-00001-of-00002"]
    for url in ("https://me:x{1,2}@h/p?q={1,2}@3", "https://h/p#a@2", "https://h@10", "pipe:x"):
        assert expand_url(url, "read_text") == [url]
    assert expand_url("https://me:pw@h/{a,b}?q={1,2}", "read_text") == ["https://me:pw@h/a?q={1,2}", "https://me:pw@h/b?q={1,2}"]
    with pytest.raises(PlanError, match="stands for 1000000000 names") as caught:
        expand_url("https://me:hunter2@h/{000000..999999999}?sig=hunter2", "read_text")
    assert "hunter2" not in str(caught.value)
