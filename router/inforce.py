"""Puts the policy in force that settings and policy file name, and tells log and metrics whenever it changes."""

from __future__ import annotations

from typing import Any

from router.audit.log import AuditLog
from router.policy.model import Policy
from router.policy.written import written_down
from router.privacy.recognisers import built_in
from router.rulebook.follow import LookFor, PolicyFollower
from router.rulebook.load import Vocabulary
from router.settings import RouterSettings
from shared.clock import Clock
from shared.telemetry import RouterMetrics


def vocabulary(settings: RouterSettings, *, keys_known: bool = True) -> Vocabulary:
    """The names that a policy file may use: kinds of the scanner, own ones and listed ones of plug-ins among them, and
    keys, unless `keys_known` says that these settings are not those of the router that is meant."""
    scan = settings.scan
    own = {each.kind for each in scan.patterns} | {each.kind for each in scan.word_lists}
    plugged = {kind for plugin in scan.plugins for kind in plugin.classes}
    return Vocabulary(
        kinds=frozenset({each.kind for each in built_in()} | own | plugged),
        keys=frozenset(key.name for key in settings.keys) if keys_known else None,
    )


def follow_policy(
    settings: RouterSettings,
    clock: Clock,
    audit: AuditLog,
    metrics: RouterMetrics,
    *,
    look_for: LookFor,
    keys_made: bool = False,
) -> PolicyFollower:
    """The policy in force; `look_for` is told what it looks for, and `keys_made` says that there are keys besides those
    of the settings.

    Raises:
        SettingsError: the file or the defaults are no valid policy.
    """

    def note(outcome: str, policy: Policy) -> None:
        metrics.policy_in_force(policy.digest, outcome)
        if outcome == "applied":
            audit.record(_record(policy, clock))

    # Keys that commands make come and go while the router runs: their names cannot be told from typing errors.
    known = vocabulary(settings, keys_known=not keys_made)
    file, base = settings.policy.file, settings.policy_base()
    follower = PolicyFollower(file, base, known, clock, on_reload=note, look_for=look_for)
    metrics.policy_in_force(follower.policy.digest)
    audit.record(_record(follower.policy, clock))
    return follower


def _record(policy: Policy, clock: Clock) -> dict[str, Any]:
    return {
        "kind": "policy",
        "at": round(clock.unix_s(), 3),
        "digest": policy.digest,
        "policy": written_down(policy),
    }
