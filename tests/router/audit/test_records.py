"""One record of each request whatever its end, and never a word of it anywhere."""

from __future__ import annotations

import asyncio
import io

import orjson
import pytest

from router.audit.verification import verify
from shared import logs
from shared.testing import answers
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, StartRouter

CANARY = "CANARY-7f3a"


async def test_every_end_leaves_one_record(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    """LG-03: denials, limits, departures, failover and faults, each exactly once, with all attempts."""
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}],
        limits={"body_bytes": 4096},
        policy={"actions": {"public": "any", "personal": "edge_only", "secret": "block", "unknown": "block"}},
    )
    await router.report(edge)
    ends: list[tuple[str, int | None, int]] = []  # outcome, status, attempts

    async def ask(expected: tuple[str, int | None, int], text: str = "hi", **more: object) -> None:
        async with router.ask(text, **more) as response:  # type: ignore[arg-type]
            await response.read()
        ends.append(expected)

    await ask(("ok", 200, 1))
    await ask(("client_error", 413, 0), "x" * 5000)
    await ask(("client_error", 403, 0), headers={"x-isthmus-privacy": "secret"})
    edge.script(
        answers.failure(429, "busy", {"Retry-After": "1"}),
    )
    await ask(("ok", 200, 2))
    await asyncio.sleep(0)
    cloud.script(answers.failure(500))
    await ask(("backend_error", 502, 1), headers={"x-isthmus-route": "cloud"})
    cloud.script(answers.silence())
    leaver = asyncio.create_task(router.ask(headers={"x-isthmus-route": "cloud"}).__aenter__())
    await cloud.wait_exchanges(3)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    ends.append(("client_left", None, 1))
    records = await router.records(len(ends))
    assert [(r["outcome"], r["status"], len(r["attempts"])) for r in records] == ends
    assert len({r["decision_id"] for r in records}) == len(ends)
    failover = records[3]
    assert [(a["backend"], a["outcome"]) for a in failover["attempts"]] == [
        ("edge-1", "rate_limited"),
        ("cloud-1", "ok"),
    ]
    assert failover["body"].startswith("hmac-sha256:") and failover["decision"]["policy"].startswith("sha256:")
    key = (router.audit_dir.parent / "audit.key").read_bytes()
    assert verify(router.audit_dir, key).fault is None


@pytest.mark.parametrize("cause", ["ok", "invalid", "500", "timeout", "refused", "leak", "unknown model", "left"])
async def test_the_prompt_and_the_key_appear_nowhere(start_router: StartRouter, edge: Upstream, cause: str) -> None:
    """LG-01: logs at debug level, audit, metrics and error answers hold neither the prompt nor the key."""
    sink = io.StringIO()
    logs.configure(level="debug", stream=sink)
    router = await start_router(timeouts={"answer_s": 0.2}, policy={"stale_after_ms": 60_000})
    await router.report(edge)
    leak = b'{"error":{"message":"bad prompt: %s"}}' % CANARY.encode()
    edge.script({
        "ok": answers.completion(),
        "500": answers.failure(500),
        "timeout": answers.silence(),
        "refused": answers.hang_up(),
        "leak": answers.Answer(status=400, headers=answers.JSON, writes=(answers.Write(leak),)),
        "left": answers.silence(),
    }.get(cause, answers.completion()))  # fmt: skip
    body = {"model": MODEL, "messages": [{"role": "user", "content": f"{CANARY} {PERSONAL_TEXT}"}]}
    if cause == "invalid":
        body["temperature"] = CANARY
    if cause == "unknown model":
        body["model"] = CANARY
    headers = {"Authorization": f"Bearer {CANARY}", "Cookie": CANARY}
    asked = asyncio.create_task(router.send(orjson.dumps(body), headers=headers).__aenter__())
    if cause == "left":
        await edge.wait_exchanges(1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    else:
        async with await asked as response:
            assert CANARY not in await response.text()
            assert CANARY not in str(response.headers)
    records = await router.records(1)
    async with router.session.get(f"{router.url}/metrics") as response:
        metrics = await response.text()
    for place in (sink.getvalue(), orjson.dumps(records).decode(), metrics):
        assert CANARY not in place and "4111 1111" not in place and "41111111" not in place


async def test_without_a_log_only_public_is_served(
    start_router: StartRouter, edge: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Audit storage failing: personal, secret and unknown fail closed."""
    router = await start_router()
    await router.report(edge)

    def full(handle: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr("router.audit.storage.os.fsync", full)
    async with router.ask() as response:
        assert response.status == 200
    async with asyncio.timeout(5):
        while True:
            async with router.ask(PERSONAL_TEXT) as response:
                if response.status == 503:
                    assert (await response.json())["error"]["code"] == "audit_unavailable"
                    break
    sent = len(edge.exchanges)
    async with router.ask(headers={"x-isthmus-privacy": "secret"}) as response:
        assert response.status == 503
    async with router.ask() as response:
        assert response.status == 200
    assert len(edge.exchanges) == sent + 1
