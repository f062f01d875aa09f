"""Listener and client over TLS and mutual TLS with real certificates, and their renewal without a restart."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from shared.errors import SettingsError
from shared.http.tls import ClientTls, ListenerTls, TlsFiles
from shared.testing.certificates import Authority, Pair

Serve = Callable[[ListenerTls], Awaitable[str]]


def listener_of(pair: Pair, ca: Path | None = None) -> ListenerTls:
    return ListenerTls(TlsFiles(pair.cert, pair.key, ca), setting="router.tls")


def client_of(ca: Path, pair: Pair | None = None) -> ClientTls:
    return ClientTls(TlsFiles(pair and pair.cert, pair and pair.key, ca), setting="router.backend_tls")


async def asked(url: str, tls: ClientTls) -> int:
    connector = aiohttp.TCPConnector(ssl=tls.context, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as response:
        return int(response.status)


async def serial(url: str, ca: Path) -> int:
    """Serial number of the certificate that is shown now."""
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=client_of(ca).context)
    shown = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    return int(shown["serialNumber"], 16)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(tls: ListenerTls) -> str:
        async def hello(_: web.Request) -> web.Response:
            return web.Response(text="hello")

        app = web.Application()
        app.router.add_get("/", hello)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls.context).start()
        return f"https://127.0.0.1:{runner.addresses[0][1]}/"

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_only_who_trusts_the_authority_connects(serve: Serve, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    url = await serve(listener_of(ours.pair("server")))
    assert await asked(url, client_of(ours.ca)) == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await asked(url, client_of(theirs.ca))


async def test_mutual_tls_lets_nobody_in_without_a_certificate_by_the_authority(serve: Serve, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    url = await serve(listener_of(ours.pair("server"), ours.ca))
    assert await asked(url, client_of(ours.ca, ours.pair("client"))) == 200
    for stranger in (None, theirs.pair("stranger")):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await asked(url, client_of(ours.ca, stranger))


async def test_a_renewed_certificate_is_shown_to_the_next_connection(serve: Serve, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    tls = listener_of(ours.pair("server"))
    url = await serve(tls)
    before = await serial(url, ours.ca)
    tls.following.look()
    assert await serial(url, ours.ca) == before
    ours.pair("server")
    tls.following.look()
    after = await serial(url, ours.ca)
    assert after != before
    (tmp_path / "server.pem").write_text("half a certif")
    tls.following.look()
    assert await serial(url, ours.ca) == after, "the last good one stays"


async def test_an_authority_that_is_replaced_is_trusted_no_more(serve: Serve, tmp_path: Path) -> None:
    ours, old, new = (Authority(tmp_path, name) for name in ("ours", "old", "new"))
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(old.ca.read_bytes())
    tls = listener_of(ours.pair("server"), trusted)
    url = await serve(tls)
    former, current = client_of(ours.ca, old.pair("former")), client_of(ours.ca, new.pair("current"))
    assert await asked(url, former) == 200
    trusted.write_bytes(new.ca.read_bytes() + b"\n")
    tls.following.look()
    assert await asked(url, current) == 200
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await asked(url, former)


async def test_a_client_takes_over_its_new_certificate(serve: Serve, tmp_path: Path) -> None:
    ours, old, new = (Authority(tmp_path, name) for name in ("ours", "old", "new"))
    url = await serve(listener_of(ours.pair("server"), new.ca))
    tls = client_of(ours.ca, old.pair("client"))
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await asked(url, tls)
    new.pair("client")
    tls.following.look()
    assert await asked(url, tls) == 200


@pytest.mark.parametrize("fault", ["no file", "no certificate", "another key"])
def test_files_that_do_not_work_stop_the_start_and_name_the_setting(tmp_path: Path, fault: str) -> None:
    ours = Authority(tmp_path, "ours")
    pair, other = ours.pair("server"), ours.pair("other")
    if fault == "no file":
        pair.cert.unlink()
    elif fault == "no certificate":
        pair.cert.write_text("nothing")
    else:
        pair.key.write_bytes(other.key.read_bytes())
    with pytest.raises(SettingsError) as refused:
        listener_of(pair)
    assert refused.value.param == "router.tls"
