"""A web server on loopback with one file or several, that can break off, forget ranges, lie and redirect."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass
class FileServer:
    """`cuts` holds after how many bytes each of the next answers breaks off; `requests` what was asked."""

    content: bytes = b""
    files: dict[str, bytes] | None = None
    """Content by path, for a server of several files; another path is not found."""
    etag: str | None = '"one"'
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    stated_length: int | None = None
    without_length: bool = False
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    stall_at: int | None = None
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ranges_asked(self) -> list[str | None]:
        return [headers.get("Range") for _, headers in self.requests]


def handler_of(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.requests.append((self.path, dict(self.headers)))
            self.close_connection = True
            if self.path in server.redirects:
                self.send_response(302)
                self.send_header("Location", server.redirects[self.path])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if server.statuses:
                self.send_response(server.statuses.pop(0))
                self.send_header("Retry-After", "7")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = server.content if server.files is None else server.files.get(self.path.partition("?")[0])
            if content is None:
                self.send_error(404)
                return
            self._content(content, self._first())

        def _first(self) -> int:
            asked = _RANGE.fullmatch(self.headers.get("Range", ""))
            condition = self.headers.get("If-Range")
            if asked is None or not server.ranges or (condition is not None and condition != server.etag):
                return 0
            return int(asked[1])

        def _content(self, content: bytes, first: int) -> None:
            size = len(content)
            if first >= size > 0 and first:
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = content[first:]
            self.send_response(206 if first else 200)
            if first:
                self.send_header("Content-Range", f"bytes {first}-{size - 1}/{size}")
            if server.etag is not None:
                self.send_header("ETag", server.etag)
            for name, value in server.headers.items():
                self.send_header(name, value)
            if not server.without_length:
                self.send_header("Content-Length", str(server.stated_length or len(body)))
            self.end_headers()
            cut = server.cuts.pop(0) if server.cuts else len(body)
            if server.stall_at is not None:
                self.wfile.write(body[: server.stall_at])
                self.wfile.flush()
                server.stall_at = None
                server.stalled.set()
                server.go_on.wait(60)
                return
            self.wfile.write(body[:cut])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

        def handle(self) -> None:
            with suppress(ConnectionError):  # a client that was killed or has refused
                super().handle()

    return Handler


@contextmanager
def serving(server: FileServer) -> Iterator[FileServer]:
    """Serve on a free port for the block."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(server))
    server.port = http.server_address[1]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        http.shutdown()
        http.server_close()
        thread.join()
