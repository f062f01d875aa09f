"""Finds the rule that a request falls under, and says on which terms it may travel.

The first rule whose conditions hold acts; what it leaves open comes from the defaults. Two things keep rules from
letting out what nobody meant to let out: a rule that names no class can only narrow, and a request that was not fully
scanned is held to every rule that could have applied to what it may contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from router.policy import zones
from router.policy.model import Act, DecisionFacts, Match, Mode, Policy, Rule
from shared.fleet import Zone
from shared.privacy import Action, PrivacyClass, narrowest

_UNKNOWN = PrivacyClass.UNKNOWN
_NEAR_TO_FAR = tuple(Zone)


class Terms(NamedTuple):
    """What policy says about one request before any backend is looked at."""

    action: Action
    mode: Mode
    by_privacy: frozenset[Zone]
    by_rule: frozenset[Zone]
    output_cap_tokens: int | None
    mask_kinds: frozenset[str] | None
    rule: str | None
    scan_answers: bool | None = None
    resume: bool = False
    hedge_ms: int | None = None


def terms_of(facts: DecisionFacts, policy: Policy) -> Terms:
    """The terms for a request."""
    action = zones.action_for(policy, facts.privacy_class, maskable=facts.maskable)
    if not policy.rules:
        return Terms(action, policy.mode, zones.zones_of_action(action), zones.ANYWHERE, None, None, None)
    rule = next((rule for rule in policy.rules if matches(rule.match, facts)), None)
    by_rule = zones.ANYWHERE
    if facts.privacy_class is _UNKNOWN:
        possible = [rule for rule in policy.rules if could_match(rule.match, facts)]
        action = narrowest(action, *(each.act.action for each in possible if each.act.action is not None))
        action = Action.EDGE_ONLY if action is Action.MASK else action
        by_rule = _no_farther_than(each.act.zones for each in possible if each.act.zones is not None)
    elif rule is not None:
        action = _action(rule, action)
    if rule is None:
        return Terms(action, policy.mode, zones.zones_of_action(action), by_rule, None, None, None)
    act = rule.act
    if action is Action.MASK and not _can_mask(act, facts):
        action = Action.EDGE_ONLY
    if act.zones is not None:
        by_rule = by_rule & act.zones or by_rule
    return Terms(
        action=action,
        mode=act.mode or policy.mode,
        by_privacy=zones.zones_of_action(action),
        by_rule=by_rule,
        output_cap_tokens=act.output_cap_tokens,
        mask_kinds=act.mask_kinds,
        rule=rule.name,
        scan_answers=act.scan_answers,
        resume=act.resume is True,
        hedge_ms=act.hedge_ms,
    )


def matches(match: Match, facts: DecisionFacts) -> bool:
    """Whether all conditions hold for a request as it was found to be."""
    return (
        (match.classes is None or facts.privacy_class in match.classes)
        and (match.any_entity is None or not match.any_entity.isdisjoint(facts.entity_kinds))
        and (match.only_entities is None or (bool(facts.entity_kinds) and facts.entity_kinds <= match.only_entities))
        and could_match(match, facts)
    )


def could_match(match: Match, facts: DecisionFacts) -> bool:
    """Whether the conditions hold that do not depend on what a scan finds."""
    request = facts.request
    prompt = request.prompt_tokens_estimate
    return (
        (match.models is None or any(_is_like(request.model, each) for each in match.models))
        and (match.keys is None or any(_is_like(facts.key_name or "", each) for each in match.keys))
        and (match.routes is None or facts.route in match.routes)
        and (match.features is None or match.features <= request.features)
        and (match.min_prompt_tokens is None or prompt >= match.min_prompt_tokens)
        and (match.max_prompt_tokens is None or prompt <= match.max_prompt_tokens)
        and (match.week_minutes is None or any(start <= facts.week_minute < end for start, end in match.week_minutes))
    )


def _is_like(name: str, pattern: str) -> bool:
    """Whether a name is the pattern, in which `*` stands for any characters."""
    if "*" not in pattern:
        return name == pattern
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _action(rule: Rule, default: Action) -> Action:
    asked = rule.act.action
    if asked is None:
        return default
    return asked if rule.match.classes is not None else narrowest(default, asked)


def _can_mask(act: Act, facts: DecisionFacts) -> bool:
    """Whether everything that was found may be replaced; what holds another kind stays where it is."""
    return (
        facts.maskable
        and facts.privacy_class is not _UNKNOWN
        and (act.mask_kinds is None or facts.entity_kinds <= act.mask_kinds)
    )


def _no_farther_than(limits: Iterable[frozenset[Zone]]) -> frozenset[Zone]:
    """The zones up to the farthest one of the narrowest limit, counted from the user's data."""
    farthest = min((max(_NEAR_TO_FAR.index(zone) for zone in limit) for limit in limits), default=len(_NEAR_TO_FAR))
    return frozenset(_NEAR_TO_FAR[: farthest + 1])
