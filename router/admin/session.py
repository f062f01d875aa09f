"""Signs browsers in and out, and tells every caller what it may do."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from router.http.access import Doorkeeper
from router.http.signin import COOKIE, LIFETIME_S, SignIns
from shared.errors import InvalidRequest
from shared.http.intake import read_object
from shared.keys import ApiKey, Scope, may, require

_BODY_BYTES = 4096


class SessionDesk:
    """Handlers of /admin/v1/session."""

    def __init__(self, doorkeeper: Doorkeeper, signins: SignIns) -> None:
        self._doorkeeper = doorkeeper
        self._signins = signins

    async def show(self, request: web.Request) -> web.Response:
        """Who asks, and what that key may do; without a key that is known, only that one is needed."""
        if not self._doorkeeper.asks:
            return answer(_described(None, keys_required=False))
        signed_in = self._doorkeeper.signed_in(request)
        if signed_in is not None:
            known = {"csrf_token": signed_in.csrf, "expires_unix_s": signed_in.expires_unix_s}
            return answer(_described(signed_in.key, keys_required=True) | known)
        if "Authorization" not in request.headers:
            return answer({"keys_required": True, "signed_in": False})
        key = self._doorkeeper.admit(request, None)
        return answer(_described(key, keys_required=True))

    async def sign_in(self, request: web.Request) -> web.Response:
        """A cookie for the key in the body.

        Raises:
            Unauthenticated: the key is not known. Forbidden: it may not see what an administrator sees.
        """
        _, body = await read_object(request, limit_bytes=_BODY_BYTES)
        given = body.get("key")
        if not isinstance(given, str) or body.keys() != {"key"}:
            raise InvalidRequest("The body is an object with the key as text, and nothing else.", param="key")
        if not self._doorkeeper.asks:
            return answer(_described(None, keys_required=False))
        key = self._doorkeeper.recognise(given)
        require(key, Scope.ADMIN_READ)
        cookie = self._signins.cookie_for(key)
        signed_in = self._signins.read(cookie)
        csrf = signed_in.csrf if signed_in else ""
        response = answer(_described(key, keys_required=True) | {"csrf_token": csrf})
        secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        response.set_cookie(
            COOKIE, cookie, max_age=LIFETIME_S, httponly=True, samesite="Strict", secure=secure, path="/"
        )
        return response

    async def sign_out(self, request: web.Request) -> web.Response:
        """204; the cookie is worth nothing from here on."""
        signed_in = self._doorkeeper.signed_in(request)
        response = web.Response(status=204)
        if signed_in is not None:
            self._doorkeeper.admit(request, None)
            self._signins.end(signed_in)
            response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        return response


def _described(key: ApiKey | None, *, keys_required: bool) -> dict[str, Any]:
    role = "admin" if may(key, Scope.ADMIN) else "read-only" if may(key, Scope.ADMIN_READ) else "none"
    return {
        "keys_required": keys_required,
        "signed_in": True,
        "key": key.name if key else None,
        "role": role,
        "may_infer": may(key, Scope.INFERENCE),
        "may_loosen": may(key, Scope.PRIVACY_OVERRIDE),
        "csrf_token": None,
    }


def answer(value: Any, status: int = 200) -> web.Response:
    """JSON that no cache keeps."""
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json", headers=headers)
