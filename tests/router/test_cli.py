"""`isthmus router explain | fleet | audit` against a running router."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from router.cli import app
from shared.errors import BackendUnreachable, InvalidRequest, IsthmusError
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, StartRouter


async def run(*arguments: str) -> Any:
    return await asyncio.to_thread(CliRunner().invoke, app, list(arguments))


async def test_explain_tells_class_candidates_and_every_rejection(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    shown = await run("explain", PERSONAL_TEXT, "--url", router.url)
    assert shown.exit_code == 0
    for word in ("personal", "card", "edge-1", "cloud-1", "privacy does not let this request leave the edge"):
        assert word in shown.output
    assert "4111 1111" not in shown.output
    as_json = await run("explain", "hello", "--url", router.url, "--json", "--header", "x-isthmus-route=cloud")
    decision = orjson.loads(as_json.output)["decision"]
    assert [c["backend"] for c in decision["candidates"]] == ["cloud-1"]
    assert decision["rejected"] == [{"backend": "edge-1", "zone": "device", "reason": "route_override"}]
    assert not edge.exchanges and not cloud.inference_connections


async def test_fleet_shows_each_backend(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    assert "No backend" in (await run("fleet", "--url", router.url)).output
    await router.report(edge)
    as_json = await run("fleet", "--url", router.url, "--json")
    [backend] = orjson.loads(as_json.output)["backends"]
    assert backend["backend_id"] == "edge-1" and backend["state"] == "ready" and backend["tier"] == "edge"
    assert "edge-1" in (await run("fleet", "--url", router.url)).output
    await router.report(edge, temperature_c=71.6, seconds_to_throttle=12.2)
    assert "nominal 72°C, next in 12 s" in (await run("fleet", "--url", router.url)).output


async def test_devices_are_invited_listed_and_revoked(start_router: StartRouter) -> None:
    router = await start_router()
    at = ("--url", router.url)
    invited = await run("devices", "invite", *at)
    assert f"isthmus edge join {router.url} --token ist-" in invited.output
    assert "No device has joined" in (await run("devices", "list", *at)).output
    assert isinstance((await run("devices", "revoke", "0" * 32, *at)).exception, IsthmusError)
    assert (await run("devices", "invite", "--valid-s", "0", *at)).exit_code == 2


async def test_audit_shows_and_checks_the_log(start_router: StartRouter, edge: Upstream, tmp_path: Path) -> None:
    router = await start_router()
    await router.report(edge)
    for _ in range(3):
        async with router.ask() as response:
            await response.read()
    await router.records(3)
    config = tmp_path / "isthmus.yaml"
    key = router.audit_dir.parent / "audit.key"
    config.write_text(f"router: {{audit: {{dir: {router.audit_dir}, key_file: {key}}}}}\n")
    shown = await run("audit", "tail", "-n", "2", "--json", "--config", str(config))
    assert [orjson.loads(line)["seq"] for line in shown.output.splitlines()] == [3, 4]
    assert "ok" in (await run("audit", "tail", "--config", str(config))).output
    checked = await run("audit", "verify", "--config", str(config))
    assert checked.exit_code == 0 and "4 records" in checked.output
    [path] = router.audit_dir.glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"status":200', b'"status":500', 1))
    broken = await run("audit", "verify", "--config", str(config), "--json")
    assert "changed" in orjson.loads(broken.output)["fault"]


@pytest.mark.parametrize(
    "arguments,error",
    [(("fleet", "--url", "http://127.0.0.1:9"), BackendUnreachable),
     (("fleet", "--url", "file:///etc"), InvalidRequest),
     (("explain", "x", "--url", "http://127.0.0.1:9", "--header", "nonsense"), InvalidRequest)],
)  # fmt: skip
async def test_faults_are_typed(arguments: tuple[str, ...], error: type[Exception]) -> None:
    assert isinstance((await run(*arguments)).exception, error)
