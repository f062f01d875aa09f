"""What is signed for a manifest: the DSSE pre-authentication encoding, in which type and lengths stand before it."""

from __future__ import annotations

from typing import Literal

PAYLOAD_TYPE: Literal["application/vnd.isthmus.package-manifest.v1+json"] = (
    "application/vnd.isthmus.package-manifest.v1+json"
)


def encoding(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """The bytes that are signed for `payload` (DSSE 1.0, protocol.md: PAE)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
