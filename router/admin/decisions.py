"""Finds decisions again: the newest in memory, older ones in the audit log, each with its whole explanation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from router.audit.chain import record_of
from router.audit.files import find_line, find_policy, newest_records
from router.audit.query import Wanted, class_found, row_of, select
from router.audit.replay import replay
from router.policy.model import Policy
from router.policy.words import explain
from router.policy.written import written_down
from shared.errors import InvalidRequest, NotFound

KEPT = 500
_SEARCHED = 20_000
"""Records of the log that one question goes through."""


class Decisions:
    """The last `KEPT` records of requests, and the log below `folder` behind them."""

    def __init__(self, folder: Path, policy: Callable[[], Policy], *, alone: bool = True) -> None:
        """Unless it is `alone`, other processes write the log too: what is newest stands there, and not in memory."""
        self._alone = alone
        self._folder = folder
        self._policy = policy
        self._kept: deque[Mapping[str, Any]] = deque(maxlen=KEPT)
        self._searching = asyncio.Lock()

    def take(self, record: Mapping[str, Any]) -> None:
        """Keep the record of one request."""
        self._kept.append(record)

    async def rows(self, wanted: Wanted, reason: str | None, limit: int) -> list[dict[str, Any]]:
        """The newest requests that are wanted, at most `limit`, newest first."""

        def fits(record: Mapping[str, Any]) -> bool:
            return wanted.accepts(record) and (
                reason is None or (record.get("decision") or {}).get("reason") == reason or record.get("code") == reason
            )

        found = [record for record in reversed(self._kept) if fits(record)][:limit]
        if len(found) < limit or not self._alone:
            known = {record["decision_id"] for record in self._kept}
            async with self._searching:
                older = await asyncio.to_thread(self._older, wanted)
            found += [record for record in older if record["decision_id"] not in known and fits(record)]
        if not self._alone:
            found.sort(key=lambda record: float(record["at"]), reverse=True)
        return [row_of(record) for record in found[:limit]]

    async def one(self, decision_id: str) -> dict[str, Any]:
        """The whole record, what it means in sentences, and whether deciding again comes to the same.

        Raises:
            NotFound: the log holds no such request.
        """
        record = next((each for each in reversed(self._kept) if each["decision_id"] == decision_id), None)
        if record is None:
            async with self._searching:
                line = await asyncio.to_thread(find_line, self._folder, decision_id)
            record = None if line is None else record_of(line)
            if record is None:
                raise NotFound("The log holds no such request.", param="decision_id")
        # What stands in memory still holds members of enums: from here on it is as the log has it.
        plain: dict[str, Any] = orjson.loads(orjson.dumps(record))
        return {"record": plain, **await self._again(plain)}

    async def _again(self, record: dict[str, Any]) -> dict[str, Any]:
        digest = (record.get("decision") or {}).get("policy")
        if digest is None:
            return {"words": [], "same": None}
        policy = self._policy()
        written = written_down(policy) if policy.digest == digest else None
        if written is None:
            async with self._searching:
                written = await asyncio.to_thread(find_policy, self._folder, digest)
        try:
            again = replay(record, written or {})
        except InvalidRequest:  # the policy is gone from the log, or the record is of an older version
            return {"words": [], "same": None}
        return {"words": list(explain(again.decision, class_found(record))), "same": not again.differences}

    def _older(self, wanted: Wanted) -> list[dict[str, Any]]:
        return list(select(islice(newest_records(self._folder), _SEARCHED), wanted, None))
