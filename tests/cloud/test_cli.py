"""The cloud commands at their edges: nothing running, something else running, and tables for people."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from cloud import status
from cloud.cli import app
from shared.errors import BackendError, BackendUnreachable
from shared.fleet import BackendState, CloudCapacity


def test_status_without_a_cloud_tier_says_where_it_looked(free_port: Callable[[], int]) -> None:
    port = free_port()
    with pytest.raises(BackendUnreachable, match=f":{port}/ops/capacity"):
        status.fetch("127.0.0.1", port)


async def test_status_of_another_program_is_not_mistaken() -> None:
    async def other(_: web.Request) -> web.Response:
        return web.json_response({"models": "none"})

    application = web.Application()
    application.router.add_get("/ops/capacity", other)
    async with TestServer(application) as server:
        with pytest.raises(BackendError, match="not a cloud tier"):
            await status._fetch(str(server.make_url("/ops/capacity")))


def test_table_shows_a_dash_where_nothing_is_known() -> None:
    busy = CloudCapacity(
        model_id="busy",
        state=BackendState.READY,
        replicas_ready=1,
        replicas_target=2,
        running=3,
        waiting=0,
        kv_cache_use_ratio=0.5,
        context_tokens=4096,
    )
    asleep = CloudCapacity(model_id="asleep", state=BackendState.SCALED_TO_ZERO)
    lines = status.as_table((busy, asleep)).splitlines()
    assert lines[1].split() == ["busy", "ready", "1/2", "3", "0", "50%", "-", "-", "4096"]
    assert lines[2].split() == ["asleep", "scaled_to_zero", "0/0", "-", "-", "-", "-", "-", "-"]
    assert not status.are_ready((busy, asleep))
    assert status.are_ready((busy,))
    assert not status.are_ready(())


def test_help_needs_neither_ray_nor_vllm() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in ("serve", "status", "checkpoint", "render", "plan"):
        assert command in result.stdout
