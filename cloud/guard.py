"""ASGI middleware before the engines: a request that is not well formed is answered here, and no replica sees it.

Clients may come around the router, so the cloud tier checks bodies by the same rules as router and edge.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from shared.errors import (
    ClientError,
    Forbidden,
    InvalidRequest,
    IsthmusError,
    NotFound,
    PayloadTooLarge,
    UnsupportedMediaType,
)
from shared.keys import ApiKey, authenticate, bearers_in
from shared.keys import Scope as KeyScope
from shared.openai.body import parse_object
from shared.openai.envelope import envelope_bytes, error_headers
from shared.openai.facts import Endpoint
from shared.openai.validation import validate

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
ADMIN_PREFIX = "/cloud/v1/"
"""Routes below it need a key of scope admin."""


class Guard:
    """Asks for a key where any is known, reads and checks the body of OpenAI routes, then hands the same bytes on.

    `sequences` gives, for each served model, the most sequences (prompts times `n`) that one request may ask for.
    """

    def __init__(
        self, app: App, *, body_limit_bytes: int, sequences: Mapping[str, int], keys: Sequence[ApiKey] = ()
    ) -> None:
        self._app = app
        self._keys = keys
        self._body_limit_bytes = body_limit_bytes
        self._sequences = sequences

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        try:
            self._admit(scope)
        except ClientError as error:
            await respond(error, send)
            return
        endpoint = endpoint_of(scope)
        if endpoint is None:
            await self._pass_on(scope, receive, send)
            return
        try:
            _check_headers(scope)
            raw = await self._read(scope, receive)
            if raw is None:
                return
            self._check(endpoint, raw)
        except ClientError as error:
            await respond(error, send)
            return
        await self._app(scope, _replayed(raw, receive), send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Routes without a body of OpenAI's. What changes something takes JSON alone: no foreign page may send it."""
        try:
            if scope["type"] == "http" and scope["method"] == "POST" and path_of(scope).startswith(ADMIN_PREFIX):
                _check_headers(scope)
        except ClientError as error:
            await respond(error, send)
            return
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        """Whoever has no key is turned away before a byte of the body is read."""
        if not self._keys or scope["type"] != "http":
            return
        bearers = bearers_in(
            path_of(scope),
            lambda wanted: [v.decode("latin-1") for name, v in scope["headers"] if name.lower() == wanted.encode()],
        )
        scopes = authenticate(bearers, self._keys).scopes
        if path_of(scope).startswith(ADMIN_PREFIX):
            if KeyScope.ADMIN not in scopes:
                raise Forbidden("This key may not change what is loaded.")
        elif KeyScope.INFERENCE not in scopes:
            raise Forbidden("This key may not ask models.")

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body, of which at most the limit is ever held; None when the client left before its end."""
        announced = _header(scope, b"content-length")
        if announced and announced.isdigit() and int(announced) > self._body_limit_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._body_limit_bytes:
                raise self._too_large()
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"The body is larger than the limit of {self._body_limit_bytes} bytes.")

    def _check(self, endpoint: Endpoint, raw: bytes) -> None:
        body = parse_object(raw)
        validate(endpoint, body)
        limit = self._sequences.get(body["model"].partition(":")[0])
        if limit is None:
            raise unknown_model()
        if _sequences(body) > limit:
            raise InvalidRequest(f"This request asks for more than {limit} sequences at once.", param="n")


def unknown_model() -> NotFound:
    """The error for a model that is not served here."""
    return NotFound("There is no such model here.", param="model", code="model_not_found")


async def respond(error: IsthmusError, send: Send) -> None:
    """Answer with `error` in the OpenAI envelope."""
    body = envelope_bytes(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in error_headers(error).items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def endpoint_of(scope: Scope) -> Endpoint | None:
    """The route that asks a model, if it is one."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    try:
        return Endpoint(path_of(scope))
    except ValueError:
        return None


def path_of(scope: Scope) -> str:
    """The path inside this application: Serve mounts it below a prefix, and tells the whole that the client used."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _check_headers(scope: Scope) -> None:
    encoding = _header(scope, b"content-encoding")
    if encoding and encoding.strip().lower() != b"identity":
        raise UnsupportedMediaType("The body must be sent without a content encoding.", param="content-encoding")
    kind, _, parameters = (_header(scope, b"content-type") or b"").partition(b";")
    if kind.strip().lower() != b"application/json":
        raise UnsupportedMediaType("The content type must be application/json.", param="content-type")
    charset = parameters.strip().lower().removeprefix(b"charset=").strip(b'"')
    if b"charset" in parameters.lower() and charset not in (b"utf-8", b"utf8", b"us-ascii"):
        raise UnsupportedMediaType("The body must be JSON in UTF-8.", param="content-type")


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key.lower() == name), None)


def _sequences(body: dict[str, Any]) -> int:
    prompt = body.get("prompt")
    # A list of token ids is one prompt; a list of texts or of lists is several.
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    return prompts * max(body.get("n") or 1, body.get("best_of") or 1)


def _replayed(raw: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once more; what follows (a disconnect) comes from the connection."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return replay
