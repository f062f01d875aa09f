"""Asks a running cloud tier for its capacity, for people and scripts."""

from __future__ import annotations

import asyncio

import aiohttp
import orjson
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Table

from shared.errors import BackendError, BackendUnreachable
from shared.fleet import BackendState, CloudCapacity

_TIMEOUT_S = 5.0
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
    return asyncio.run(_fetch(f"http://{f'[{host}]' if ':' in host else host}:{port}/ops/capacity"))


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


def touch(host: str, port: int, model: str) -> None:
    """One token from `model`, so that it and its adapter are loaded.

    Raises:
        BackendUnreachable: nothing listens there.
        BackendError: it refused; the cause is that of the tier.
    """
    asyncio.run(_touch(f"http://{f'[{host}]' if ':' in host else host}:{port}/v1/completions", model))


async def _touch(url: str, model: str) -> None:
    body = {"model": model, "prompt": "a", "max_tokens": 1}
    try:
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
            answer = orjson.loads(await response.read())
    except (aiohttp.ClientConnectionError, TimeoutError):
        raise BackendUnreachable(f"No cloud tier answers at {url}.") from None
    except (aiohttp.ClientError, orjson.JSONDecodeError):
        raise BackendError(f"What answers at {url} is not a cloud tier.") from None
    if response.status != 200:
        error = answer.get("error") if isinstance(answer, dict) else None
        raise BackendError(str(error.get("message")) if isinstance(error, dict) else f"It answered {response.status}.")


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
