"""What is served now: the engine's own facts, and what the model's chat template can express."""

from __future__ import annotations

from dataclasses import replace

from edge.runtime.port import ChatTemplate, Engine, EngineFacts
from edge.service.engine_client import EngineClient
from shared import logs
from shared.errors import IsthmusError, NotReady

_TOOLS = "tools"
_GRAMMARS = "structured_output"


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
        """Ask the engine that has just started. Tools need its own reading of calls, or a grammar for our own."""
        facts = self._engine.status.facts
        if facts is None:
            return None
        template = await self._template()
        if _TOOLS not in facts.features:
            template = replace(template, tools=False)  # the engine reads no calls out of an answer
        tools = {_TOOLS} if template.tools or _GRAMMARS in facts.features else set()
        self._facts = replace(facts, features=facts.features - {_TOOLS} | tools, template=template)
        return self._facts

    async def _template(self) -> ChatTemplate:
        try:
            return await self._client.template()
        except IsthmusError as error:
            self._log.warning("template_unknown", code=error.code)
            return ChatTemplate()
