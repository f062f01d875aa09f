"""Answers what would happen to a request, and why, without sending it anywhere."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from router.audit.account import decision_facts
from router.http.access import Doorkeeper
from router.http.headers import read_asked
from router.http.judge import Classified, Judge
from router.policy.words import explain
from router.privacy.model import Classification
from router.privacy.placeholders import Placeholders
from router.privacy.sessions import Sessions
from shared.http.intake import read_object
from shared.keys import ApiKey, Scope
from shared.openai.facts import Endpoint
from shared.openai.validation import validate


class Explain:
    """Handler of POST /router/v1/explain."""

    def __init__(self, doorkeeper: Doorkeeper, judge: Judge, sessions: Sessions, *, body_limit_bytes: int) -> None:
        self._doorkeeper = doorkeeper
        self._judge = judge
        self._sessions = sessions
        self._limit = body_limit_bytes

    async def handle(self, request: web.Request) -> web.Response:
        key = self._doorkeeper.admit(request, Scope.INFERENCE)
        return web.Response(body=orjson.dumps(await self.explained(request, key)), content_type="application/json")

    async def explained(self, request: web.Request, key: ApiKey | None) -> dict[str, Any]:
        """The answer for a caller who was let in with `key`."""
        asked = read_asked(request)
        raw, body = await read_object(request, limit_bytes=self._limit)
        endpoint = _endpoint_of(body)
        validate(endpoint, body)
        found = await self._judge.classify(body, raw)
        pin = await self._sessions.pin_of(asked.session, key.name if key else None)
        effective = self._judge.effective(found, asked, key, pin=pin)
        judged = await self._judge.decide(Classified(endpoint, body, asked, key, found, effective), Placeholders())
        return {
            "endpoint": endpoint,
            "classification": _classification(found),
            "decision": decision_facts(judged.decision),
            "words": explain(judged.decision, found.privacy_class),
        }


def _endpoint_of(body: dict[str, Any]) -> Endpoint:
    """The route that a body of this shape is meant for."""
    if "messages" in body:
        return Endpoint.MESSAGES if "system" in body or "stop_sequences" in body else Endpoint.CHAT
    if "input" in body:
        has_more = {"instructions", "max_output_tokens", "text"} & body.keys()
        is_turns = isinstance(body["input"], list) and any(isinstance(each, dict) for each in body["input"])
        return Endpoint.RESPONSES if has_more or is_turns else Endpoint.EMBEDDINGS
    return Endpoint.COMPLETIONS if "prompt" in body else Endpoint.CHAT


def _classification(found: Classification) -> dict[str, Any]:
    return {
        "class": found.privacy_class,
        "complete": found.complete,
        "cause": found.cause,
        "entities": [
            {"kind": e.kind, "position": e.position, "start": e.start, "end": e.end, "score": e.score}
            for e in found.entities
        ],
    }
