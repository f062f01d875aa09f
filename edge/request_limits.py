"""Reads from the settings what one request may take."""

from __future__ import annotations

from edge.service.generation import GenerationLimits
from edge.settings import EdgeSettings


def request_limits(settings: EdgeSettings) -> GenerationLimits:
    """The limits of every route that has the engine work."""
    return GenerationLimits(
        body_bytes=settings.limits.body_bytes,
        connections=settings.limits.connections,
        body_s=settings.limits.body_s,
        client_stall_s=settings.limits.client_stall_s,
        grammar_s=settings.limits.grammar_s,
        keepalive_s=settings.keepalive_s,
        idle_limit_s=settings.idle_limit_s,
        exact_adapters=settings.engine.deterministic,
    )
