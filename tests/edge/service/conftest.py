"""A scripted engine and an agent over it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.edge.service.fakes import EngineServer, FakeEngine, engine_server
from tests.edge.service.harness import Running, running_agent


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EngineServer]:
    """The scripted engine's server."""
    async with engine_server(tmp_path) as server:
        yield server


@pytest.fixture
def engine(server: EngineServer) -> FakeEngine:
    """The port in front of it."""
    return FakeEngine(server)


@pytest.fixture
async def running(engine: FakeEngine) -> AsyncIterator[Running]:
    """An agent with one slot and a queue of 4, ready; what calibration asked for is forgotten."""
    async with running_agent(engine) as running:
        engine.server.exchanges.clear()
        engine.server.asked.clear()
        engine.server.most_open = 0
        yield running
