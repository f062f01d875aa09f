"""The policies that a simulation compares: named ones, files, and variants of one setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from router.policy.model import Policy
from router.privacy.recognisers import built_in
from router.rulebook.defaults import PolicyDefaults
from router.rulebook.document import PolicyDocument
from router.rulebook.load import Vocabulary, parse, policy_of, read
from shared.errors import SettingsError

NAMED: Mapping[str, dict[str, Any]] = {
    "default": {},
    "fastest": {"mode": "fastest"},
    "prefer_cloud": {"mode": "prefer_cloud"},
    "only_edge": {"mode": "only_edge"},
}
"""What differs from the defaults of the router."""


def named(name: str) -> Policy:
    """A named policy, or the one in a policy file.

    Raises:
        SettingsError: there is none of that name, or the file is not valid.
    """
    if name in NAMED:
        return _policy(NAMED[name])
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise SettingsError(f"There is no such policy. Known: {', '.join(NAMED)}; or a policy file.", param="--policy")
    return policy_of(parse(read(path), path), PolicyDefaults(), _vocabulary(), path)


def varied(text: str) -> dict[str, Policy]:
    """Variants of the default policy: `slo.ttft_ms=1000,2000` gives two.

    Raises:
        SettingsError: the text, the setting or a value is not valid.
    """
    name, _, values = text.partition("=")
    if not name or not values:
        raise SettingsError(
            "Say a setting of the policy and its values, such as slo.ttft_ms=1000,2000.", param="--vary"
        )
    return {f"{name}={value}": _policy(_nested(name.split("."), value)) for value in values.split(",")}


def _nested(names: Iterable[str], value: str) -> dict[str, Any]:
    first, *rest = names
    return {first: _nested(rest, value) if rest else value}


def _policy(changes: Mapping[str, Any]) -> Policy:
    try:
        defaults = PolicyDefaults.model_validate(changes)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SettingsError(
            f"Policy setting {'.'.join(map(str, first['loc']))}: {first['msg']}.", param="--vary"
        ) from None
    return policy_of(PolicyDocument(), defaults, _vocabulary())


def _vocabulary() -> Vocabulary:
    """The names of a router without settings of its own; keys are not known here."""
    return Vocabulary(frozenset(each.kind for each in built_in()))
