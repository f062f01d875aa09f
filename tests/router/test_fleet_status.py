"""`isthmus fleet status` against a running router: every column, once, live and as JSON."""

from __future__ import annotations

import asyncio
import io

import orjson
import pytest
from rich.console import Console

from router import fleet_console
from router.console import RouterClient
from shared.errors import IsthmusError
from shared.fleet import ServedModel, ThermalLevel
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter


def text_of(answer: dict[str, object]) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(fleet_console.shown(answer))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


async def filled(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> RunningRouter:
    models = [{"id": MODEL, "digest": "sha256:" + "b" * 64, "context_tokens": 8192}]
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url, "models": models}])
    served = ServedModel(model_id=MODEL, digest="sha256:" + "a" * 64, context_tokens=4096)
    assert await router.report(
        edge, level=ThermalLevel.HOT, temperature_c=86.0, derate_ratio=0.5, slots_total=2, slots_busy=1, queued=3,
        queue_limit=16, prefill_tokens_per_s=800.0, decode_tokens_per_s=42.0, models=(served,),
    ) == 204  # fmt: skip
    for _ in range(2):
        async with router.ask(PERSONAL_TEXT) as response:
            assert response.status == 200
    return router


async def test_the_table_says_what_the_fleet_does(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    router = await filled(start_router, edge, cloud)
    answer = await asyncio.to_thread(RouterClient(router.url, None).fleet)
    by_name = {each["backend_id"]: each for each in answer["backends"]}
    assert (by_name["edge-1"]["attempts_5min"], by_name["edge-1"]["share_ratio"]) == (2, 1.0)
    assert by_name["cloud-1"]["last_rejection"] == "privacy"
    assert answer["digest_mismatches"] == [{"model_id": MODEL, "backends": [["cloud-1"], ["edge-1"]]}]
    shown = text_of(answer)
    for words in ("hot 86°C", "0.50", "1/2", "3/16", "800", "42", "100%", "aaaaaaaa ≠", "not: privacy", "chosen: "):
        assert words in shown, words
    assert f"{MODEL}: not the same model everywhere: cloud-1 | edge-1" in shown


async def test_a_silent_device_and_an_open_breaker_show(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """FS-03: the gauge counts it too."""
    router = await start_router(policy={"stale_after_ms": 200})
    assert await router.report(edge) == 204
    await asyncio.sleep(0.3)
    answer = await asyncio.to_thread(RouterClient(router.url, None).fleet)
    assert answer["backends"][0]["stale"] is True
    assert "silent" in text_of(answer)
    async with router.session.get(f"{router.url}/metrics") as response:
        assert "isthmus_router_stale_backends 1.0" in await response.text()


async def test_json_is_the_answer_itself(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    router = await filled(start_router, edge, cloud)
    client = RouterClient(router.url, None)
    await asyncio.to_thread(fleet_console.status, client, watch_s=None, as_json=True)
    assert {each["backend_id"] for each in orjson.loads(capsys.readouterr().out.splitlines()[-1])["backends"]} == {
        "edge-1",
        "cloud-1",
    }


def test_watching_goes_on_while_the_router_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = {"backends": [], "digest_mismatches": [], "tokenizer_mismatches": []}
    looks: list[object] = [empty, IsthmusError("No router answers there."), empty]

    class Client:
        def fleet(self) -> object:
            found = looks.pop(0)
            if isinstance(found, IsthmusError):
                raise found
            return found

    def pause(_: float) -> None:
        if not looks:
            raise KeyboardInterrupt

    monkeypatch.setattr(fleet_console.time, "sleep", pause)
    with pytest.raises(KeyboardInterrupt):
        fleet_console.status(Client(), watch_s=1.0, as_json=False)  # type: ignore[arg-type]
    assert looks == []
    assert "No backend is known." in capsys.readouterr().out
