"""Tightening is free, loosening needs leave, and what was not scanned cannot be loosened."""

from __future__ import annotations

from itertools import product

import pytest

from router.privacy.override import effective_class, is_loosening
from shared.privacy import PrivacyClass, is_stricter

_PUBLIC, _PERSONAL, _SECRET, _UNKNOWN = PrivacyClass


@pytest.mark.parametrize(
    ("scanned", "requested", "may_loosen", "expected"),
    [
        (_PERSONAL, None, True, _PERSONAL),
        (_PUBLIC, _SECRET, False, _SECRET),
        (_PERSONAL, _PUBLIC, False, _PERSONAL),
        (_PERSONAL, _PUBLIC, True, _PUBLIC),
        (_SECRET, _PERSONAL, True, _PERSONAL),
        (_UNKNOWN, _PUBLIC, True, _UNKNOWN),
        (_UNKNOWN, _SECRET, True, _UNKNOWN),
    ],
)
def test_the_class_that_counts(
    scanned: PrivacyClass, requested: PrivacyClass | None, may_loosen: bool, expected: PrivacyClass
) -> None:
    assert effective_class(scanned, requested, may_loosen=may_loosen) is expected


def test_without_leave_no_request_ever_loosens() -> None:
    for scanned, requested in product(PrivacyClass, PrivacyClass):
        result = effective_class(scanned, requested, may_loosen=False)
        assert not is_stricter(scanned, result)
        assert is_loosening(scanned, requested) is (is_stricter(scanned, requested) and requested is not _SECRET)


def test_asking_for_secret_is_never_loosening() -> None:
    """A caller that guards all it sends needs no leave where a picture makes the body unknown; it stays unknown."""
    assert not is_loosening(_UNKNOWN, _SECRET)
    assert effective_class(_UNKNOWN, _SECRET, may_loosen=True) is _UNKNOWN
    assert is_loosening(_UNKNOWN, _PERSONAL)
