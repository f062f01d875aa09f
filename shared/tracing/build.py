"""Chooses the tracer that settings ask for; the packages of OpenTelemetry are loaded only where traces are on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from shared.errors import SettingsError
from shared.tracing.port import NoTracer, Tracer
from shared.tracing.settings import TracingSettings

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
OnSpans = Callable[[str, int], None]
"""Is told what became of how many spans: `exported`, `queue_full`, `export_failed` or `shutdown`; from any thread."""


def build_tracer(settings: TracingSettings, *, tier: str, on_spans: OnSpans) -> Tracer:
    """The tracer of a process of `tier`.

    Raises:
        SettingsError: the packages are not installed, or a file cannot be read.
    """
    if settings.endpoint is None:
        return NoTracer()
    check_installed(settings, tier=tier)
    from shared.tracing.otel import OtelTracer  # noqa: PLC0415 - the extra may not be installed

    headers = _headers_in(settings.headers_file, f"{tier}.tracing.headers_file")
    if settings.ca_file is not None and not Path(settings.ca_file).is_file():
        raise SettingsError(f"There is no file {settings.ca_file}.", param=f"{tier}.tracing.ca_file")
    return OtelTracer(settings, settings.endpoint, headers, tier=tier, on_spans=on_spans)


def check_installed(settings: TracingSettings, *, tier: str) -> None:
    """Raises SettingsError where traces are on and their packages are not here."""
    if settings.endpoint is None:
        return
    try:
        import shared.tracing.otel  # noqa: F401, PLC0415 - the extra may not be installed
    except ImportError:
        raise SettingsError(
            f"Setting {tier}.tracing.endpoint needs more packages: pip install 'isthmus[otel]'.",
            param=f"{tier}.tracing.endpoint",
        ) from None


def _headers_in(path: str | None, setting: str) -> dict[str, str]:
    if path is None:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"The file {path} cannot be read.", param=setting) from None
    headers = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not _NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise SettingsError(f"Line {number} of {path} is not `Name: value`.", param=setting)
        headers[name] = value
    return headers
