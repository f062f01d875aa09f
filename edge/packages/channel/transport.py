"""Reads the files of a channel: over HTTP(S), continuing what breaks off, or from a folder such as a USB stick."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import urllib3
from tuf.api.exceptions import DownloadError, DownloadHTTPError
from tuf.ngclient import FetcherInterface

from shared.errors import InvalidRequest

_CHUNK_BYTES = 64 << 10
"""What is lost at most, and read again, when a connection breaks."""
_TIMEOUT = urllib3.Timeout(connect=10.0, read=30.0)
_ATTEMPTS = 5
_PAUSE_S = 0.5
_REDIRECTS = 3


class Transport(FetcherInterface):
    """Fetches one URL after another. What it brings is trusted no further than TUF and the manifest say."""

    def __init__(self, pause_s: float = _PAUSE_S) -> None:
        self._pool = urllib3.PoolManager(
            timeout=_TIMEOUT, retries=urllib3.Retry(total=_REDIRECTS, connect=2, read=0, redirect=_REDIRECTS)
        )
        self._pause_s = pause_s

    def _fetch(self, url: str) -> Iterator[bytes]:
        """The bytes of `url`.

        Raises:
            DownloadHTTPError: the server does not have it.
            DownloadError: it could not be read to its end.
        """
        return self._file(url) if url.startswith("file:") else self._http(url)

    def _file(self, url: str) -> Iterator[bytes]:
        try:
            with Path(unquote(urlsplit(url).path)).open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
        except FileNotFoundError:
            raise DownloadHTTPError("The channel does not have it.", 404) from None
        except OSError as error:
            raise DownloadError(error.strerror or "It cannot be read.") from None

    def _http(self, url: str) -> Iterator[bytes]:
        done, etag = 0, ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(self._pause_s * 2**attempt)
            try:
                response = self._opened(url, done, etag)
                etag = response.headers.get("ETag", "")
                try:
                    for chunk in response.stream(_CHUNK_BYTES):
                        done += len(chunk)
                        yield chunk
                    return
                finally:
                    response.release_conn()
            except urllib3.exceptions.HTTPError:  # broken off: the next attempt continues from there
                if not done and attempt:
                    break
        raise DownloadError("There is no connection, or it breaks off again and again.")

    def _opened(self, url: str, done: int, etag: str) -> urllib3.BaseHTTPResponse:
        """A response whose body goes on after the first `done` bytes."""
        headers = {"Accept-Encoding": "identity"}
        if done:
            headers |= {"Range": f"bytes={done}-"} | ({"If-Range": etag} if etag.startswith('"') else {})
        response = self._pool.request("GET", url, headers=headers, preload_content=False)
        if response.status == (206 if done else 200):
            return response
        if done and response.status == 200:  # the server starts over
            _skip(response, done)
            return response
        response.release_conn()
        raise DownloadHTTPError(f"The server answered {response.status}.", response.status)


def _skip(response: urllib3.BaseHTTPResponse, size_bytes: int) -> None:
    while size_bytes:
        chunk = response.read(min(_CHUNK_BYTES, size_bytes))
        if not chunk:
            raise DownloadError("The server's file became shorter.")
        size_bytes -= len(chunk)


def base_url_of(channel: str) -> str:
    """The URL of a channel as it was typed: an http(s) URL, or the path of a folder.

    Raises:
        InvalidRequest: it is neither.
    """
    if channel.startswith(("http://", "https://", "file:///")):
        if urlsplit(channel).query or "@" in urlsplit(channel).netloc:
            raise InvalidRequest("A channel's URL has no query and no user name.", param="source")
        return channel.rstrip("/")
    folder = Path(channel).expanduser().absolute()
    if not folder.is_dir():
        raise InvalidRequest("A channel is an http(s) URL or a folder.", param="source")
    return folder.as_uri()
