"""Counts a request for as long as it runs, and what became of it at the end, whatever that is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from edge.scheduling.speculation import RequestKind, SpeculationMode
from shared.errors import CapacityError, ClientError
from shared.telemetry import EdgeMetrics
from shared.tracing.conventions import OUTCOME
from shared.tracing.port import NO_SPAN, Span

_CAPACITY_OUTCOMES = frozenset({"queue_full", "not_ready", "draining", "thermal_critical", "memory_critical"})
OUTCOMES = ("ok", "client_error", *sorted(_CAPACITY_OUTCOMES), "no_capacity", "broken", "cancelled", "failed")
"""The closed set of the `outcome` label."""


@dataclass(slots=True)
class Outcome:
    """What is noted of one request on its way."""

    name: str = "ok"
    started_ms: int = 0
    owner: str | None = None
    span: Span = field(default=NO_SPAN, repr=False)
    kind: RequestKind = RequestKind.PROSE
    mode: SpeculationMode | None = None
    """How the engine decoded for this request; None where it shared the engine with others at any time."""


@contextlib.contextmanager
def counted(metrics: EdgeMetrics, route: str) -> Iterator[Outcome]:
    """Count the request in flight for as long as the block runs, and its outcome at the end."""
    outcome = Outcome()
    metrics.in_flight.inc()
    try:
        yield outcome
    except (asyncio.CancelledError, ConnectionError):
        outcome.name = "cancelled"
        metrics.cancelled.inc()
        raise
    except ClientError:
        outcome.name = "client_error"
        raise
    except CapacityError as error:
        outcome.name = error.code if error.code in _CAPACITY_OUTCOMES else "no_capacity"
        raise
    except BaseException:
        outcome.name = "failed"
        raise
    finally:
        outcome.span.note({OUTCOME: outcome.name})
        metrics.in_flight.dec()
        metrics.requests.labels(route=route, outcome=outcome.name).inc()
