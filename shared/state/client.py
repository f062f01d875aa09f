"""Makes the client of Redis for an address, with its certificates, and ends it with every connection it has."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from shared.errors import SettingsError
from shared.state.address import Layout, RedisPlace, RedisTls

AT_ONCE = 8
"""Commands under way at the same time, and so connections to one server."""

Client = Redis | RedisCluster
Hosts = tuple[tuple[str, int], ...]


def client_of(place: RedisPlace, limit_s: float, *, hosts: Hosts, turn: int) -> Client:
    """A client that retries nothing by itself: what got no answer may have been done. `hosts` are asked where the
    server is, beginning with another one at each `turn`: one that hangs, or knows only the past, holds up one turn."""
    options: dict[str, Any] = {
        "socket_timeout": limit_s,
        # Part of the limit, so that a host that swallows packets leaves time to ask the next one.
        "socket_connect_timeout": limit_s if place.layout is Layout.SINGLE else limit_s / 3,
        "retry": Retry(NoBackoff(), 0),
        "username": place.username,
        "password": place.password,
        "protocol": 2,
    }
    tls = _tls_options(place.tls)
    if place.layout is Layout.CLUSTER:  # it asks them in an order of its own
        nodes = [ClusterNode(host, port) for host, port in hosts]
        return RedisCluster(startup_nodes=nodes, max_connections=2 * AT_ONCE, **options, **tls)
    options["db"] = place.database
    if place.layout is Layout.SENTINEL:
        own = {
            # All of them may be asked within the limit.
            "socket_timeout": limit_s / len(hosts),
            "socket_connect_timeout": limit_s / len(hosts),
            "retry": options["retry"],
            "password": place.sentinel_password,
            "protocol": 2,
        }
        first = turn % len(hosts)
        sentinels = Sentinel(  # type: ignore[no-untyped-call]
            [*hosts[first:], *hosts[:first]], sentinel_kwargs={**own, **tls}, **options, **tls
        )
        client: Redis = sentinels.master_for(str(place.service))
        return client
    if place.unix_path is not None:
        return Redis(unix_socket_path=place.unix_path, **options)
    (host, port) = hosts[0]
    return Redis(host=host, port=port, **options, **tls)


def nodes_of(client: Client) -> Hosts:
    """The nodes that the client of a cluster knows of; none where there is no cluster."""
    if not isinstance(client, RedisCluster):
        return ()
    return tuple((str(node.host), int(node.port)) for node in client.get_nodes())


async def closed(client: Client) -> None:
    """End all its connections. One that cannot be closed is gone."""
    for end in _ends_of(client):
        with contextlib.suppress(RedisError, OSError):
            await end()


def _ends_of(client: Client) -> list[Callable[[], Awaitable[None]]]:
    if isinstance(client, RedisCluster):
        # One that was about to look for its nodes again says that it has none, and keeps their connections.
        nodes = client.nodes_manager
        return [client.aclose, nodes.aclose, lambda: nodes.aclose("startup_nodes")]
    pool = client.connection_pool
    sentinels = pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else ()
    return [client.aclose, pool.disconnect, *(sentinel.aclose for sentinel in sentinels)]


def stamp_of(tls: RedisTls | None) -> tuple[tuple[int, int], ...]:
    """What changes when a file of certificates is replaced."""
    found = []
    for path in _files_of(tls):
        try:
            status = path.stat()
        except OSError:
            found.append((0, 0))
        else:
            found.append((status.st_mtime_ns, status.st_ino))
    return tuple(found)


def check_certificates(tls: RedisTls | None) -> None:
    """Raises SettingsError: they cannot be used."""
    if tls is None:
        return
    try:
        context = ssl.create_default_context(cafile=tls.ca_file and str(tls.ca_file.expanduser()))
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file.expanduser(), tls.key_file and tls.key_file.expanduser())
    except (OSError, ssl.SSLError):
        raise SettingsError("The certificates for Redis cannot be used.", param="router.state.tls") from None


def _tls_options(tls: RedisTls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    files = {"ssl_ca_certs": tls.ca_file, "ssl_certfile": tls.cert_file, "ssl_keyfile": tls.key_file}
    named = {name: str(path.expanduser()) for name, path in files.items() if path is not None}
    return {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **named}


def _files_of(tls: RedisTls | None) -> list[Path]:
    named = () if tls is None else (tls.ca_file, tls.cert_file, tls.key_file)
    return [path.expanduser() for path in named if path is not None]
