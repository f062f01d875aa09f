"""Asks a running cloud tier for its capacity, and to load or unload an adapter, for people and scripts."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import aiohttp
import orjson
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Table

from cloud.guard import ADMIN_PREFIX
from shared.errors import (
    BackendError,
    BackendUnreachable,
    Forbidden,
    InvalidRequest,
    IsthmusError,
    NotFound,
    NotReady,
    Unauthenticated,
)
from shared.errors.package import refused_as
from shared.fleet import BackendState, CloudCapacity

_TIMEOUT_S = 5.0
_ADAPTER_LIMIT_S = 180.0
"""Replicas hash and read every byte of it first."""
_BY_STATUS: dict[int, type[IsthmusError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    503: NotReady,
}
_COLUMNS = ("model", "state", "replicas", "running", "waiting", "KV cache", "prefix hits", "tokens/s", "context")


class Capacities(BaseModel):
    """The body of `GET /ops/capacity`."""

    models: tuple[CloudCapacity, ...]


def fetch(host: str, port: int) -> tuple[CloudCapacity, ...]:
    """The capacity of every model.

    Raises:
        BackendUnreachable: nothing listens there.
        BackendError: what listens there is not the cloud tier.
    """
    return asyncio.run(_fetch(f"{base_url_of(host, port)}/ops/capacity"))


def base_url_of(host: str, port: int) -> str:
    """Where the tier that listens on `host` and `port` is asked from this machine."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _fetch(url: str) -> tuple[CloudCapacity, ...]:
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
            session.get(url) as response,
        ):
            return Capacities.model_validate_json(await response.read()).models
    except (aiohttp.ClientConnectionError, TimeoutError):
        raise BackendUnreachable(f"No cloud tier answers at {url}.") from None
    except (aiohttp.ClientError, ValidationError):
        raise BackendError(f"What answers at {url} is not a cloud tier.") from None


def act_on_adapter(base_url: str, name: str, action: str, key: str | None) -> int:
    """Have the tier at `base_url` load or unload the adapter `name` (base:adapter); in how many replicas it did.

    Raises:
        BackendUnreachable: nothing listens there.
        IsthmusError: it refused, in its words; of the class that a refusal with that code or status has here.
    """
    return asyncio.run(_act(f"{base_url.rstrip('/')}{ADMIN_PREFIX}adapters/{quote(name)}/{action}", key))


async def _act(url: str, key: str | None) -> int:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    limit = aiohttp.ClientTimeout(total=_ADAPTER_LIMIT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(url, data=b"{}", headers=headers) as response,
        ):
            answer = orjson.loads(await response.read())
    except (aiohttp.ClientConnectionError, TimeoutError):
        raise BackendUnreachable(f"No cloud tier answers at {url}.") from None
    except (aiohttp.ClientError, orjson.JSONDecodeError):
        raise BackendError(f"What answers at {url} is not a cloud tier.") from None
    if response.status != 200 or not isinstance(answer, dict):
        raise _refusal(response.status, answer)
    return int(answer.get("replicas", 0))


def _refusal(status: int, answer: object) -> IsthmusError:
    """The error in an answer of the tier."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return BackendError(f"It answered {status}.")
    told, code = str(error.get("message")), str(error.get("code"))
    if status == 401:
        told += " Give a key of scope admin with --key-file."
    kind = refused_as(code) if status < 500 else None
    return (kind or _BY_STATUS.get(status, BackendError))(told, code=code)


def are_ready(capacities: tuple[CloudCapacity, ...]) -> bool:
    """Whether every model takes requests now."""
    return bool(capacities) and all(capacity.state is BackendState.READY for capacity in capacities)


def as_json(capacities: tuple[CloudCapacity, ...]) -> str:
    """The capacities as one line of JSON."""
    return orjson.dumps({"models": [capacity.model_dump(mode="json") for capacity in capacities]}).decode()


def as_table(capacities: tuple[CloudCapacity, ...]) -> str:
    """The capacities as a table; a dash where nothing is known."""
    table = Table(*_COLUMNS, box=None)
    for c in capacities:
        used, hits = (None if r is None else f"{r:.0%}" for r in (c.kv_cache_use_ratio, c.prefix_hit_ratio))
        speed = None if c.output_tokens_per_s is None else f"{c.output_tokens_per_s:.0f}"
        replicas = f"{c.replicas_ready or 0}/{c.replicas_target or 0}"
        cells = (c.model_id, c.state.value, replicas, c.running, c.waiting, used, hits, speed, c.context_tokens)
        table.add_row(*("-" if cell is None else str(cell) for cell in cells))
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()
