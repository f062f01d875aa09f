"""Answers are read text by text: values come back wherever a model writes, and nothing tells what was replaced."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.privacy.answers import AnswerFilter
from router.privacy.placeholders import Placeholders
from router.privacy.returning import Answers, AnswerScanning
from router.privacy.scanner import Scanner

CARD = "4111 1111 1111 1111"
TOKENS = {"content": [{"token": "4111", "logprob": -0.1, "bytes": [52], "top_logprobs": []}]}


@pytest.fixture
def placeholders() -> Placeholders:
    known = Placeholders()
    known.stand_in("card", CARD)
    known.stand_in("password", 'a"b\\c')
    return known


def _filter(scanner: Scanner, placeholders: Placeholders | None, *, scan: bool) -> AnswerFilter:
    answers = Answers(scanner, AnswerScanning.OFF, on_found=lambda kind: None)
    return AnswerFilter(answers.filters(placeholders, scan=scan)["cloud"])


def _whole(answer: AnswerFilter, message: dict[str, Any], **more: Any) -> Any:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **more}
    return orjson.loads(answer.whole(orjson.dumps({"id": "x", "choices": [choice]})))["choices"][0]


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return b"data: " + orjson.dumps({"id": "x", "choices": [choice]}) + b"\n\n"


def _choices(events: list[bytes]) -> list[dict[str, Any]]:
    read = [orjson.loads(event[6:]) for event in events if event.startswith(b"data: {")]
    return [choice for chunk in read for choice in chunk["choices"]]


def test_values_come_back_in_every_text_of_a_message(scanner: Scanner, placeholders: Placeholders) -> None:
    called = [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":"[CARD_1]","b":"[PASSWORD_1]"}'}},
        {"id": "2", "type": "custom", "custom": {"name": "g", "input": "[CARD_1] [PASSWORD_1]"}},
    ]
    said = {name: f"<[CARD_1] {name}>" for name in ("content", "refusal", "reasoning_content", "reasoning")}
    message = _whole(
        _filter(scanner, placeholders, scan=False),
        {**said, "tool_calls": called, "function_call": {"name": "f", "arguments": '"[PASSWORD_1]"'}},
    )["message"]
    assert {message[name] for name in said} == {f"<{CARD} {name}>" for name in said}
    assert orjson.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": CARD, "b": 'a"b\\c'}
    assert message["tool_calls"][1]["custom"]["input"] == CARD + ' a"b\\c'
    assert orjson.loads(message["function_call"]["arguments"]) == 'a"b\\c'


def test_the_input_of_a_custom_tool_is_restored_over_chunks(scanner: Scanner, placeholders: Placeholders) -> None:
    answer = _filter(scanner, placeholders, scan=False)
    events: list[bytes] = []
    for at, piece in enumerate(("pay [CA", "RD_", "1] n", "ow [PASS")):
        call: dict[str, Any] = {"index": 0, "custom": {"input": piece}}
        if at == 0:
            call |= {"id": "1", "type": "custom"}
            call["custom"]["name"] = "g"
        events += answer.events(_chunk({"tool_calls": [call]}))
    events += answer.events(_chunk({}, "tool_calls"))
    calls = [call for choice in _choices(events) for call in choice["delta"].get("tool_calls", ())]
    assert "".join(call["custom"]["input"] for call in calls) == f"pay {CARD} now [PASS"
    assert calls[0]["custom"]["name"] == "g"


@pytest.mark.parametrize("scan", [True, False])
def test_log_probabilities_do_not_spell_out_what_a_scan_replaced(
    scanner: Scanner, placeholders: Placeholders, scan: bool
) -> None:
    """Where nothing but placeholders is exchanged they are the model's own, and stay."""
    kept = None if scan else TOKENS
    whole = _whole(_filter(scanner, placeholders, scan=scan), {"content": f"It is {CARD}."}, logprobs=TOKENS)
    assert whole["logprobs"] == kept
    answer = _filter(scanner, placeholders, scan=scan)
    events = answer.events(_chunk({"content": f"It is {CARD}."}, logprobs=TOKENS))
    events += answer.events(_chunk({}, "stop", logprobs=None))
    assert [choice["logprobs"] for choice in _choices(events) if choice.get("logprobs")] == ([] if scan else [TOKENS])
    assert ("4111" in b"".join(events).decode()) is not scan
