"""What the spans of the agent say: how long a request waited for its slot, and what the engine did."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

from edge.service.closing import Closing
from edge.service.translation import EngineRequest
from shared.tracing import conventions as c
from shared.tracing.port import Span


@contextlib.asynccontextmanager
async def admitted(
    span: Span, prepared: EngineRequest, slot: contextlib.AbstractAsyncContextManager[None]
) -> AsyncIterator[None]:
    """Hold `slot`; the span `admission` lasts as long as it was waited for."""
    async with contextlib.AsyncExitStack() as held:
        with span.child("admission", facts={c.SLOTS: prepared.slots}):
            await held.enter_async_context(slot)
        yield


@contextlib.contextmanager
def engine(span: Span, prepared: EngineRequest, closing: Closing) -> Iterator[None]:
    """The engine's work on one request; both spans learn what it came to, as far as the engine told."""
    if not span.recording:
        yield
        return
    asked = c.asked_facts(prepared.endpoint, prepared.model, stream=prepared.stream)
    span.note(asked)
    with span.child(c.span_name(prepared.endpoint, prepared.model), kind="client", facts=asked) as work:
        try:
            yield
        finally:
            usage = closing.usage or {}
            told = c.answered_facts(
                model=prepared.model,
                input_tokens=usage.get("prompt_tokens"),
                output_tokens=usage.get("completion_tokens"),
                finish_reasons=closing.finish_reasons,
            )
            work.note(told)
            span.note(told)
