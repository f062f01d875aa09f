"""Fetches one file over HTTP(S) into a partial file that survives interruption, and goes on where it stopped.

What is kept beside the bytes is the server's own mark of the content (a strong ETag, else Last-Modified): a range is
asked for with `If-Range`, so that a file that changed meanwhile starts over instead of being joined from two. Without a
mark only a pinned file is continued, whose hash tells in the end.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin

import orjson
import urllib3

from edge.packages.durable import disk_errors, replace_synced, require_room
from edge.packages.progress import Progress, ProgressListener, Step
from edge.packages.sources.address import RemoteFile, RemoteRules, check_url
from shared.backoff import full_jitter_s
from shared.errors import DigestMismatch, InvalidRequest, ModelCorrupt, NotFound, SourceUnavailable

_CHUNK_BYTES = 256 << 10
_TIMEOUT = urllib3.Timeout(connect=10.0, read=30.0)
_FRUITLESS_ATTEMPTS = 5
"""Attempts in a row that bring nothing before it is given up; one that brings bytes starts the count again."""
_ATTEMPTS = 100
_PAUSE_BASE_S, _PAUSE_CAP_S = 0.5, 20.0
_RETRY_AFTER_LIMIT_S = 60.0
_REDIRECTS = 5
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_SHA256 = re.compile(r'"?([0-9a-f]{64})"?')


@dataclass(slots=True)
class _State:
    """What is known of a partial file, kept beside it as JSON."""

    url: str
    mark: str = ""
    size_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A whole file. `sha256` is what its bytes hash to."""

    path: Path
    size_bytes: int
    sha256: str


class _Broken(Exception):
    """The transfer broke off; another attempt may go on. `wait_s` is what the server asked for."""

    def __init__(self, wait_s: float = 0.0) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class WebFetcher:
    """Fetches files by the given rules. `sleep` and `fraction` are there for tests."""

    def __init__(
        self,
        rules: RemoteRules,
        *,
        sleep: Callable[[float], None] = time.sleep,
        fraction: Callable[[], float] = random.random,
        timeout: urllib3.Timeout = _TIMEOUT,
    ) -> None:
        self._rules = rules
        self._sleep = sleep
        self._fraction = fraction
        # Redirections are followed here, where each is judged; retries likewise, where they resume.
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False)

    def fetch(self, remote: RemoteFile, partial: Path, progress: ProgressListener) -> Fetched:
        """Bring `remote` to the file `partial`, going on with what is there.

        Raises:
            NotFound: the server does not have it.
            SourceUnavailable: it could not be read to its end; what arrived is kept for the next time.
            DigestMismatch: it does not hash to what was pinned; nothing is kept.
            ModelCorrupt: it is no model file; nothing is kept.
            SettingsError: the disk is full.
        """
        state_path = partial.with_suffix(".json")
        state = _known(state_path, remote, partial)
        with disk_errors(partial.parent, "what arrived is kept"):
            partial.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("ab") as file:
                self._until_whole(remote, state, state_path, file, progress)
        return _checked(remote, state, partial, state_path, progress)

    def _until_whole(
        self, remote: RemoteFile, state: _State, state_path: Path, file: BinaryIO, progress: ProgressListener
    ) -> None:
        fruitless = 0
        for _ in range(_ATTEMPTS):
            before = file.tell()
            try:
                self._attempt(remote, state, state_path, file, progress)
                return
            except (urllib3.exceptions.HTTPError, _Broken) as broken:
                file.flush()
                fruitless = 0 if file.tell() > before else fruitless + 1
                if fruitless >= _FRUITLESS_ATTEMPTS:
                    break
                pause_s = full_jitter_s(fruitless, base_s=_PAUSE_BASE_S, cap_s=_PAUSE_CAP_S, fraction=self._fraction())
                self._sleep(max(pause_s, broken.wait_s if isinstance(broken, _Broken) else 0.0))
        raise SourceUnavailable(
            f"{remote.shown} could not be read to its end. The {file.tell()} bytes that arrived are kept: the same "
            "command goes on from there.",
            param="source",
        )

    def _attempt(
        self, remote: RemoteFile, state: _State, state_path: Path, file: BinaryIO, progress: ProgressListener
    ) -> None:
        """One transfer, from where the file stands to its end."""
        if state.size_bytes is not None and file.tell() == state.size_bytes:
            return
        resumable = bool(state.mark) or remote.sha256 is not None
        if file.tell() and not resumable:
            _start_over(file)
        with self._opened(remote.url, state, file.tell()) as response:
            self._place(response, remote, state, file)
            replace_synced(state_path, orjson.dumps(state), mode=0o644)
            require_room(state_path.parent, max(0, (state.size_bytes or 0) - file.tell()))
            for chunk in response.stream(_CHUNK_BYTES):
                if file.tell() == 0 and not chunk.startswith(remote.magic[: len(chunk)]):
                    raise ModelCorrupt(f"{remote.shown} is no GGUF file.", param="source")
                file.write(chunk)
                self._check_so_far(remote, state, file)
                progress(Progress(Step.FETCH, file.tell(), state.size_bytes))
        if state.size_bytes is not None and file.tell() < state.size_bytes:
            raise _Broken

    def _place(self, response: urllib3.BaseHTTPResponse, remote: RemoteFile, state: _State, file: BinaryIO) -> None:
        """Put the file where the response goes on, and take down what it says of the whole."""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise SourceUnavailable(f"{remote.shown} is only offered in a compressed form.", param="source")
        if response.status == 206:
            first, total = _range_of(response.headers)
            if first != file.tell() or (state.size_bytes not in (None, total)):
                _start_over(file)  # the server answers for another content: start over
                state.mark, state.size_bytes = "", None
                raise _Broken
            state.size_bytes = total
        else:
            _start_over(file)
            length = response.headers.get("Content-Length", "")
            state.size_bytes = int(length) if length.isdigit() else None
            state.mark = _mark_of(response.headers)
        if (state.size_bytes or 0) > self._rules.limit_bytes:
            raise InvalidRequest(
                f"{remote.shown} has {state.size_bytes} bytes; edge.sources.limit allows {self._rules.limit_bytes}.",
                param="source",
            )

    def _check_so_far(self, remote: RemoteFile, state: _State, file: BinaryIO) -> None:
        done, size = file.tell(), state.size_bytes
        if done > self._rules.limit_bytes:
            raise InvalidRequest(
                f"{remote.shown} has more than the {self._rules.limit_bytes} bytes that edge.sources.limit allows.",
                param="source",
            )
        if size is not None and done > size:
            _start_over(file)
            raise _Broken

    @contextmanager
    def _opened(self, url: str, state: _State, done: int) -> Iterator[urllib3.BaseHTTPResponse]:
        """The response with the content, after any redirections; its body is at `done` when the status is 206."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "isthmus"}
        if done:
            headers |= {"Range": f"bytes={done}-"} | ({"If-Range": state.mark} if state.mark else {})
        for _ in range(_REDIRECTS + 1):
            response = self._pool.request("GET", url, headers=headers, preload_content=False, redirect=False)
            try:
                linked = _SHA256.fullmatch(response.headers.get("X-Linked-Etag", ""))
                state.sha256 = linked[1] if linked else state.sha256
                if response.status not in (301, 302, 303, 307, 308):
                    _require_content(response)
                    yield response
                    return
                target = urljoin(url, response.headers.get("Location", ""))
                if url.startswith("https:") and not target.startswith("https:"):
                    raise InvalidRequest("The server leads from https to another protocol.", param="source")
                check_url(target, self._rules)
                url = target
            finally:
                # Closed and not returned to the pool: what is left of a body would have to be read first.
                response.close()
        raise SourceUnavailable("The server redirects without an end.", param="source")


def _start_over(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _require_content(response: urllib3.BaseHTTPResponse) -> None:
    if response.status in (200, 206):
        return
    if response.status == 416:  # what is here does not fit what is there
        raise _Broken
    if response.status in (404, 410):
        raise NotFound("The server does not have that file.", param="source")
    if response.status in _TRANSIENT:
        stated = response.headers.get("Retry-After", "")
        raise _Broken(min(float(stated), _RETRY_AFTER_LIMIT_S) if stated.isdigit() else 0.0)
    raise SourceUnavailable(f"The server answered with status {response.status}.", param="source")


def _range_of(headers: Mapping[str, str]) -> tuple[int, int]:
    """First byte and size of the whole, from Content-Range."""
    found = _RANGE.fullmatch(headers.get("Content-Range", ""))
    if found is None:
        raise _Broken
    return int(found[1]), int(found[3])


def _mark_of(headers: Mapping[str, str]) -> str:
    """What `If-Range` may carry: a strong ETag, else the date of change."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified", "")


def _known(state_path: Path, remote: RemoteFile, partial: Path) -> _State:
    """The state of an earlier attempt for the same address; else a fresh one, without its bytes."""
    try:
        value = orjson.loads(state_path.read_bytes())
        state = _State(
            url=str(value["url"]), mark=str(value["mark"]), size_bytes=value["size_bytes"], sha256=value["sha256"]
        )
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        state = None
    if state is None or state.url != _identity(remote.url):
        discard(partial)
        return _State(_identity(remote.url))
    return state


def _identity(url: str) -> str:
    """The address as it may lie on the disk: a query can carry a key."""
    return hashlib.sha256(url.encode()).hexdigest()


def _checked(remote: RemoteFile, state: _State, partial: Path, state_path: Path, progress: ProgressListener) -> Fetched:
    """Hash the whole file; drop it when it is not what it has to be."""
    size_bytes = partial.stat().st_size
    digest, done = hashlib.sha256(), 0
    with partial.open("rb") as file:
        head = file.read(len(remote.magic))
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress(Progress(Step.VERIFY, done, size_bytes))
    found = digest.hexdigest()
    if head != remote.magic:
        discard(partial)
        raise ModelCorrupt(f"{remote.shown} is no GGUF file.", param="source")
    for expected, who in ((remote.sha256, "what was pinned"), (state.sha256, "what the server states")):
        if expected is not None and found != expected:
            discard(partial)
            raise DigestMismatch(f"{remote.shown} does not hash to {who}.", param="digest")
    return Fetched(partial, size_bytes, found)


def discard(partial: Path) -> None:
    """Remove a partial file and what is known of it."""
    partial.unlink(missing_ok=True)
    partial.with_suffix(".json").unlink(missing_ok=True)
