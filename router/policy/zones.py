"""Decides where a request may go at all: privacy first, then the caller, who may only narrow.

`mask` lets bytes travel only once masking exists; until then it means the same as `edge_only` here, and loading a
policy that asks for it is refused (`router.policy.rules`), so that nobody believes a mask is applied.
"""

from __future__ import annotations

from router.policy.model import Mode, Policy, Route
from shared.fleet import Zone
from shared.privacy import Action, PrivacyClass, narrowest

ANYWHERE: frozenset[Zone] = frozenset(Zone)
EDGE: frozenset[Zone] = frozenset({Zone.DEVICE, Zone.SITE})
CLOUD: frozenset[Zone] = frozenset({Zone.CLOUD})
NOWHERE: frozenset[Zone] = frozenset()

_BY_ACTION = {Action.ANY: ANYWHERE, Action.MASK: EDGE, Action.EDGE_ONLY: EDGE, Action.BLOCK: NOWHERE}
_BY_ROUTE = {Route.AUTO: ANYWHERE, Route.EDGE: EDGE, Route.CLOUD: CLOUD}
_BY_MODE = {
    Mode.PREFER_EDGE: ANYWHERE,
    Mode.ONLY_EDGE: EDGE,
    Mode.PREFER_CLOUD: ANYWHERE,
    Mode.ONLY_CLOUD: CLOUD,
    Mode.FASTEST: ANYWHERE,
}


def action_for(policy: Policy, privacy_class: PrivacyClass) -> Action:
    """The action in force for a class. `unknown` is never treated better than any other class."""
    if privacy_class is PrivacyClass.UNKNOWN:
        return narrowest(*(policy.action(each) for each in PrivacyClass))
    return policy.action(privacy_class)


def zones_of_action(action: Action) -> frozenset[Zone]:
    """Zones that privacy leaves."""
    return _BY_ACTION[action]


def zones_of_route(route: Route) -> frozenset[Zone]:
    """Zones that the caller's override leaves."""
    return _BY_ROUTE[route]


def zones_of_mode(mode: Mode) -> frozenset[Zone]:
    """Zones that the operator's mode leaves."""
    return _BY_MODE[mode]
