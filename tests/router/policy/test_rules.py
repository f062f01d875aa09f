"""Policies that are refused, and the digest that names the one in force."""

from __future__ import annotations

import pytest

from router.policy.model import Mode
from shared.errors import SettingsError
from shared.privacy import Action, PrivacyClass
from tests.router.policy.builders import ACTIONS, policy


def test_pv_03_mask_is_an_action_like_the_others() -> None:
    assert policy(actions={**ACTIONS, PrivacyClass.PERSONAL: Action.MASK}).action(PrivacyClass.PERSONAL) is Action.MASK
    with pytest.raises(SettingsError) as caught:
        policy(actions={**ACTIONS, PrivacyClass.PERSONAL: Action.EDGE_ONLY, PrivacyClass.SECRET: Action.MASK})
    assert caught.value.param == "router.policy.actions.secret"


def test_a_stricter_class_cannot_have_a_wider_action() -> None:
    with pytest.raises(SettingsError) as caught:
        policy(actions={**ACTIONS, PrivacyClass.SECRET: Action.ANY})
    assert caught.value.param == "router.policy.actions.secret"


def test_a_class_that_is_not_named_stays_on_the_edge() -> None:
    assert policy(actions={}).action(PrivacyClass.PUBLIC) is Action.EDGE_ONLY


def test_the_digest_names_the_content_and_nothing_else() -> None:
    assert policy().digest == policy(actions=dict(reversed(list(ACTIONS.items())))).digest
    assert policy().digest.startswith("sha256:")
    changed = [policy(Mode.FASTEST), policy(dwell_ms=1), policy(stale_after_ms=1), policy(hysteresis_ratio=0.3)]
    assert len({p.digest for p in [policy(), *changed]}) == 5
