"""`isthmus cloud adapters load|unload` against a tier that answers as ours does: key, path, refusals, nobody there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import Result
from typer.testing import CliRunner

from cloud import status
from cloud.cli import app
from shared.errors import (
    AdapterRejected,
    BackendError,
    BackendUnreachable,
    Forbidden,
    InvalidRequest,
    IsthmusError,
    NotFound,
    NotReady,
    SettingsError,
    Unauthenticated,
)
from shared.openai.envelope import envelope_bytes

KEY = "isk-CANARY"


class Tier:
    """Answers with `error`, or that two replicas did it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None, str]] = []
        self.error: IsthmusError | None = None
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, request.headers.get("Authorization"), request.content_type))
        if self.error is not None:
            return web.Response(body=envelope_bytes(self.error), status=self.error.status)
        return web.json_response({"id": "m:tone", "replicas": 2})


@pytest.fixture
async def tier() -> AsyncIterator[Tier]:
    tier = Tier()
    application = web.Application()
    application.router.add_post("/{path:.*}", tier.handle)
    async with TestServer(application) as server:
        tier.url = str(server.make_url(""))
        yield tier


async def command(*words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["adapters", *words])


@pytest.mark.parametrize("action", ["load", "unload"])
async def test_it_asks_with_its_key_and_says_how_many_did_it(tier: Tier, tmp_path: Path, action: str) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    done = await command(action, "a/m:tone", "--url", tier.url, "--key-file", str(file))
    assert done.stdout == f"a/m:tone: {action}ed in 2 replicas\n"
    assert tier.asked == [(f"/cloud/v1/adapters/a/m:tone/{action}", f"Bearer {KEY}", "application/json")]


async def test_a_refusal_is_told_in_the_words_of_the_tier(tier: Tier) -> None:
    """LR-05: both numbers."""
    tier.error = AdapterRejected("The adapter has rank 64; at most rank 16 is allowed (adapters.rank_limit).")
    done = await command("load", "m:tone", "--url", tier.url)
    assert isinstance(done.exception, AdapterRejected)
    assert done.exception.message == tier.error.message
    assert tier.asked[0][1] is None


async def test_without_a_key_where_one_is_asked_for_it_says_which_option(tier: Tier) -> None:
    tier.error = Unauthenticated("A key is required.")
    done = await command("unload", "m:tone", "--url", tier.url)
    assert isinstance(done.exception, Unauthenticated)
    assert "--key-file" in done.exception.message


@pytest.mark.parametrize(
    ("told", "exit_code"),
    [
        (InvalidRequest("A file changed.", code="digest_mismatch"), 13),
        (InvalidRequest("Nobody vouches for it.", code="unsigned"), 19),
        (InvalidRequest("Nobody vouches for it.", code="untrusted"), 10),
        (InvalidRequest("It has rank 64.", code="rank_too_high"), 25),
        (InvalidRequest("It is for another model.", code="base_mismatch"), 25),
        (InvalidRequest("A field is wrong."), 2),
        (NotFound("There is none.", code="adapter_not_found"), 1),
        (Forbidden("This key may not."), 1),
        (NotReady("No replica runs."), 1),
        (BackendError("The model failed.", code="digest_mismatch"), 1),
    ],
    ids=lambda value: value.code if isinstance(value, IsthmusError) else None,
)
async def test_a_refusal_ends_the_command_as_one_of_this_process_does(
    tier: Tier, told: IsthmusError, exit_code: int
) -> None:
    """As the tier puts it: what is wrong with an adapter is 400 there, whatever its class (`cloud.rayllm`)."""
    tier.error = told
    done = await command("load", "m:tone", "--url", tier.url)
    assert isinstance(done.exception, IsthmusError)
    assert (done.exception.exit_code, done.exception.message) == (exit_code, told.message)
    assert done.exception.code == told.code


async def test_what_is_no_answer_of_a_tier_is_a_failure(tier: Tier) -> None:
    assert str(status._refusal(502, None)) == "It answered 502."
    assert status._refusal(404, {"detail": "Not Found"}).exit_code == 1


@pytest.mark.parametrize("name", ["tone", ":tone", "m:", ":", ""])
async def test_a_name_without_base_or_adapter_is_refused_before_anybody_is_asked(tier: Tier, name: str) -> None:
    done = await command("load", name, "--url", tier.url)
    assert isinstance(done.exception, IsthmusError)
    assert tier.asked == []


async def test_nobody_there_and_a_key_file_that_is_none(tmp_path: Path, free_port: Callable[[], int]) -> None:
    gone = await command("load", "m:tone", "--url", f"http://127.0.0.1:{free_port()}")
    assert isinstance(gone.exception, BackendUnreachable)
    (tmp_path / "key").write_text("two words")
    wrong = await command("load", "m:tone", "--key-file", str(tmp_path / "key"))
    assert isinstance(wrong.exception, SettingsError)
    assert "two words" not in wrong.exception.message
