"""Measures prefill and decode speed once after the start, so that the first heartbeats already carry rates."""

from __future__ import annotations

from edge.runtime.port import EngineFacts
from edge.service.admission import Admission
from edge.service.chunks import ChunkStream
from edge.service.engine_client import EngineClient
from edge.service.rates import Rates
from edge.service.translation import EngineRequest, translate
from edge.service.wait import Work
from shared import logs
from shared.errors import IsthmusError
from shared.openai.facts import Endpoint

_PROMPT = "The quick brown fox jumps over the lazy dog while seven wizards mix a quart of very bad punch. " * 2
_OUTPUT_TOKENS = 8
_WORK = Work("calibration")
"""Far shorter than answers are: how long they take is not to be read from it."""


class Calibration:
    """Runs one short generation while nobody else wants the engine."""

    def __init__(self, client: EngineClient, admission: Admission, rates: Rates) -> None:
        self._client = client
        self._admission = admission
        self._rates = rates
        self._log = logs.get("calibration")

    async def run(self, facts: EngineFacts) -> None:
        """Measure; real work comes first, and a failure leaves the rates to be learned from real answers."""
        if not self._admission.can_admit(1):
            return
        request = _request(facts)
        chunks = ChunkStream(request)
        try:
            async with self._admission.slot(work=_WORK), self._client.stream(request) as events:
                async for event in events:
                    chunks.feed(event)
                    if self._admission.queued:
                        return  # leaving frees the engine within a moment
        except IsthmusError as error:
            self._log.info("calibration_failed", code=error.code)
            return
        for timings in chunks.closing.timings:
            self._rates.record(timings)
        self._log.info(
            "calibrated",
            prefill_tokens_per_s=self._rates.prefill_tokens_per_s,
            decode_tokens_per_s=self._rates.decode_tokens_per_s,
        )


def _request(facts: EngineFacts) -> EngineRequest:
    body = {"model": facts.model_id, "prompt": _PROMPT, "max_tokens": _OUTPUT_TOKENS, "temperature": 0}
    return translate(Endpoint.COMPLETIONS, body, facts)
