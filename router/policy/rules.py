"""Builds the policy in force from the operator's settings, or refuses it with the setting at fault."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise

from router.policy.model import Mode, Policy, Slo
from shared.errors import SettingsError
from shared.privacy import Action, PrivacyClass, narrowest

_STRICTER_ORDER = (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL, PrivacyClass.SECRET, PrivacyClass.UNKNOWN)


def build_policy(
    *,
    mode: Mode,
    actions: Mapping[PrivacyClass, Action],
    slo: Slo,
    stale_after_ms: int,
    default_output_tokens: int,
    hysteresis_ratio: float,
    dwell_ms: int,
) -> Policy:
    """The policy for these settings, with its digest. A class that is not named is `edge_only`.

    Raises:
        SettingsError: a stricter class has a wider action.
    """
    complete = {each: actions.get(each, Action.EDGE_ONLY) for each in _STRICTER_ORDER}
    _refuse_wider_for_stricter(complete)
    canonical = {
        "mode": mode,
        "actions": {str(each): str(action) for each, action in complete.items()},
        "slo": {"ttft_ms": float(slo.ttft_ms), "tpot_ms": float(slo.tpot_ms)},
        "stale_after_ms": stale_after_ms,
        "default_output_tokens": default_output_tokens,
        "hysteresis_ratio": float(hysteresis_ratio),
        "dwell_ms": dwell_ms,
    }
    digest = hashlib.sha256(json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return Policy(
        mode=mode,
        actions=tuple(complete.items()),
        slo=slo,
        stale_after_ms=stale_after_ms,
        default_output_tokens=default_output_tokens,
        hysteresis_ratio=hysteresis_ratio,
        digest=f"sha256:{digest}",
        dwell_ms=dwell_ms,
    )


def _refuse_wider_for_stricter(actions: Mapping[PrivacyClass, Action]) -> None:
    for looser, stricter in pairwise(_STRICTER_ORDER):
        if narrowest(actions[looser], actions[stricter]) is not actions[stricter]:
            raise SettingsError(
                f"Class {stricter} is stricter than {looser}, but its action {actions[stricter]} is wider than "
                f"{actions[looser]}.",
                param=f"router.policy.actions.{stricter}",
            )
