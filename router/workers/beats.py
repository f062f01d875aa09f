"""Heartbeats between a worker and its parent: with the bytes that are signed, because each worker checks them."""

from __future__ import annotations

from shared.fleet import Heartbeat
from shared.state.port import Signed


def beat_out(heartbeat: Heartbeat, signed: Signed | None) -> list[str | None]:
    """A beat for the other side: the very text that is signed, and the signature."""
    if signed is None:
        return [heartbeat.model_dump_json(), None]
    return [signed.body.decode(), signed.signature]


def beat_in(value: list[str | None]) -> tuple[Heartbeat, Signed | None]:
    """What `beat_out` made."""
    text, signature = value
    body = (text or "").encode()
    return Heartbeat.model_validate_json(body), None if signature is None else Signed(body, signature)
