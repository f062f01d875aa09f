"""The model's name is replaced in place; nothing else of a body changes."""

from __future__ import annotations

import orjson
import pytest

from router.dispatch.rewrite import with_model


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"a","x":1.50}',
        b'{ "x" : {"model":"inner"}, "y":["model","model"], "model" :\n "a" }',
        b'{"text":"\\"model\\":\\"no\\"","messages":[{"model":"inner"}],"model":"a"}',
        b'{"mod\\u0065l":"a"}',
        '{"漢":"é🦀","model":"a"}'.encode(),
    ],
)
def test_only_the_bodys_own_model_changes(raw: bytes) -> None:
    changed = with_model(raw, 'new "id"')
    expected = {**orjson.loads(raw), "model": 'new "id"'}
    assert orjson.loads(changed) == expected
    at = changed.index(b'"new')
    assert changed[:at] == raw[:at] and raw.endswith(changed[at + len(b'"new \\"id\\""') :])


def test_a_body_without_one_is_refused() -> None:
    with pytest.raises(ValueError, match="no model"):
        with_model(b'{"a":{"model":"x"}}', "y")
