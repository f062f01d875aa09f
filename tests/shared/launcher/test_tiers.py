"""When a tier counts as ready."""

from __future__ import annotations

import json

import pytest

from shared.launcher.tiers import CLOUD


@pytest.mark.parametrize(
    ("states", "is_ready"),
    [
        (["ready"], True),
        (["ready", "scaled_to_zero"], True),
        (["scaled_to_zero"], True),
        (["ready", "starting"], False),
        (["ready", "failed"], False),
        ([], False),
    ],
)
def test_a_cloud_is_ready_when_no_model_is_waited_for(states: list[str], is_ready: bool) -> None:
    body = {"models": [{"model_id": str(number), "state": state} for number, state in enumerate(states)]}
    assert CLOUD.is_ready(json.dumps(body).encode()) is is_ready


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"models":[{}]}', b'{"models":1}'])
def test_what_is_no_capacity_is_not_ready(body: bytes) -> None:
    assert not CLOUD.is_ready(body)
