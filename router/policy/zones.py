"""Decides where a request may go at all: privacy first, then the caller, who may only narrow.

`mask` lets a body travel that was masked as a whole; where that cannot be done, and for what was not scanned as a
whole, it means the same as `edge_only`.
"""

from __future__ import annotations

from router.policy.model import Mode, Policy, Route
from shared.fleet import Zone
from shared.privacy import Action, PrivacyClass, narrowest

ANYWHERE: frozenset[Zone] = frozenset(Zone)
EDGE: frozenset[Zone] = frozenset({Zone.DEVICE, Zone.SITE})
CLOUD: frozenset[Zone] = frozenset({Zone.CLOUD})
NOWHERE: frozenset[Zone] = frozenset()

_BY_ACTION = {Action.ANY: ANYWHERE, Action.MASK: ANYWHERE, Action.EDGE_ONLY: EDGE, Action.BLOCK: NOWHERE}
_BY_ROUTE = {Route.AUTO: ANYWHERE, Route.EDGE: EDGE, Route.CLOUD: CLOUD}
_BY_MODE = {
    Mode.PREFER_EDGE: ANYWHERE,
    Mode.ONLY_EDGE: EDGE,
    Mode.PREFER_CLOUD: ANYWHERE,
    Mode.ONLY_CLOUD: CLOUD,
    Mode.FASTEST: ANYWHERE,
}


def action_for(policy: Policy, privacy_class: PrivacyClass, *, maskable: bool = True) -> Action:
    """The action in force for a class. `unknown` is never treated better than any other class, and nothing is masked
    that was not scanned as a whole."""
    if privacy_class is PrivacyClass.UNKNOWN:
        action, maskable = narrowest(*(policy.action(each) for each in PrivacyClass)), False
    else:
        action = policy.action(privacy_class)
    return Action.EDGE_ONLY if action is Action.MASK and not maskable else action


def zones_of_action(action: Action) -> frozenset[Zone]:
    """Zones that privacy leaves."""
    return _BY_ACTION[action]


def zones_of_route(route: Route) -> frozenset[Zone]:
    """Zones that the caller's override leaves."""
    return _BY_ROUTE[route]


def zones_of_mode(mode: Mode) -> frozenset[Zone]:
    """Zones that the operator's mode leaves."""
    return _BY_MODE[mode]
