"""What `isthmus edge adapters` does: the store on this machine, the running agent's admin API, and what is printed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
import orjson
from rich.table import Table

from edge.console import key_header, library, print_facts, print_json, text_console
from edge.custody import adapters_of
from edge.packages.adapters.adapter import ADAPTER_FILE, Adapter, AdapterName
from edge.packages.adapters.store import AdapterStore, Registration
from edge.packages.signing_key import SigningKey
from edge.packages.staging import Incoming
from edge.service.adapters.surface import ROUTE
from edge.settings import EdgeSettings
from shared.errors import BackendStatus, BackendUnreachable, InvalidRequest, NotFound, TrustError
from shared.errors.package import refused_as

_ANSWER_LIMIT_S = 180.0
"""A load starts an engine, which takes seconds on a busy device."""


def agent_of(settings: EdgeSettings) -> str:
    """Where the agent of these settings listens."""
    return f"http://{settings.host}:{settings.port}"


def everything(settings: EdgeSettings, url: str | None, key_file: Path | None) -> list[dict[str, Any]]:
    """All adapters: as the agent at `url` has them, or as they are registered here where no agent runs."""
    try:
        answer = _ask("GET", (url or agent_of(settings)) + ROUTE, key_file)
    except BackendUnreachable:
        if url is not None:
            raise
        return [_registered(name, found) for name, found in _store(settings).survey().items()]
    adapters: list[dict[str, Any]] = answer["adapters"]
    return adapters


def register(
    settings: EdgeSettings, name: str, file: Path, *, base_digest: str | None, sign_with: Path | None
) -> dict[str, Any]:
    """Install `file` on this machine; raises as `AdapterStore.register`."""
    parsed = AdapterName.parse(name)
    with _opened(file) as content:
        size_bytes = os.fstat(content.fileno()).st_size
        if size_bytes > settings.adapters.limit:
            raise InvalidRequest(
                f"{file} has {size_bytes} bytes; at most {settings.adapters.limit} are registered "
                "(edge.adapters.limit).",
                param="file",
            )
        wanted = Registration(
            name=parsed,
            incoming=Incoming(ADAPTER_FILE, size_bytes, lambda: contextlib.nullcontext(content)),
            source="file",
            rank_limit=settings.adapters.rank_limit,
            base_digest=base_digest,
            signing_key=SigningKey.read(sign_with) if sign_with is not None else None,
        )
        return _registered(parsed, _store(settings).register(wanted, library(settings).show(parsed.base)))


def upload(url: str, key_file: Path | None, name: str, file: Path, base_digest: str | None) -> dict[str, Any]:
    """Send `file` to the agent at `url`."""
    query = f"?base_digest={base_digest}" if base_digest else ""
    address = f"{url.rstrip('/')}{ROUTE}/{AdapterName.parse(name)}{query}"
    with _opened(file) as content:
        return _ask("PUT", address, key_file, content)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """The file, by whatever links; never a pipe or a device, which would be waited for without end.

    Raises:
        NotFound: it cannot be read. InvalidRequest: it is no file.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error.strerror}.", param="file") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise InvalidRequest(f"{file} is no file.", param="file")
    with os.fdopen(fd, "rb") as content:
        yield content


def act(url: str, key_file: Path | None, name: str, action: str) -> dict[str, Any]:
    """Have the agent at `url` load, unload, pin or unpin."""
    return _ask("POST", f"{url.rstrip('/')}{ROUTE}/{AdapterName.parse(name)}/{action}", key_file)


def remove(settings: EdgeSettings, name: str, *, as_json: bool) -> None:
    """Remove all versions from this machine; raises as `AdapterStore.remove`."""
    freed = _store(settings).remove(AdapterName.parse(name))
    if as_json:
        print_json({"name": name, "freed_bytes": freed})
    else:
        print_facts({"removed": name, "freed": f"{freed} bytes"})


def show_one(adapter: dict[str, Any], *, as_json: bool) -> None:
    """One adapter."""
    if as_json:
        print_json(adapter)
    else:
        print_facts(adapter)


def show_all(adapters: list[dict[str, Any]], *, as_json: bool) -> None:
    """All of them."""
    if as_json:
        print_json(adapters)
        return
    columns = ("name", "digest", "rank", "size_bytes", "loaded", "pinned", "in_use", "problem")
    table = Table(*columns, box=None)
    for adapter in adapters:
        table.add_row(*(_cell(adapter.get(column)) for column in columns))
    text_console().print(table if adapters else "No adapter is registered.")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return text[:19] if text.startswith("sha256:") else text


def _registered(name: AdapterName, found: Adapter | TrustError) -> dict[str, Any]:
    """An adapter of the store. Whether it is loaded is not known here."""
    if isinstance(found, TrustError):
        return {"name": str(name), "problem": found.message}
    facts = found.manifest.facts
    return {
        "name": str(name),
        "digest": found.digest,
        "base_digest": found.manifest.base_digest,
        "rank": facts.rank,
        "alpha": facts.alpha,
        "size_bytes": found.size_bytes,
    }


def _store(settings: EdgeSettings) -> AdapterStore:
    return adapters_of(settings, lambda problem: print(f"warning: {problem.message}", file=sys.stderr))  # noqa: T201


def _ask(method: str, url: str, key_file: Path | None, data: BinaryIO | None = None) -> dict[str, Any]:
    """The agent's answer.

    Raises:
        BackendUnreachable: nobody answers there.
        TrustError, InvalidRequest, NotFound, BackendStatus: what the agent says is wrong, in its words; it ends the
            command as what is refused here does.
    """
    status, raw = asyncio.run(_sent(method, url, key_header(key_file), data))
    answer: Any = None
    with contextlib.suppress(orjson.JSONDecodeError):
        answer = orjson.loads(raw)
    if status in (200, 201) and isinstance(answer, dict):
        return answer
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        raise BackendStatus(f"The agent at {url} answered with status {status}.", backend_status=status)
    message, code = str(error.get("message")), str(error.get("code"))
    if status == 400:
        raise (refused_as(code) or InvalidRequest)(message, code=code)
    if status == 404:
        raise NotFound(message, code=code)
    raise BackendStatus(message, backend_status=status, code=code)


async def _sent(method: str, url: str, headers: dict[str, str], data: BinaryIO | None) -> tuple[int, bytes]:
    timeout = aiohttp.ClientTimeout(total=_ANSWER_LIMIT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.request(method, url, headers=headers, data=data) as response,
        ):
            return response.status, await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        raise BackendUnreachable(f"No agent answers at {url}.") from None
