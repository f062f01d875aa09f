"""A publisher with keys and a clock, a web server that serves its folder, and devices that follow it."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edge.packages.channel.follow import Channel
from edge.packages.channel.offer import PublisherKeys
from edge.packages.channel.publish import ChannelState, publish
from edge.packages.channel.transport import Transport
from edge.packages.channel.trusted_time import TrustedTime
from edge.packages.library import Library
from edge.packages.package import Package
from edge.packages.signing_key import SigningKey
from edge.packages.store import PackageStore
from edge.packages.trust import NO_TRUST, Trust, TrustedKey
from shared.testing.models import write_gguf

START = datetime(2026, 6, 1, tzinfo=UTC)


class Server(http.server.SimpleHTTPRequestHandler):
    """A static server that ranges are foreign to, and that can cut answers short."""

    cut_at: int | None = None
    requests: list[tuple[str, str | None]] = []  # noqa: RUF012 - one list for all requests of a test

    def do_GET(self) -> None:
        """Serve; a long file is cut once where the test asks for it, and continued where the client asks for that."""
        type(self).requests.append((self.path, self.headers.get("Range")))
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content, status, start = path.read_bytes(), 200, 0
        if (asked := self.headers.get("Range")) is not None:
            start, status = int(asked.removeprefix("bytes=").removesuffix("-")), 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = type(self).cut_at
        if cut is not None and len(content) > cut and start == 0:
            type(self).cut_at = None
            self.wfile.write(content[:cut])
            self.wfile.flush()
            self.connection.close()
            return
        self.wfile.write(content[start:])

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@dataclass
class Publisher:
    """Makes releases and publishes them."""

    folder: Path
    channel: Path
    key: SigningKey = field(default_factory=SigningKey.generate)
    online: SigningKey | None = None
    now: datetime = START

    def __post_init__(self) -> None:
        self.library = Library(self.folder / "store")

    def release(self, sequence: int, name: str = "small") -> Package:
        """A new release, in the publisher's own store."""
        path = write_gguf(self.folder / f"{name}-{sequence}.gguf", numbers={"general.number": sequence})
        return self.library.import_path(path, name, sequence=sequence, signing_key=self.key)

    def publish(self, *packages: Package, new_key: SigningKey | None = None, offline: bool = True) -> ChannelState:
        """Publish and renew."""
        keys = PublisherKeys(online=self.online or self.key, offline=self.key if offline else None)
        folders = [package.folder for package in packages]
        return publish(self.channel, folders, keys, now=self.now, new_key=new_key)


@dataclass
class Device:
    """Follows one channel."""

    home: Path
    url: str
    trust: Trust = NO_TRUST
    now: datetime = START

    def channel(self) -> Channel:
        """The channel as this device knows it, at its own time."""
        time = TrustedTime(self.home / "trust", lambda: self.now)
        return Channel(self.url, self.home / "channels", self.trust, time, Transport(pause_s=0.0))

    def pull(self, name: str = "small") -> Package:
        """Install the latest release."""
        published = self.channel().latest(name)
        store = PackageStore(self.home / "models", self.trust)
        with store.installation(name) as installation:
            return installation.install_published(published)


def trusting(*keys: SigningKey) -> Trust:
    """Trust that requires one of `keys`."""
    return Trust("require", {key.key_id: TrustedKey(f"key-{n}", key.key_id, key.public) for n, key in enumerate(keys)})


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """A publisher that has published nothing."""
    (tmp_path / "publisher").mkdir()
    return Publisher(tmp_path / "publisher", tmp_path / "channel")


@pytest.fixture
def served(publisher: Publisher) -> Iterator[str]:
    """URL of the channel's folder."""
    publisher.channel.mkdir()
    Server.cut_at = None
    Server.requests = []
    handler = functools.partial(Server, directory=str(publisher.channel))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def device(served: str, publisher: Publisher, tmp_path: Path) -> Callable[..., Device]:
    """A function that makes a device, by default one that trusts the publisher's key."""
    count = iter(range(100))

    def make(*, trust: Trust | None = None, now: datetime = START + timedelta(hours=1)) -> Device:
        home = tmp_path / f"device-{next(count)}"
        home.mkdir()
        return Device(home, served, trust or trusting(publisher.key), now)

    return make
