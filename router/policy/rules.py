"""Puts a policy into force, or refuses it with the setting at fault: what is written down must not let out more than
was meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from router.policy.model import Cost, Mode, Policy, Rule, Slo
from router.policy.written import digest_of
from shared.errors import SettingsError
from shared.privacy import Action, PrivacyClass, is_stricter, narrowest

STRICTER_ORDER = (PrivacyClass.PUBLIC, PrivacyClass.PERSONAL, PrivacyClass.SECRET, PrivacyClass.UNKNOWN)


def build_policy(
    *,
    mode: Mode,
    actions: Mapping[PrivacyClass, Action],
    slo: Slo,
    stale_after_ms: int,
    default_output_tokens: int,
    hysteresis_ratio: float,
    dwell_ms: int,
    cost: Cost = Cost(),  # noqa: B008 - a frozen value
    rules: Sequence[Rule] = (),
    time_zone: str = "UTC",
    stream_wait_ms: float | None = None,
    whole_wait_ms: float | None = None,
    shared_line_ratio: float = 1.0,
    looks_for: str | None = None,
) -> Policy:
    """The policy for these settings, with its digest. A class that is not named is `edge_only`.

    Raises:
        SettingsError: a stricter class has a wider action, or a rule lets out more than its conditions say.
    """
    complete = {each: actions.get(each, Action.EDGE_ONLY) for each in STRICTER_ORDER}
    _refuse_wider_for_stricter(complete)
    _refuse_equal_names(rules)
    for rule in rules:
        _refuse_leak(rule, complete)
    policy = Policy(
        mode=mode,
        actions=tuple(complete.items()),
        slo=slo,
        stale_after_ms=stale_after_ms,
        default_output_tokens=default_output_tokens,
        hysteresis_ratio=float(hysteresis_ratio),
        digest="",
        dwell_ms=dwell_ms,
        cost=cost,
        rules=tuple(rules),
        time_zone=time_zone,
        stream_wait_ms=stream_wait_ms,
        whole_wait_ms=whole_wait_ms,
        shared_line_ratio=shared_line_ratio,
        looks_for=looks_for,
    )
    return replace(policy, digest=digest_of(policy))


def _refuse_wider_for_stricter(actions: Mapping[PrivacyClass, Action]) -> None:
    for looser, stricter in pairwise(STRICTER_ORDER):
        if _is_wider(actions[stricter], actions[looser]):
            raise SettingsError(
                f"Class {stricter} is stricter than {looser}, but its action {actions[stricter]} is wider than "
                f"{actions[looser]}.",
                param=f"router.policy.actions.{stricter}",
            )


def _refuse_equal_names(rules: Sequence[Rule]) -> None:
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"Two rules are named {name}: the log could not tell them apart.", param="rules")


def _refuse_leak(rule: Rule, defaults: Mapping[PrivacyClass, Action]) -> None:
    """Refuse a rule that lets out more than its conditions say."""
    action, match, param = rule.act.action, rule.match, f"rules.{rule.name}.act.action"
    widened = [] if action is None else [each for each in STRICTER_ORDER if _is_wider(action, defaults[each])]
    if action is None or not widened:
        return
    if match.classes is None:
        raise SettingsError(
            f"Rule {rule.name} gives {action}, which is wider than the default of class {widened[-1]}: it must say "
            "under match.class for which classes that is meant.",
            param=param,
        )
    if PrivacyClass.UNKNOWN in match.classes and PrivacyClass.UNKNOWN in widened:
        raise SettingsError(
            f"Rule {rule.name} gives {action} to class unknown: nobody knows what would be let out.", param=param
        )
    if action is Action.ANY and match.any_entity is not None and match.classes & frozenset(widened):
        raise SettingsError(
            f"Rule {rule.name} lets a request out for one kind that was found in it, whatever else it holds: use "
            "match.only_entities.",
            param=f"rules.{rule.name}.match.entities",
        )
    for stricter in match.classes & frozenset(widened):
        for looser in STRICTER_ORDER:
            if is_stricter(stricter, looser) and looser not in match.classes and _is_wider(action, defaults[looser]):
                raise SettingsError(
                    f"Rule {rule.name} gives {action} to class {stricter}, but not to {looser}, which is less strict.",
                    param=param,
                )


def _is_wider(action: Action, than: Action) -> bool:
    return narrowest(action, than) is than and action is not than
