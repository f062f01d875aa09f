"""Holds a request to the limits of its key, and says in OpenAI's headers how the key stands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from router.audit.account import Account
from router.http.measure import text_bytes
from router.limits.port import Bound, Demand, Limiter, Standing
from shared.errors import InvalidRequest, RateLimited
from shared.keys import ApiKey, KeyLimits
from shared.openai.facts import Endpoint, facts_of

_HOLDER_CHARS = 16
_WORDS = {
    Bound.REQUESTS: "This key has made as many requests within a minute as it may.",
    Bound.TOKENS: "This key has taken as many tokens within a minute as it may.",
    Bound.CONCURRENT: "This key has as many requests running as it may.",
}


class Quota:
    """Asks the limiter before a request is served, and tells it at the end what was used."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._settling: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def admitted(
        self, key: ApiKey, endpoint: Endpoint, body: dict[str, Any], account: Account
    ) -> AsyncIterator[None]:
        """Serve within the block what comes with a key that has limits.

        Raises:
            RateLimited: a limit of the key is reached; `retry_after_s` says when it no longer is.
            InvalidRequest: this request alone is over the tokens of a minute, and always will be.
        """
        facts = facts_of(endpoint, body, text_bytes=text_bytes(body))
        prompt_tokens = facts.prompt_tokens_estimate
        tokens = prompt_tokens + (facts.max_tokens or 0) * (body.get("n") or 1)
        _refuse_too_large(tokens, key.limits)
        demand = Demand(key.sha256[:_HOLDER_CHARS], key.limits, tokens, account.decision_id)
        standing = await self._limiter.take(demand)
        account.limit_headers = limit_headers(key.limits, standing)
        if standing.refused is not None:
            raise RateLimited(_WORDS[standing.refused], retry_after_s=max(1, -(-standing.retry_ms // 1000)))
        try:
            yield
        finally:
            await self._settled(demand, standing, _used(account, prompt_tokens))

    async def close(self) -> None:
        """Wait for what is being given back."""
        if self._settling:
            await asyncio.wait(self._settling)

    async def _settled(self, demand: Demand, standing: Standing, tokens: int) -> None:
        """Give back, to the end even if the caller has left; the next request of the client finds it done."""
        task = asyncio.create_task(self._limiter.settle(demand, standing, tokens))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        await asyncio.shield(task)


def limit_headers(limits: KeyLimits, standing: Standing) -> dict[str, str]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, for what is limited."""
    rows = (
        ("requests", limits.requests_per_minute, standing.used_requests, standing.reset_requests_ms),
        ("tokens", limits.tokens_per_minute, standing.used_tokens, standing.reset_tokens_ms),
    )
    headers = {}
    for name, limit, used, reset_ms in rows:
        if limit is not None:
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, limit - used))
            headers[f"x-ratelimit-reset-{name}"] = f"{max(0, reset_ms) / 1000:.3f}s"
    return headers


def _used(account: Account, prompt_tokens: int) -> int:
    """What the request took: nothing if no backend was asked; else its prompt and what was generated."""
    if not account.attempts:
        return 0
    return prompt_tokens + sum(attempt.completion_tokens or 0 for attempt in account.attempts)


def _refuse_too_large(tokens: int, limits: KeyLimits) -> None:
    if limits.tokens_per_minute is not None and tokens > limits.tokens_per_minute:
        raise InvalidRequest(
            f"This request may take {tokens} tokens; its key may take {limits.tokens_per_minute} in a minute.",
            param="max_tokens",
            code="tokens_over_limit",
        )
