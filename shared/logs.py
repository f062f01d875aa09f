"""Structured logs that cannot hold a prompt or a key.

Events are JSON lines with named fields from code. Field names that could carry content are dropped before any
renderer sees them, and exceptions are logged by type and place, never with their arguments or local variables.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO, cast

import structlog

_FORBIDDEN = frozenset(
    {"prompt", "messages", "content", "text", "body", "authorization", "api_key", "key", "token", "secret",
     "password", "headers", "value", "match"}
)  # fmt: skip
REDACTED = "[redacted]"


def configure(*, level: str = "info", stream: TextIO | None = None) -> None:
    """Send structlog and the standard library's logging to `stream` (default: standard error) as JSON lines."""
    numeric = logging.getLevelNamesMapping()[level.upper()]
    out = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            exception_by_place,
            redact,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(_LibraryFormatter())
    # Libraries log request lines and payloads at debug level: they never go below warning here.
    logging.basicConfig(level=max(numeric, logging.WARNING), handlers=[handler], force=True)


def get(component: str) -> structlog.stdlib.BoundLogger:
    """A logger whose events carry `component`."""
    return cast("structlog.stdlib.BoundLogger", structlog.get_logger(component=component))


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the value of any field, at any depth, whose name could hold content or a credential."""
    for name, value in event.items():
        if isinstance(name, str) and name.lower() in _FORBIDDEN:
            event[name] = REDACTED
        else:
            event[name] = _redacted(value)
    return event


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return redact(None, "", dict(value))
    if isinstance(value, (list, tuple)):
        return [_redacted(each) for each in value]
    return value


def exception_by_place(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace `exc_info` by the exception's type and the places it passed, without any value."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["exception"] = type(error).__name__
        event["at"] = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)[-6:]]
    return event


class _LibraryFormatter(logging.Formatter):
    """Library records: logger, level, place, and the message's template where there is one.

    A finished message may hold data of a request (a URL, a repr), so it stays out; a template whose arguments come
    apart from it is a constant of that library.
    """

    def format(self, record: logging.LogRecord) -> str:
        event: MutableMapping[str, Any] = {
            "component": record.name,
            "level": record.levelname.lower(),
            "event": "library",
            "timestamp": datetime.fromtimestamp(record.created, tz=UTC).isoformat().replace("+00:00", "Z"),
            "from": f"{record.pathname}:{record.lineno}",
        }
        if record.args:
            event["template"] = str(record.msg)
        if record.exc_info:
            event = exception_by_place(None, "", {**event, "exc_info": record.exc_info})
        return str(structlog.processors.JSONRenderer()(None, "", event))
