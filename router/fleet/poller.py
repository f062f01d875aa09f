"""Asks clouds and static edges what they serve and how full they are, about once a second, never waking a replica."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import orjson
from pydantic import ValidationError

from shared import logs
from shared.clock import Clock
from shared.fleet import BackendState, CloudCapacity, ServedModel, Zone

_ANSWER_BYTES = 1024 * 1024
_SERVING = (BackendState.READY, BackendState.SCALED_TO_ZERO)
_MOST_FEATURES = 64
_MISSES = 3
"""Polls in a row that must fail to be answered before a backend counts as failed; a refused connection is enough."""


def new_session(*, connect_s: float, tls: ssl.SSLContext) -> aiohttp.ClientSession:
    """The session that backends are polled with. Redirects and proxies could ask somebody else: both are off."""
    # Idle connections are dropped before common servers drop them (uvicorn: 5 s).
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0, ttl_dns_cache=10, ssl=tls),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


@dataclass(frozen=True, slots=True)
class Polled:
    """A backend that is asked. `models` said by the operator win over what it answers."""

    backend_id: str
    zone: Zone
    url: str
    models: tuple[ServedModel, ...] = ()
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the last answers say."""

    state: BackendState = BackendState.STARTING
    models: tuple[ServedModel, ...] = ()
    slots_total: int | None = None
    slots_busy: int | None = None
    queued: int | None = None


class CapacityPoller:
    """Standing of each polled backend, kept up to date by `run`."""

    def __init__(
        self, session: aiohttp.ClientSession, polled: tuple[Polled, ...], clock: Clock, *, limit_s: float
    ) -> None:
        self.polled = polled
        self._session = session
        self._clock = clock
        self._limit = aiohttp.ClientTimeout(total=limit_s)
        self._log = logs.get("fleet")
        self._standing = {each.backend_id: Standing(models=each.models) for each in polled}
        self._misses = dict.fromkeys(self._standing, 0)
        self._on_change: Callable[[str], None] = lambda backend_id: None

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Tell `on_change` the id of each backend that stands otherwise than before."""
        self._on_change = on_change

    def standing(self, backend_id: str) -> Standing:
        return self._standing[backend_id]

    async def run(self, interval_s: float) -> None:
        """Ask for ever."""
        while True:
            await self.poll()
            await self._clock.sleep(interval_s)

    async def poll(self) -> None:
        """Ask every backend once, at the same time."""
        await asyncio.gather(*(self._ask(each) for each in self.polled))

    async def _ask(self, polled: Polled) -> None:
        before = self._standing[polled.backend_id]
        try:
            after = await self._capacity(polled) or await self._models(polled)
        except aiohttp.ClientConnectorError:
            after, self._misses[polled.backend_id] = None, _MISSES
        except (aiohttp.ClientError, TimeoutError, OSError):
            after = None
        if after is None:
            self._misses[polled.backend_id] += 1
            if self._misses[polled.backend_id] < _MISSES:
                return
            after = replace(before, state=BackendState.FAILED, slots_busy=None, queued=None)
        else:
            self._misses[polled.backend_id] = 0
            if polled.models:
                after = replace(after, models=polled.models)
        self._standing[polled.backend_id] = after
        if after != before:
            self._on_change(polled.backend_id)
        if after.state is not before.state:
            self._log.info("backend_state", backend=polled.backend_id, state=after.state, was=before.state)

    async def _capacity(self, polled: Polled) -> Standing | None:
        """The answer of a cloud's capacity route; None where there is none."""
        if polled.zone is not Zone.CLOUD:
            return None
        found = await self._get(polled, "/ops/capacity")
        listed = found.get("models") if found else None
        if not isinstance(listed, list):
            return None
        try:
            return _standing_of([CloudCapacity.model_validate(each) for each in listed])
        except ValidationError:
            return None

    async def _models(self, polled: Polled) -> Standing | None:
        """Ready with what the OpenAI model list names; load is not known."""
        found = await self._get(polled, "/v1/models")
        listed = found.get("data") if found else None
        if not isinstance(listed, list):
            return None
        served = [model for each in listed if (model := _listed_model(each)) is not None]
        return Standing(state=BackendState.READY if served else BackendState.STARTING, models=tuple(served))

    async def _get(self, polled: Polled, path: str) -> dict[str, Any] | None:
        headers = {} if polled.api_key is None else {"Authorization": f"Bearer {polled.api_key}"}
        url = polled.url.rstrip("/") + path
        async with self._session.get(url, headers=headers, timeout=self._limit, allow_redirects=False) as response:
            raw = await response.content.read(_ANSWER_BYTES)
            if response.status != 200:
                return None
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return None
        return value if isinstance(value, dict) else None


def _standing_of(models: list[CloudCapacity]) -> Standing:
    """One backend out of its models: those that serve, and their load together."""
    serving = [model for model in models if model.state in _SERVING]
    states = {model.state for model in models}
    order = (BackendState.READY, BackendState.SCALED_TO_ZERO, BackendState.STARTING, BackendState.DRAINING)
    return Standing(
        state=next((state for state in order if state in states), BackendState.FAILED),
        models=tuple(served for model in serving for served in _served(model)),
        slots_total=_sum([_slots(m) for m in serving]),
        slots_busy=_sum([m.running for m in serving]),
        queued=_sum([m.waiting for m in serving]),
    )


def _served(model: CloudCapacity) -> Iterator[ServedModel]:
    """The model, and each of its adapters under the name that requests use."""
    named = [(model.model_id, model.digest)]
    named += [(f"{model.model_id}:{adapter.name}", adapter.digest) for adapter in model.adapters]
    for name, digest in named:
        yield ServedModel(
            model_id=name,
            digest=digest,
            context_tokens=model.context_tokens,
            features=model.features,
            tokenizer=model.tokenizer,
        )


def _slots(model: CloudCapacity) -> int | None:
    if model.max_concurrency is None:
        return None
    return model.max_concurrency * max(1, model.replicas_ready or 0)


def _sum(figures: list[int | None]) -> int | None:
    """The sum, or None where a figure is missing: an unknown load is neither idle nor full."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == len(figures) else None


def _listed_model(each: Any) -> ServedModel | None:
    if not isinstance(each, dict):
        return None
    own = each.get("isthmus")
    extra: dict[str, Any] = own if isinstance(own, dict) else {}
    context = each.get("max_model_len") or extra.get("context_tokens")
    declared = each.get("features")
    features = declared if isinstance(declared, list) and len(declared) <= _MOST_FEATURES else ()
    try:
        return ServedModel(
            model_id=each.get("id"), digest=extra.get("digest"), context_tokens=context, features=features
        )
    except ValidationError:
        return None
