"""Vocabulary of privacy: what the scanner may conclude, and what policy may do about it."""

from __future__ import annotations

from enum import StrEnum


class PrivacyClass(StrEnum):
    """What the scanner concluded about a request."""

    __hash__ = str.__hash__  # an enum's own is a call, and slow

    PUBLIC = "public"
    PERSONAL = "personal"
    SECRET = "secret"  # noqa: S105 - a class name, not a credential
    UNKNOWN = "unknown"
    """Not fully scanned. Policy treats it as the strictest class."""


class Action(StrEnum):
    """What policy does with a class."""

    __hash__ = str.__hash__  # an enum's own is a call, and slow

    ANY = "any"
    MASK = "mask"
    EDGE_ONLY = "edge_only"
    BLOCK = "block"


_STRICTNESS = {
    PrivacyClass.PUBLIC: 0,
    PrivacyClass.PERSONAL: 1,
    PrivacyClass.SECRET: 2,
    PrivacyClass.UNKNOWN: 3,
}
_NARROWNESS = {Action.ANY: 0, Action.MASK: 1, Action.EDGE_ONLY: 2, Action.BLOCK: 3}


def strictest(*classes: PrivacyClass) -> PrivacyClass:
    """The strictest of the given classes; `public` for none."""
    if len(classes) == 2 and classes[0] is classes[1]:  # as nearly always
        return classes[0]
    return max(classes, key=_STRICTNESS.__getitem__, default=PrivacyClass.PUBLIC)


def is_stricter(left: PrivacyClass, right: PrivacyClass) -> bool:
    """Whether `left` allows strictly less than `right`."""
    return _STRICTNESS[left] > _STRICTNESS[right]


def narrowest(*actions: Action) -> Action:
    """The action that lets the fewest bytes travel; `any` for none."""
    return max(actions, key=_NARROWNESS.__getitem__, default=Action.ANY)
