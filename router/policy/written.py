"""Writes a policy down as JSON values and reads it back: what its digest is taken over, and what the audit log keeps so
that a decision can be replayed when the file has long changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from router.policy.model import Act, Cost, Match, Mode, Policy, Route, Rule, Slo
from shared.fleet import Zone
from shared.privacy import Action, PrivacyClass

Read = Callable[[Any], Any]
_BEFORE: Mapping[str, Any] = {"looks_for": None, "shared_line_ratio": 1.0}
"""What held before there were such fields: it is not written, so that policies of that time keep their names."""


def written_down(policy: Policy) -> dict[str, Any]:
    """A policy without its digest; the same for equal policies."""
    values = {name: _plain(value) for name, value in asdict(policy).items() if name != "digest"}
    for name, before in _BEFORE.items():
        if getattr(policy, name) == before:
            del values[name]
    return {**values, "actions": {str(each): str(action) for each, action in policy.actions}}


def digest_of(policy: Policy) -> str:
    """The name of a policy's content: sha256 over its canonical JSON."""
    canonical = json.dumps(written_down(policy), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def read_back(values: Mapping[str, Any]) -> Policy:
    """The policy that was written down as `values`.

    Raises:
        KeyError, TypeError, ValueError: they are no policy.
    """
    plain = {name: value for name, value in values.items() if name not in _READ}
    read = {name: _READ[name](value) for name, value in values.items() if name in _READ}
    policy = Policy(**plain, **read, digest="")
    return Policy(**{**{name: getattr(policy, name) for name in policy.__slots__}, "digest": digest_of(policy)})


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items() if each is not None}
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value


def _set_of(kind: Callable[[str], Any]) -> Read:
    return lambda values: frozenset(kind(each) for each in values)


def _rule(values: Mapping[str, Any]) -> Rule:
    match, act = values["match"], values["act"]
    return Rule(
        name=values["name"],
        match=Match(**{name: _READ_MATCH.get(name, _as_is)(value) for name, value in match.items()}),
        act=Act(**{name: _READ_ACT.get(name, _as_is)(value) for name, value in act.items()}),
    )


def _as_is(value: Any) -> Any:
    return value


_READ: dict[str, Read] = {
    "mode": Mode,
    "actions": lambda values: tuple((PrivacyClass(each), Action(action)) for each, action in values.items()),
    "slo": lambda values: Slo(**values),
    "cost": lambda values: Cost(**values),
    "rules": lambda values: tuple(_rule(each) for each in values),
}
_READ_MATCH: dict[str, Read] = {
    "classes": _set_of(PrivacyClass),
    "any_entity": frozenset,
    "only_entities": frozenset,
    "models": tuple,
    "keys": tuple,
    "routes": _set_of(Route),
    "features": frozenset,
    "week_minutes": lambda values: tuple(tuple(each) for each in values),
}
_READ_ACT: dict[str, Read] = {
    "action": Action,
    "zones": _set_of(Zone),
    "mode": Mode,
    "mask_kinds": frozenset,
}
