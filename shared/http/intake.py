"""Reads a request body within its limits: nothing is buffered for a caller who may not send it."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from shared.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from shared.openai.body import parse_object

DEFAULT_LIMIT_BYTES = 4 * 1024 * 1024
DEFAULT_LIMIT_S = 30.0


async def read_body(
    request: web.Request, *, limit_bytes: int, limit_s: float = DEFAULT_LIMIT_S, typed: bool = True
) -> bytes:
    """The body's bytes, at most `limit_bytes`, within `limit_s`: who sends nothing must not hold a place for ever.

    Without `typed`, a body of any stated content type is taken for JSON, unless a browser sends it for a page: there
    the type is what makes the browser ask first whether the page may.

    Raises:
        InvalidRequest: the body did not arrive in time.
        UnsupportedMediaType: not `application/json`, another charset than UTF-8, or a content encoding.
        PayloadTooLarge: announced or actual size over the limit; at most the limit was ever held.
    """
    _check_headers(request, typed=typed)
    if request.content.is_eof():  # most bodies come in one piece with their head
        raw = request.content.read_nowait(-1)
        if len(raw) > limit_bytes:
            raise _too_large(limit_bytes)
        return raw
    if (request.content_length or 0) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limit_s):
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > limit_bytes:
                    raise _too_large(limit_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise InvalidRequest(f"The body did not arrive within {limit_s:g} s.", code="body_timeout") from None
    return b"".join(chunks)


async def read_object(
    request: web.Request, *, limit_bytes: int, limit_s: float = DEFAULT_LIMIT_S, typed: bool = True
) -> tuple[bytes, dict[str, Any]]:
    """The body's bytes and the one JSON object in it; raises as `read_body` and `parse_object` do."""
    raw = await read_body(request, limit_bytes=limit_bytes, limit_s=limit_s, typed=typed)
    return raw, parse_object(raw)


def single_header(request: web.Request, name: str) -> str | None:
    """The value of a header that may stand once.

    Raises:
        InvalidRequest: the header is repeated.
    """
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise InvalidRequest(f"The header {name} may be sent once.", param=name)
    return values[0] if values else None


def _check_headers(request: web.Request, *, typed: bool) -> None:
    headers = request.headers
    if "Content-Encoding" in headers:
        encodings = headers.getall("Content-Encoding")
        if any(value.strip().lower() != "identity" for value in encodings):
            raise UnsupportedMediaType("The body must be sent without a content encoding.", param="content-encoding")
    if headers.get("Content-Type") == "application/json":  # word for word, as nearly all clients write it
        return
    typed = typed or "Origin" in headers
    if typed and (request.content_type != "application/json" or "Content-Type" not in headers):
        raise UnsupportedMediaType("The content type must be application/json.", param="content-type")
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType("The body must be JSON in UTF-8.", param="content-type")


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than the limit of {limit_bytes} bytes.")
