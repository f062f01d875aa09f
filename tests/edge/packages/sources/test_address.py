"""What counts as an address of a remote file, and which addresses are refused."""

from __future__ import annotations

import pytest

from edge.packages.sources.address import RemoteRules, remote_file
from shared.errors import InvalidRequest, IsthmusError, SettingsError

RULES = RemoteRules(hub_url="https://hub.example")
PIN = "A" * 64


@pytest.mark.parametrize(
    ("source", "url", "name", "sha256"),
    [
        ("https://a.example/x/Model-1.gguf", "https://a.example/x/Model-1.gguf", "model-1", None),
        (f"https://a.example/m.gguf#sha256={PIN}", "https://a.example/m.gguf", "m", PIN.lower()),
        ("http://127.0.0.1:99/m%20m.gguf?k=1", "http://127.0.0.1:99/m%20m.gguf?k=1", "m-m", None),
        ("http://[::1]:99/m.gguf", "http://[::1]:99/m.gguf", "m", None),
        ("hf:o/n/m.gguf", "https://hub.example/o/n/resolve/main/m.gguf", "m", None),
        (f"hf:o/n@v2/a/b.gguf#sha256={PIN}", "https://hub.example/o/n/resolve/v2/a/b.gguf", "b", PIN.lower()),
    ],
)
def test_addresses(source: str, url: str, name: str, sha256: str | None) -> None:
    remote = remote_file(source, RULES)
    assert remote is not None
    assert (remote.url, remote.package_name, remote.sha256) == (url, name, sha256)
    assert "?" not in remote.shown


@pytest.mark.parametrize(
    "source", ["smollm2-135m-instruct", "./a.gguf", "/a/b", "https://a.example/c#name", "dir#name"]
)
def test_other_kinds_of_sources_are_left_to_others(source: str) -> None:
    assert remote_file(source, RULES) is None


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("http://a.example/m.gguf", InvalidRequest, "Plain HTTP"),
        ("http://127.0.0.1.a.example/m.gguf", InvalidRequest, "Plain HTTP"),
        ("https://user:secret@a.example/m.gguf", InvalidRequest, "user name"),
        ("https:///m.gguf", InvalidRequest, "URL"),
        ("https://a.example/m.bin", InvalidRequest, "GGUF"),
        ("https://a.example/m.gguf#sha256=abc", InvalidRequest, "64"),
        ("https://a.example/m.gguf#md5=abc", InvalidRequest, "sha256="),
        ("hf:o/n", InvalidRequest, "hf:OWNER"),
        ("hf:o/n/../m.gguf", InvalidRequest, "hf:OWNER"),
        ("hf:o/n@../m.gguf", InvalidRequest, "hf:OWNER"),
    ],
)
def test_addresses_that_are_refused(source: str, error: type[IsthmusError], words: str) -> None:
    with pytest.raises(error, match=words) as refused:
        remote_file(source, RULES)
    assert refused.value.param == "source"
    assert "secret" not in refused.value.message


def test_a_repository_path_needs_a_server_in_the_settings() -> None:
    with pytest.raises(SettingsError) as refused:
        remote_file("hf:o/n/m.gguf", RemoteRules())
    assert refused.value.param == "edge.sources.hub_url"


def test_plain_http_is_allowed_by_the_setting() -> None:
    remote = remote_file("http://a.example/m.gguf", RemoteRules(allow_http=True))
    assert remote is not None
