"""What is served now: the engine's own facts, and what the model's chat template can express."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from edge.runtime.port import ChatTemplate, Engine, EngineFacts, EngineStatus
from edge.service.engine_client import EngineClient
from shared import logs
from shared.errors import IsthmusError, NotReady

_TOOLS = "tools"
_GRAMMARS = "structured_output"
_NEXT_LIMIT_S = 3.0
"""How long a request waits for the process that is put in the place of another one: a start takes a part of it, and
whoever could serve the request elsewhere shall not wait for long answers to end."""


class Served:
    """Follows the engine. `refresh` after each start asks what its model's template can express; what else a swap
    changes, such as the context, holds from the moment in which requests go to the new process."""

    def __init__(self, engine: Engine, client: EngineClient) -> None:
        self._engine = engine
        self._client = client
        self._template: ChatTemplate | None = None
        self._told: EngineFacts | None = None
        self._facts: EngineFacts | None = None
        self._present = asyncio.Event()
        self._present.set()
        self._log = logs.get("served")
        engine.subscribe(self._follow)

    @property
    def facts(self) -> EngineFacts | None:
        """Facts of the engine that serves, or served last; None before the first start."""
        told = self._engine.status.facts
        if self._template is not None and told is not None and told is not self._told:
            self._told, self._facts = told, _completed(told, self._template)
        return self._facts

    def require(self) -> EngineFacts:
        """The facts of an engine that serves now.

        Raises:
            NotReady: it does not.
        """
        self._engine.connection()
        facts = self.facts
        if facts is None:
            raise NotReady("The engine is starting.")
        return facts

    async def arriving(self) -> EngineFacts:
        """The same; where one process makes room for the next, the next one is waited for a moment.

        Raises:
            NotReady: none serves, or not in time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NEXT_LIMIT_S):
                await self._present.wait()
        return self.require()

    def _follow(self, status: EngineStatus) -> None:
        if status.replaced:
            self._present.clear()
        else:
            self._present.set()

    async def refresh(self) -> EngineFacts | None:
        """Ask the engine that has just started."""
        if self._engine.status.facts is None:
            return None
        self._template, self._told = await self._asked_template(), None
        return self.facts

    async def _asked_template(self) -> ChatTemplate:
        try:
            return await self._client.template()
        except IsthmusError as error:
            self._log.warning("template_unknown", code=error.code)
            return self._template or ChatTemplate()


def _completed(facts: EngineFacts, template: ChatTemplate) -> EngineFacts:
    """With the template. Tools need the engine's own reading of calls, or a grammar for ours."""
    if _TOOLS not in facts.features:
        template = replace(template, tools=False)  # the engine reads no calls out of an answer
    tools = {_TOOLS} if template.tools or _GRAMMARS in facts.features else set()
    return replace(facts, features=facts.features - {_TOOLS} | tools, template=template)
