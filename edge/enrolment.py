"""Makes this device known to a router, remembers that, and decides where its agent reports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from edge.packages.durable import disk_errors
from edge.packages.signing_key import SigningKey
from edge.service.reporting import HttpReporter, Reporter, Signer, StoreReporter
from edge.settings import EdgeSettings, HttpUrl
from shared import enrolment
from shared.clock import Clock
from shared.enrolment import Join, Joined
from shared.errors import BackendUnreachable, IsthmusError, SettingsError
from shared.http.tls import ClientTls
from shared.local_keys import local_key
from shared.secret_files import secret_in
from shared.state.port import StateStore
from shared.state.settings import RedisSettings

_KEY_NAME = "device"
_ANSWER_LIMIT_S = 10.0
_ANSWER_BYTES = 64 << 10
_REPORT_TTL_S = 60.0
"""How long the store lists an agent that has fallen silent; routers stop using it long before."""


class Enrolment(BaseModel):
    """What `join` left behind: to whom this device reports, and under which names."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    router_url: HttpUrl
    backend_id: str
    device_id: str


def join(settings: EdgeSettings, router_url: str, token: str) -> Enrolment:
    """Join the router at `router_url` with `token`; a key is made where there is none.

    Raises:
        SettingsError: key, certificates or result cannot be read or written, or the address is none.
        BackendUnreachable: no router answers there.
        IsthmusError: the router refuses, for the reason given.
    """
    folder = settings.enrolment_dir
    key = device_key(folder) or _made_key(folder)
    public = key.public.public_bytes_raw()
    backend_id = settings.fleet_id()
    try:
        body = Join(
            token=token,
            backend_id=backend_id,
            public_key=enrolment.encoded(public),
            proof=enrolment.encoded(key.sign(enrolment.joining(token, backend_id))),
        )
    except ValidationError:
        raise SettingsError("This is no token of a router.", param="token") from None
    base_url = router_url.rstrip("/").removesuffix("/v1")
    joined = asyncio.run(_sent(base_url, body, _tls_to(base_url, settings)))
    try:
        result = Enrolment(router_url=base_url, backend_id=joined.backend_id, device_id=joined.device_id)
    except ValidationError:
        raise SettingsError(
            "The router's address must be one that begins with http:// or https://.", param="url"
        ) from None
    with disk_errors(folder, "the enrolment was not remembered"):
        (folder / "enrolment.json").write_bytes(orjson.dumps(result.model_dump(), option=orjson.OPT_INDENT_2))
    return result


def enrolment_in(folder: Path) -> Enrolment | None:
    """What an earlier `join` left in `folder`; None where there was none.

    Raises:
        SettingsError: it is there and cannot be read.
    """
    path = folder / "enrolment.json"
    try:
        return Enrolment.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        raise SettingsError(f"{path} cannot be read. Join the router again.", param="edge.device_dir") from None


def device_key(folder: Path) -> SigningKey | None:
    """The device's key; None before it joined.

    Raises:
        SettingsError: it is there, and cannot be read or can be read by others.
    """
    path = folder / f"{_KEY_NAME}.key"
    return SigningKey.read(path) if path.exists() else None


def signer_in(folder: Path) -> Signer | None:
    """What signs this device's reports; None before it joined.

    Raises:
        SettingsError: as `device_key`.
    """
    key = device_key(folder)
    if key is None:
        return None
    device_id = enrolment.device_id_of(key.public.public_bytes_raw())
    return lambda body: enrolment.signature_header(device_id, key.sign(enrolment.reporting(body)))


def reporter_of(settings: EdgeSettings, joined: Enrolment | None, clock: Clock) -> Reporter | None:
    """Where this agent reports: to a Redis, to a router that the settings name, to the one that it joined, or nowhere.

    Raises:
        SettingsError: a key or certificate cannot be read, or the client of Redis is not installed.
    """
    router = settings.router
    if router.redis is not None:
        return StoreReporter(_redis(router.redis, clock), sign=signer_in(settings.enrolment_dir))
    url = router_url_of(settings, joined)
    if url is None:
        return None
    given = secret_in(router.key_file, "edge.router.key_file")
    tls = _tls_to(url, settings)
    sign = signer_in(settings.enrolment_dir)
    return HttpReporter(url, key=lambda: given or local_key(url, "agent"), sign=sign, tls=tls)


def router_url_of(settings: EdgeSettings, joined: Enrolment | None) -> str | None:
    """The router that is reported to over HTTP; None where there is none."""
    return settings.router.url or (joined.router_url if joined is not None else None)


def _tls_to(url: str, settings: EdgeSettings) -> ClientTls | None:
    """How the router at `url` is reached; None where that takes no certificates."""
    if not url.startswith("https://"):
        return None
    return ClientTls(settings.router.tls.files(), setting="edge.router.tls")


def _redis(settings: RedisSettings, clock: Clock) -> StateStore:
    try:
        # Most devices report over HTTP and have no client of Redis.
        from shared.state.link import RedisLink  # noqa: PLC0415
        from shared.state.redis import RedisStateStore  # noqa: PLC0415
    except ImportError:
        raise SettingsError(
            "Reporting to Redis needs its client: pip install 'isthmus[router]'.", param="edge.router.redis"
        ) from None
    link = RedisLink(settings.address("edge.router.redis"), clock, setting="edge.router.redis.url")
    return RedisStateStore(link, clock, ttl_s=_REPORT_TTL_S, fleet=settings.fleet)


def _made_key(folder: Path) -> SigningKey:
    key = SigningKey.generate()
    key.write(folder, _KEY_NAME)
    return key


async def _sent(base_url: str, body: Join, tls: ClientTls | None) -> Joined:
    timeout = aiohttp.ClientTimeout(total=_ANSWER_LIMIT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.post(
                base_url + enrolment.DEVICES_ROUTE,
                data=body.model_dump_json(),
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
                ssl=True if tls is None else tls.context,
            ) as response,
        ):
            status, raw = response.status, await response.content.read(_ANSWER_BYTES)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        raise BackendUnreachable(f"No router answers at {base_url}.") from None
    try:
        if status == 201:
            return Joined.model_validate_json(raw)
        why = str(orjson.loads(raw)["error"]["message"])[:300]
    except (ValidationError, orjson.JSONDecodeError, KeyError, TypeError):
        raise BackendUnreachable(f"What answers at {base_url} is no router of Isthmus.") from None
    raise IsthmusError(f"The router refuses: {why}")
