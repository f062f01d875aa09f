"""What is served now: the engine's own facts, less what the model's chat template cannot express."""

from __future__ import annotations

from dataclasses import replace

from edge.runtime.port import Engine, EngineFacts
from edge.service.engine_client import EngineClient
from shared import logs
from shared.errors import IsthmusError, NotReady

_TOOLS = "tools"


class Served:
    """Follows the engine: `refresh` after each start, `facts` in between."""

    def __init__(self, engine: Engine, client: EngineClient) -> None:
        self._engine = engine
        self._client = client
        self._facts: EngineFacts | None = None
        self._log = logs.get("served")

    @property
    def facts(self) -> EngineFacts | None:
        """Facts of the engine that serves, or served last; None before the first start."""
        return self._facts

    def require(self) -> EngineFacts:
        """The facts of an engine that serves now.

        Raises:
            NotReady: it does not.
        """
        self._engine.connection()
        if self._facts is None:
            raise NotReady("The engine is starting.")
        return self._facts

    async def refresh(self) -> EngineFacts | None:
        """Ask the engine that has just started; when it does not say, tools are left out."""
        facts = self._engine.status.facts
        if facts is None:
            return None
        if _TOOLS in facts.features and not await self._template_has_tools():
            # Such a template drops the tools without a word: the model never sees them.
            facts = replace(facts, features=facts.features - {_TOOLS})
        self._facts = facts
        return facts

    async def _template_has_tools(self) -> bool:
        try:
            return await self._client.supports_tools()
        except IsthmusError as error:
            self._log.warning("template_unknown", code=error.code)
            return False
