"""What `isthmus up` shows: progress of each step, where to send requests, and a short view of the logs."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

import orjson

_SNIPPET = """\
{imports}from openai import OpenAI
client = OpenAI(base_url="{endpoint}", api_key={key})
answer = client.chat.completions.create(
    model="{model}", temperature=0,
    messages=[{{"role": "user", "content": "Which city is the capital of France?"}}])
print(answer.choices[0].message.content)"""
_KEY_VARIABLE = "ISTHMUS_API_KEY"
_COLOURS = {"edge": "32", "router": "36", "cloud": "35", "up": "1"}
_HIDDEN_FIELDS = frozenset({"component", "level", "event", "timestamp", "at"})
_WIDTH = 6


@dataclass(frozen=True, slots=True)
class Ready:
    """Tiers that answer now, and where to ask them."""

    tiers: tuple[str, ...]
    endpoint: str
    model: str
    asks_for_key: bool
    after_s: float
    logs: Path


class Reporter(Protocol):
    """Tells a person or a program what the launcher does."""

    def note(self, tier: str, message: str, **fields: Any) -> None:
        """One thing that happened to `tier` (or to `up` itself)."""

    def ready(self, ready: Ready) -> None:
        """Requests can be sent."""

    def log_line(self, tier: str, line: bytes) -> None:
        """One line that `tier` wrote."""


class JsonReporter:
    """One JSON object a line on standard output; the logs stay in their files."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def note(self, tier: str, message: str, **fields: Any) -> None:
        """An event `note`."""
        self._write({"event": "note", "tier": tier, "message": message, **fields})

    def ready(self, ready: Ready) -> None:
        """An event `ready`."""
        self._write(
            {
                "event": "ready",
                "tiers": list(ready.tiers),
                "endpoint": ready.endpoint,
                "model": ready.model,
                "after_s": round(ready.after_s, 2),
                "logs": str(ready.logs),
            }
        )

    def log_line(self, tier: str, line: bytes) -> None:
        """Nothing: a program reads the files."""

    def _write(self, event: dict[str, Any]) -> None:
        print(orjson.dumps(event).decode(), file=self._out, flush=True)


class TextReporter:
    """Lines for a person, each with the tier in front; in colour on a terminal."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._colour = self._out.isatty()
        self._began = time.monotonic()
        self._were_ready: set[str] = set()

    def note(self, tier: str, message: str, **fields: Any) -> None:
        """The message with its fields and the seconds since the start."""
        if message.startswith("ready"):
            self._were_ready.add(tier)
        seconds = time.monotonic() - self._began
        self._line(tier, f"[{seconds:5.1f} s] {message}{_fields(fields)}")

    def ready(self, ready: Ready) -> None:
        """Endpoint, one curl line, one client snippet."""
        body = (
            f'{{"model":"{ready.model}","temperature":0,"messages":[{{"role":"user",'
            '"content":"Which city is the capital of France?"}]}'
        )
        self._print("")
        self._print(f"Ready after {ready.after_s:.1f} s: {', '.join(ready.tiers)}. Endpoint: {ready.endpoint}")
        bearer = f' -H "authorization: Bearer ${_KEY_VARIABLE}"' if ready.asks_for_key else ""
        self._print(
            f"  curl -s {ready.endpoint}/chat/completions{bearer} -H 'content-type: application/json' -d '{body}'"
        )
        self._print("")
        self._print(f"  # in {sys.executable}")
        for line in _snippet(ready).splitlines():
            self._print(f"  {line}")
        self._print("")
        self._print(f"Logs: {ready.logs}   Stop: Ctrl-C")

    def log_line(self, tier: str, line: bytes) -> None:
        """An event of ours in words; of other programs' lines only what warns. The error that ends a tier before it was
        ready ends the run, which says it last."""
        text = short(line)
        if text is not None and (tier in self._were_ready or not text.startswith("error:")):
            self._line(tier, text)

    def _line(self, tier: str, text: str) -> None:
        name = f"{tier:<{_WIDTH}}"
        if self._colour:
            name = f"\x1b[{_COLOURS.get(tier, '0')}m{name}\x1b[0m"
        self._print(f"{name} | {text}")

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def _snippet(ready: Ready) -> str:
    key, imports = '"unused"', ""
    if ready.asks_for_key:
        key, imports = f'os.environ["{_KEY_VARIABLE}"]', "import os\n"
    return _SNIPPET.format(imports=imports, endpoint=ready.endpoint, key=key, model=ready.model)


def short(line: bytes) -> str | None:
    """A log line as the console shows it; None for one that only the file keeps."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return None
    if text.startswith("{"):
        try:
            event = orjson.loads(text)
        except orjson.JSONDecodeError:
            event = None
        if isinstance(event, dict) and "event" in event:
            level = "" if event.get("level") in (None, "info") else f"{event['level']}: "
            shown = {name: value for name, value in event.items() if name not in _HIDDEN_FIELDS}
            return _printable(f"{level}{event['event']}{_fields(shown)}")
    plain = _printable(text)
    return plain if plain.startswith("error:") or " ERROR " in plain or "Traceback" in plain else None


def _printable(text: str) -> str:
    """`text` without what a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)


def _fields(fields: dict[str, Any]) -> str:
    return "".join(f" {name}={value}" for name, value in fields.items() if value is not None)
