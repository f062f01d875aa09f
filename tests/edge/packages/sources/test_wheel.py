"""Downloads by the real pip from an index on loopback that breaks off, lies, or is not there."""

from __future__ import annotations

import hashlib
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from edge.packages import library as library_module
from edge.packages.catalogue import CatalogueEntry
from edge.packages.library import Library
from edge.packages.package import Package
from edge.packages.progress import Progress, Step
from shared.errors import (
    DigestMismatch,
    InvalidRequest,
    IsthmusError,
    ModelCorrupt,
    NotFound,
    SettingsError,
    SourceUnavailable,
    UnsupportedArchitecture,
)
from shared.testing.models import write_gguf

WHEEL = "tiny_model-1.0-py3-none-any.whl"
MEMBER = "tiny_model/model.gguf"


class Index:
    """A package index with one wheel. `cuts` says how many downloads break off in the middle."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel.read_bytes()
        self.cuts = 0
        self.downloads = 0
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith(WHEEL):
                    index.downloads += 1
                    self._send(index.wheel, cut=index.downloads <= index.cuts)
                else:
                    self._send(f'<a href="/{WHEEL}">{WHEEL}</a>'.encode(), cut=False)

            def _send(self, body: bytes, *, cut: bool) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if cut else body)

            def log_message(self, *args: object) -> None:
                del args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/simple"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def make_wheel(folder: Path, model: Path) -> Path:
    wheel = folder / WHEEL
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(model, MEMBER)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return wheel


@pytest.fixture
def wheel(tmp_path: Path, small_model: Callable[[int], Path]) -> Path:
    """A wheel with a small model in it."""
    return make_wheel(tmp_path, small_model(1))


@pytest.fixture
def entry(wheel: Path, small_model: Callable[[int], Path]) -> CatalogueEntry:
    """Its entry in the catalogue."""
    model = small_model(1).read_bytes()
    return CatalogueEntry(
        name="tiny",
        distribution="tiny-model",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member=MEMBER,
        model_sha256=hashlib.sha256(model).hexdigest(),
        model_bytes=len(model),
        license="Apache-2.0",
    )


@pytest.fixture
def index(wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """The index that pip is pointed at, without retries of pip's own and without its cache."""
    served = Index(wheel)
    monkeypatch.setenv("PIP_INDEX_URL", served.url)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_RESUME_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    yield served
    served.close()


@pytest.fixture
def library(tmp_path: Path, entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch) -> Library:
    """An empty library whose catalogue has the tiny model."""
    use(monkeypatch, entry)
    return Library(tmp_path / "models")


def use(monkeypatch: pytest.MonkeyPatch, entry: CatalogueEntry) -> None:
    monkeypatch.setitem(library_module.CATALOGUE, entry.name, entry)


def nothing_left(tmp_path: Path) -> None:
    home = tmp_path / "models" / "tiny"
    assert [path.name for path in home.iterdir()] == [".lock"]


def test_a_model_is_downloaded_once_and_then_known(library: Library, index: Index, entry: CatalogueEntry) -> None:
    seen: list[Progress] = []
    package = library.pull("tiny", progress=seen.append)
    assert package.digest == f"sha256:{entry.model_sha256}"
    assert (package.manifest.source, package.manifest.license) == ("wheel tiny-model==1.0", "Apache-2.0")
    steps = list(dict.fromkeys(progress.step for progress in seen))
    assert steps == [Step.FETCH, Step.COPY, Step.CHECK, Step.SYNC, Step.ACTIVATE]
    assert [p.done_bytes for p in seen if p.step is Step.COPY][-1] == entry.model_bytes
    assert library.pull("tiny") == package
    assert index.downloads == 1
    assert library.installed() == (package,)


def test_a_download_that_breaks_off_is_tried_again(library: Library, index: Index) -> None:
    index.cuts = 1
    assert isinstance(library.pull("tiny"), Package)
    assert index.downloads >= 2


def test_a_download_that_keeps_breaking_off_is_one_clear_error(
    library: Library, index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index.cuts = 1000
    monkeypatch.setenv("PIP_RESUME_RETRIES", "1")
    with pytest.raises(SourceUnavailable) as refused:
        library.pull("tiny")
    assert refused.value.message == (
        "tiny-model==1.0 could not be downloaded: the connection broke off. Nothing was installed."
    )
    nothing_left(tmp_path)


def test_other_bytes_than_were_pinned_are_not_tried_twice(
    library: Library, index: Index, small_model: Callable[[int], Path], tmp_path: Path
) -> None:
    index.wheel = make_wheel(tmp_path, small_model(2)).read_bytes()
    with pytest.raises(DigestMismatch) as refused:
        library.pull("tiny")
    assert "\n" not in refused.value.message
    assert index.downloads == 1
    nothing_left(tmp_path)


def test_an_index_that_is_not_there(
    library: Library, index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{free_port()}/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")  # pip names the cause when it tries again
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        library.pull("tiny")
    nothing_left(tmp_path)


def test_a_python_without_pip(library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(SettingsError, match="no pip"):
        library.pull("tiny")
    nothing_left(tmp_path)


def test_an_interrupt_during_the_download_ends_pip_and_leaves_nothing(
    library: Library, index: Index, tmp_path: Path
) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.step is Step.FETCH:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        library.pull("tiny", progress=interrupt)
    nothing_left(tmp_path)
    assert isinstance(library.pull("tiny"), Package)


def test_a_damaged_installation_is_pulled_again(library: Library, index: Index, wheel: Path) -> None:
    package = library.pull("tiny")
    package.model_path.chmod(0o644)
    with package.model_path.open("r+b") as file:
        file.write(b"XXXX")
    repaired = library.pull(str(wheel))
    assert repaired.digest == package.digest
    assert library.verify("tiny").package == repaired


def test_a_wheel_that_is_here(library: Library, wheel: Path, entry: CatalogueEntry) -> None:
    assert library.pull(str(wheel)).digest == f"sha256:{entry.model_sha256}"


def test_a_wheel_with_other_bytes_under_the_same_name(
    library: Library, wheel: Path, small_model: Callable[[int], Path], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(DigestMismatch):
        library.pull(str(make_wheel(tmp_path / "other", small_model(2))))


def test_a_wheel_that_is_pinned_but_broken(
    library: Library, wheel: Path, entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-200])
    use(monkeypatch, replace(entry, wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest()))
    with pytest.raises(ModelCorrupt):
        library.pull(str(wheel))
    nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("no-such-model", NotFound),
        ("/nowhere/model.gguf", NotFound),
        ("/nowhere/tiny_model-1.0-py3-none-any.whl", NotFound),
        ("/nowhere/another-1.0-py3-none-any.whl", InvalidRequest),
    ],
)
def test_sources_that_are_not_there(library: Library, source: str, error: type[IsthmusError]) -> None:
    with pytest.raises(error):
        library.pull(source)


def test_a_local_file_is_imported_under_a_name(library: Library, small_model: Callable[[int], Path]) -> None:
    package = library.import_path(small_model(3), "mine")
    assert (package.name, package.manifest.source) == ("mine", "file")
    assert library.show("mine") == package
    assert library.pull(str(small_model(3))).name == "small-3"
    assert [p.name for p in library.installed()] == ["mine", "small-3"]


def test_gg_03_a_refused_import_leaves_the_installed_one(
    library: Library, small_model: Callable[[int], Path], tmp_path: Path
) -> None:
    package = library.import_path(small_model(3), "mine")
    with pytest.raises(UnsupportedArchitecture, match="notarch"):
        library.import_path(write_gguf(tmp_path / "not.gguf", architecture="notarch"), "mine")
    assert library.verify("mine").package == package
