"""Keeps what a user says about a request's class. It is written down and changes nothing by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from router.audit.chain import record_of
from router.audit.files import find_line
from router.audit.log import AuditLog
from router.http.access import Doorkeeper
from shared.clock import Clock
from shared.errors import InvalidRequest, NotFound
from shared.http.intake import read_object
from shared.keys import ApiKey, Scope
from shared.privacy import PrivacyClass

_LIMIT_BYTES = 4_096
_SETTLE_S = 0.2
"""A record is on the disk this long after its request at the latest, while the storage works."""
_CLASSES = (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL, PrivacyClass.SECRET)


class Feedback:
    """Handler of POST /router/v1/feedback: `{"decision_id": …, "class": "public" | "personal" | "secret"}`."""

    def __init__(self, doorkeeper: Doorkeeper, audit: AuditLog, folder: Path, clock: Clock) -> None:
        self._doorkeeper = doorkeeper
        self._audit = audit
        self._folder = folder
        self._clock = clock
        self._searching = asyncio.Lock()

    async def handle(self, request: web.Request) -> web.Response:
        key = self._doorkeeper.admit(request, Scope.INFERENCE)
        _, body = await read_object(request, limit_bytes=_LIMIT_BYTES)
        decision_id, said = _read(body)
        kept = await self.keep(decision_id, said, key)
        return web.Response(body=orjson.dumps(kept), content_type="application/json")

    async def keep(
        self, decision_id: str, said: PrivacyClass, key: ApiKey | None, *, of_any_key: bool = False
    ) -> dict[str, Any]:
        """Write down that a request should have been of class `said`; what was written.

        Raises:
            NotFound: the log holds no such request, or another key's. A key may speak of its own requests, and learns
                of others not even that they exist, unless `of_any_key` says that it may.
            InvalidRequest: it ended before it was classified.
        """
        record = await self._find(decision_id)
        name = key.name if key else None
        if record is None or not (of_any_key or record["key"] == name):
            raise NotFound("The log holds no such request of this key.", param="decision_id")
        if record["class_found"] is None:
            raise InvalidRequest("This request ended before it was classified.", param="decision_id")
        kept = {
            "kind": "feedback",
            "at": round(self._clock.unix_s(), 3),
            "about": record["decision_id"],
            "key": record["key"],
            "said_by": name,
            "class_said": said,
            "class_found": record["class_found"],
            "class_applied": record["class"],
            "kinds": sorted({entity["kind"] for entity in record["entities"]}),
        }
        self._audit.record(kept)
        return kept

    async def _find(self, decision_id: str) -> dict[str, Any] | None:
        """The record, looked for once more when it may not have been written yet. One search runs at a time."""
        async with self._searching:
            line = await asyncio.to_thread(find_line, self._folder, decision_id)
            if line is None:
                await self._clock.sleep(_SETTLE_S)
                line = await asyncio.to_thread(find_line, self._folder, decision_id)
        return None if line is None else record_of(line)


def _read(body: dict[str, Any]) -> tuple[str, PrivacyClass]:
    if body.keys() - {"decision_id", "class"}:  # whatever the others are called is the caller's own text
        raise InvalidRequest("There are the fields decision_id and class, and no others.")
    decision_id, said = body.get("decision_id"), body.get("class")
    if not isinstance(decision_id, str) or not 1 <= len(decision_id) <= 128:
        raise InvalidRequest("decision_id must be the id of a request.", param="decision_id")
    return decision_id, read_class(said)


def read_class(said: Any) -> PrivacyClass:
    """The class that a user may name. Raises InvalidRequest."""
    for each in _CLASSES:
        if said == each.value:
            return each
    raise InvalidRequest(f"class must be one of {', '.join(_CLASSES)}.", param="class")
