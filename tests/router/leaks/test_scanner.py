"""Canaries through a router whose scanner fails: what was not scanned wholly is unknown, and stays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from router.privacy.model import Classification
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass
from shared.testing.upstream import Upstream
from tests.router.conftest import StartRouter, eventually
from tests.router.leaks.canaries import assert_no_canary, canaries
from tests.router.leaks.watching import FOUND_CLASSES, MASKING, kept, send_all, watched


class _Scripted:
    """A scanner that does what a test says."""

    def __init__(self, scan: Callable[[Iterable[TextPosition], Callable[[], bool]], Any]) -> None:
        self._scan = scan

    def scan(self, texts: Iterable[TextPosition], *, expired: Callable[[], bool] | None = None) -> Classification:
        assert expired is not None
        return cast("Classification", self._scan(texts, expired))


def _raises(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Any:
    raise RuntimeError(next(iter(texts)).text)


_SCANNERS: dict[str, Callable[[Iterable[TextPosition], Callable[[], bool]], Any]] = {
    "raises": _raises,
    "answers nonsense": lambda texts, expired: {"class": "public"},
    "says public of a part": lambda texts, expired: Classification(PrivacyClass.PUBLIC, (), complete=False),
    "says public and truncated": lambda texts, expired: Classification(PrivacyClass.PUBLIC, (), True, "truncated"),
}


@pytest.mark.parametrize("fault", _SCANNERS)
@pytest.mark.parametrize("masking", [False, True])
async def test_pi_11_canaries_stay_when_the_scanner_fails(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, fault: str, masking: bool
) -> None:
    policy = {"actions": MASKING} if masking else {}
    scanner = _Scripted(_SCANNERS[fault])
    async with watched(start_router, edge, cloud, scanner=scanner, policy=policy) as router:
        await kept(router, cloud, canaries(step=8), classes={"unknown"}, statuses={200})


async def test_pi_11_canaries_stay_when_the_scan_runs_out_of_time(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, scanner: Scanner
) -> None:
    late = _Scripted(lambda texts, expired: scanner.scan(texts, expired=lambda: True))
    async with watched(start_router, edge, cloud, scanner=late) as router:
        await kept(router, cloud, canaries(step=4), classes={"unknown"}, statuses={200})


async def test_pi_11_canaries_stay_when_all_workers_are_taken(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, scanner: Scanner
) -> None:
    """Large bodies wait for a worker; those that find no room are unknown, those that are scanned are found."""
    blocked = threading.Event()

    def wait(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Classification:
        blocked.wait(20)
        return scanner.scan(texts)

    async with watched(
        start_router, edge, cloud, scanner=_Scripted(wait), scan={"workers": 1, "timeout_s": 20}
    ) as router:
        sent = canaries(pad=True, step=16)
        asked = asyncio.create_task(kept(router, cloud, sent, classes={*FOUND_CLASSES, "unknown"}, statuses={200}))
        await eventually(lambda: router.metric("isthmus_router_scanner_errors_total", cause="overflow") > 0)
        blocked.set()
        await asked


class _FailsNowAndThen:
    """The real scanner, of which every `each`-th scan fails."""

    def __init__(self, scanner: Scanner, each: int) -> None:
        self._scanner = scanner
        self._each = each
        self._seen = 0

    def scan(self, texts: Iterable[TextPosition], *, expired: Callable[[], bool] | None = None) -> Classification:
        self._seen += 1
        if self._seen % self._each == 0:
            raise RuntimeError
        return self._scanner.scan(texts, expired=expired)


@pytest.mark.parametrize("each", [2, 3])
async def test_pi_11_canaries_are_masked_or_stay_when_a_later_scan_fails(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, scanner: Scanner, each: int
) -> None:
    """A body is scanned to classify it, to mask it, and once masked: none of these may be left out."""
    sent = canaries(step=4)
    failing = _FailsNowAndThen(scanner, each)
    async with watched(start_router, edge, cloud, scanner=failing, policy={"actions": MASKING}) as router:
        seen = await send_all(router, sent)
    assert {status for status, _, _ in seen} == {200}
    assert "edge" in {tier for _, _, tier in seen}
    for exchange in cloud.exchanges:
        assert_no_canary(exchange, sent)
