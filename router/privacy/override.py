"""Decides which class counts once the caller has asked for one: tightening is free, loosening needs permission."""

from __future__ import annotations

from shared.privacy import PrivacyClass, is_stricter


def is_loosening(scanned: PrivacyClass, requested: PrivacyClass | None) -> bool:
    """Whether `requested` asks for less protection than the scan found. `secret` never does: it is the strictest class
    that a finding has, and `unknown`, which is stricter still, only says that nobody looked."""
    return requested not in (None, PrivacyClass.SECRET) and is_stricter(scanned, requested)


def effective_class(scanned: PrivacyClass, requested: PrivacyClass | None, *, may_loosen: bool) -> PrivacyClass:
    """The class that policy sees. `unknown` cannot be loosened: nobody knows what would be let out."""
    if requested is None or scanned is requested:
        return scanned
    if not is_stricter(scanned, requested):
        return requested
    if may_loosen and scanned is not PrivacyClass.UNKNOWN:
        return requested
    return scanned
