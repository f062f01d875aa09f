"""Files over HTTP: resumed after whatever happens, bounded, pinned, and never joined from two contents."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3

from edge.packages.library import Library
from edge.packages.progress import Progress, Step, ignore
from edge.packages.sources.address import RemoteFile, RemoteRules, remote_file
from edge.packages.sources.web import Fetched, WebFetcher
from shared.errors import (
    DigestMismatch,
    InvalidRequest,
    IsthmusError,
    ModelCorrupt,
    NotFound,
    SourceUnavailable,
    UnsupportedArchitecture,
)
from shared.testing.models import write_gguf
from tests.edge.packages.sources.file_server import FileServer, serving

CONTENT = b"GGUF" + os.urandom(1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(FileServer(CONTENT)) as server:
        yield server


class Fetching:
    """A fetcher without pauses; `pauses` is what it would have waited."""

    def __init__(self, folder: Path, **rules: object) -> None:
        self.pauses: list[float] = []
        self.partial = folder / "partial-x.part"
        self.rules = RemoteRules(**rules)  # type: ignore[arg-type]
        self.seen: list[Progress] = []
        timeout = urllib3.Timeout(connect=5, read=5)
        self._fetcher = WebFetcher(self.rules, sleep=self.pauses.append, fraction=lambda: 0.5, timeout=timeout)

    def __call__(self, source: str) -> Fetched:
        remote = remote_file(source, self.rules)
        assert remote is not None
        return self._fetcher.fetch(remote, self.partial, self.seen.append)

    @property
    def kept_bytes(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0


@pytest.fixture
def fetch(tmp_path: Path) -> Fetching:
    return Fetching(tmp_path)


def test_a_whole_file_with_progress(fetch: Fetching, server: FileServer) -> None:
    fetched = fetch(f"{server.url}/model.gguf#sha256={SHA256}")
    assert fetched.path.read_bytes() == CONTENT
    assert (fetched.sha256, fetched.size_bytes) == (SHA256, len(CONTENT))
    steps = [progress for progress in fetch.seen if progress.step is Step.FETCH]
    assert steps[-1] == Progress(Step.FETCH, len(CONTENT), len(CONTENT))
    assert [progress.done_bytes for progress in steps] == sorted(progress.done_bytes for progress in steps)


def test_breaks_are_resumed_within_one_call(fetch: Fetching, server: FileServer) -> None:
    server.cuts = [300_000, 300_000]
    assert fetch(f"{server.url}/model.gguf").path.read_bytes() == CONTENT
    asked = server.ranges_asked()
    assert asked[0] is None
    assert all(later is not None for later in asked[1:])
    assert len(asked) == 3
    assert all(headers.get("If-Range") == '"one"' for _, headers in server.requests[1:])


def test_a_later_call_goes_on_where_an_earlier_one_was_given_up(fetch: Fetching, server: FileServer) -> None:
    server.cuts = [400_000] + [0] * 5
    with pytest.raises(SourceUnavailable, match="are kept") as given_up:
        fetch(f"{server.url}/model.gguf")
    assert given_up.value.param == "source"
    assert 0 < fetch.kept_bytes <= 400_000
    kept = fetch.kept_bytes
    assert len(fetch.pauses) == 5  # bounded, and with a pause before each
    server.requests.clear()
    assert fetch(f"{server.url}/model.gguf").path.read_bytes() == CONTENT
    assert server.ranges_asked() == [f"bytes={kept}-"]


def test_a_file_that_changed_meanwhile_starts_over(fetch: Fetching, server: FileServer) -> None:
    server.cuts = [400_000] + [0] * 5
    with pytest.raises(SourceUnavailable):
        fetch(f"{server.url}/model.gguf")
    server.content, server.etag = b"GGUF" + b"other" * 150_000, '"two"'
    assert fetch(f"{server.url}/model.gguf").path.read_bytes() == server.content


def test_a_server_that_lies_about_the_range_starts_over(fetch: Fetching, server: FileServer) -> None:
    """It says 206 for another content of another size, with the old ETag."""
    server.cuts = [400_000] + [0] * 5
    with pytest.raises(SourceUnavailable):
        fetch(f"{server.url}/model.gguf")
    server.content = b"GGUF" + b"other" * 150_000
    assert fetch(f"{server.url}/model.gguf").path.read_bytes() == server.content


def test_without_ranges_or_marks_every_attempt_starts_over(fetch: Fetching, server: FileServer) -> None:
    server.ranges, server.etag, server.cuts = False, None, [400_000]
    assert fetch(f"{server.url}/model.gguf").path.read_bytes() == CONTENT
    assert server.ranges_asked() == [None, None]


def test_a_pinned_file_is_resumed_without_a_mark(fetch: Fetching, server: FileServer) -> None:
    server.etag, server.cuts = None, [400_000]
    assert fetch(f"{server.url}/model.gguf#sha256={SHA256}").path.read_bytes() == CONTENT
    assert server.ranges_asked()[1] is not None


def test_a_length_that_is_not_stated(fetch: Fetching, server: FileServer) -> None:
    server.without_length = True
    assert fetch(f"{server.url}/model.gguf").path.read_bytes() == CONTENT


def test_a_busy_server_is_asked_again_when_it_says(fetch: Fetching, server: FileServer) -> None:
    server.statuses = [503, 429]
    assert fetch(f"{server.url}/model.gguf").path.read_bytes() == CONTENT
    assert fetch.pauses == [7.0, 7.0]


@pytest.mark.parametrize(("status", "error"), [(404, NotFound), (403, SourceUnavailable), (401, SourceUnavailable)])
def test_a_final_answer_is_not_asked_for_again(
    fetch: Fetching, server: FileServer, status: int, error: type[IsthmusError]
) -> None:
    server.statuses = [status]
    with pytest.raises(error):
        fetch(f"{server.url}/model.gguf")
    assert len(server.requests) == 1


def test_nobody_there(fetch: Fetching, free_port: Callable[[], int]) -> None:
    with pytest.raises(SourceUnavailable):
        fetch(f"http://127.0.0.1:{free_port()}/model.gguf")


def test_a_wrong_pin_keeps_nothing(fetch: Fetching, server: FileServer) -> None:
    with pytest.raises(DigestMismatch, match="pinned"):
        fetch(f"{server.url}/model.gguf#sha256={'0' * 64}")
    assert list(fetch.partial.parent.iterdir()) == []


def test_the_hash_that_the_server_states_counts_too(fetch: Fetching, server: FileServer) -> None:
    server.headers["X-Linked-Etag"] = f'"{"0" * 64}"'
    with pytest.raises(DigestMismatch, match="server states"):
        fetch(f"{server.url}/model.gguf")


def test_a_page_instead_of_a_model_is_refused_at_its_first_bytes(fetch: Fetching, server: FileServer) -> None:
    server.content = b"<html>" + b" " * 900_000
    with pytest.raises(ModelCorrupt, match="no GGUF file"):
        fetch(f"{server.url}/model.gguf")
    assert fetch.kept_bytes == 0


@pytest.mark.parametrize("without_length", [True, False])
def test_a_file_over_the_limit(tmp_path: Path, server: FileServer, without_length: bool) -> None:
    server.without_length = without_length
    fetch = Fetching(tmp_path, limit_bytes=500_000)
    with pytest.raises(InvalidRequest, match=r"edge\.sources\.limit"):
        fetch(f"{server.url}/model.gguf")


def test_redirections_are_followed_and_judged(fetch: Fetching, server: FileServer) -> None:
    server.redirects = {"/a.gguf": "/b.gguf", "/b.gguf": f"{server.url}/model.gguf"}
    assert fetch(f"{server.url}/a.gguf").path.read_bytes() == CONTENT
    server.redirects = {"/c.gguf": "http://192.0.2.1/model.gguf"}
    with pytest.raises(InvalidRequest, match="Plain HTTP"):
        fetch(f"{server.url}/c.gguf")
    server.redirects = {"/d.gguf": "file:///etc/passwd"}
    with pytest.raises(InvalidRequest):
        fetch(f"{server.url}/d.gguf")
    server.redirects = {"/e.gguf": "/e.gguf"}
    with pytest.raises(SourceUnavailable, match="redirects"):
        fetch(f"{server.url}/e.gguf")


def test_a_compressed_answer_is_refused(fetch: Fetching, server: FileServer) -> None:
    server.headers["Content-Encoding"] = "gzip"
    with pytest.raises(SourceUnavailable, match="compressed"):
        fetch(f"{server.url}/model.gguf")


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 262_143, 262_144, 999_999, 1_000_003])
def test_a_break_at_any_byte_is_resumed(fetch: Fetching, server: FileServer, cut: int) -> None:
    server.cuts = [cut]
    assert fetch(f"{server.url}/model.gguf").path.read_bytes() == CONTENT


def test_another_address_does_not_go_on_with_what_is_there(fetch: Fetching, server: FileServer) -> None:
    server.cuts = [400_000] + [0] * 5
    with pytest.raises(SourceUnavailable):
        fetch(f"{server.url}/model.gguf")
    server.requests.clear()
    assert fetch(f"{server.url}/other.gguf").path.read_bytes() == CONTENT
    assert server.ranges_asked() == [None]


def test_a_repository_path(tmp_path: Path, server: FileServer) -> None:
    fetch = Fetching(tmp_path, hub_url=f"{server.url}/hub")
    server.redirects = {"/hub/owner/name/resolve/v1/sub/model.gguf": "/blob"}
    assert fetch(f"hf:owner/name@v1/sub/model.gguf#sha256={SHA256}").path.read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/hub/owner/name/resolve/v1/sub/model.gguf", "/blob"]


# The whole way, through the library.


@pytest.fixture
def model(tmp_path: Path) -> bytes:
    return write_gguf(tmp_path / "source.gguf").read_bytes()


def test_pull_installs_what_arrived_and_leaves_no_download(tmp_path: Path, server: FileServer, model: bytes) -> None:
    server.content = model
    library = Library(tmp_path / "models")
    package = library.pull(f"{server.url}/Small.Model.gguf?token=secret")
    assert package.name == "small.model"
    assert package.manifest.source == f"{server.url}/Small.Model.gguf"
    assert "secret" not in package.manifest.encoded().decode()
    assert list((tmp_path / "models" / "small.model").glob("partial-*")) == []
    assert library.pull(f"{server.url}/x.gguf", name="chosen").name == "chosen"


def test_a_pinned_file_that_is_installed_is_not_fetched_again(tmp_path: Path, server: FileServer, model: bytes) -> None:
    server.content = model
    library = Library(tmp_path / "models")
    source = f"{server.url}/small.gguf#sha256={hashlib.sha256(model).hexdigest()}"
    package = library.pull(source)
    assert library.pull(source).folder == package.folder
    assert len(server.requests) == 1


def test_what_no_engine_runs_is_refused_and_not_kept(tmp_path: Path, server: FileServer) -> None:
    server.content = write_gguf(tmp_path / "other.gguf", architecture="notarch").read_bytes()
    library = Library(tmp_path / "models")
    with pytest.raises(UnsupportedArchitecture):
        library.pull(f"{server.url}/other.gguf")
    assert library.installed() == ()
    assert list((tmp_path / "models").rglob("partial-*")) == []


def test_kill_9_in_the_middle_and_the_same_command_again(tmp_path: Path, server: FileServer, model: bytes) -> None:
    """The process is killed while the server holds the transfer in its middle."""
    server.content, server.stall_at = model, len(model) // 2
    command = [sys.executable, "-m", "shared.cli", "edge", "pull", f"{server.url}/small.gguf", "--json"]
    environment = {**os.environ, "ISTHMUS_HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert server.stalled.wait(60)
        partial = _appears(tmp_path / "home" / "models" / "small", process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    server.go_on.set()
    kept = partial.stat().st_size
    server.requests.clear()
    finished = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert server.ranges_asked() == [f"bytes={kept}-" if kept else None]
    assert Library(tmp_path / "home" / "models").verify("small").package.digest == (
        f"sha256:{hashlib.sha256(model).hexdigest()}"
    )


def _appears(folder: Path, process: subprocess.Popen[bytes]) -> Path:
    while process.poll() is None:
        found = list(folder.glob("partial-*.part"))
        if found and found[0].with_suffix(".json").exists():
            return found[0]
    raise AssertionError("the download never began")


def test_gc_removes_downloads_that_were_given_up(tmp_path: Path, server: FileServer, model: bytes) -> None:
    server.content, server.cuts = model, [100] + [0] * 5
    library = Library(tmp_path / "models")
    remote = RemoteFile(f"{server.url}/small.gguf", "small", "small.gguf", None)
    from edge.packages.store import PackageStore

    with PackageStore(tmp_path / "models").installation("small") as installation:
        fetcher = WebFetcher(RemoteRules(), sleep=lambda _: None)
        with pytest.raises(SourceUnavailable):
            fetcher.fetch(remote, installation.partial(remote.url), ignore)
    assert list((tmp_path / "models").rglob("partial-*"))
    assert library.collect() > 0
    assert list((tmp_path / "models").rglob("partial-*")) == []
