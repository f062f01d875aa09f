"""A body that holds more than text is said to, wherever that stands; settings and schemas are no media."""

from __future__ import annotations

from typing import Any

import pytest

from shared.openai.unreadable import has_undecodable

_USER = {"role": "user", "content": "hello"}


_PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0"}}


def _document(source: Any) -> dict[str, Any]:
    """A document as the messages API has it."""
    return _chat({"role": "user", "content": [{"type": "document", "title": "Letter", "source": source}]})


def _chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages or (_USER,)), **more}


@pytest.mark.parametrize(
    "body",
    [
        _chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}),
        _chat({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "input_audio", "input_audio": {}}]}),
        _chat({"role": "tool", "tool_call_id": "c", "content": [{"type": "file", "file": {}}]}),
        {"model": "m", "prompt": [1, 2, 3]},
        {"model": "m", "prompt": [[1, 2], [3]]},
        {"model": "m", "input": [7]},
        _chat({"role": "user", "content": [{"type": "text", "text": "x", "image_url": {"url": "data:image/png,AA"}}]}),
        _chat({"role": "user", "content": [{"type": "text", "text": "x", "input_audio": {"data": "AA"}}]}),
        _chat({"role": "user", "content": "x", "images": ["AAAA"]}),
        _chat({"role": "assistant", "content": "x", "audio": {"id": "a"}}),
        _chat(prompt_embeds="AAAA"),
        _chat(prompt_token_ids=[1, 2]),
        _chat(input_ids=[[1, 2]]),
        _chat(inputs_embeds=[[0.5, 0.25]]),
        _chat(extra={"multi_modal_data": {"image": "AAAA"}}),
        _chat(audio="AAAA"),
        _document({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0"}),
        _document({"type": "url", "url": "https://example.org/letter.pdf"}),
        _document({"type": "file", "file_id": "file_1"}),
        _document({"type": "a kind of tomorrow"}),
        _document({"type": ["text"]}),
        _document("https://example.org/letter.pdf"),
        _document({"type": "content", "content": [{"type": "image", "source": {"type": "base64", "data": "iVBOR"}}]}),
        _chat({"role": "user", "content": [{"type": "tool_result", "content": [_PDF]}]}),
        _chat({"role": "user", "content": [{"type": "new", "source": {"type": "base64", "data": "JVBERi0"}}]}),
        _chat({"role": "user", "content": [{"type": "new", "base64": "JVBERi0"}]}),
    ],
    ids=str,
)
def test_what_no_scanner_can_read_is_said_so(body: dict[str, Any]) -> None:
    """PI-09: what was not scanned is unknown."""
    assert has_undecodable(body)


@pytest.mark.parametrize(
    "body",
    [
        _chat(),
        {"model": "m", "prompt": "text"},
        {"model": "m", "prompt": ["a", "b"]},
        _chat(modalities=["text"], audio={"voice": "alloy", "format": "wav"}),
        _chat(stop_token_ids=[1, 2], logit_bias={"5": 1}, max_tokens=3, image_url=None, file=""),
        _chat(metadata={"file": "report"}),
        _chat(
            tools=[
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"properties": {"image": {"type": "string"}}}},
                }
            ]
        ),
        _chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": {"type": {}}}}}]),
        _document({"type": "text", "media_type": "text/plain", "data": "a letter"}),
        _document({"type": "content", "content": [{"type": "text", "text": "a letter"}]}),
        _chat({"role": "user", "content": [{"type": "document", "text": "a letter"}]}),
        _chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": {"base64": {}}}}}]),
    ],
    ids=str,
)
def test_plain_text_is_readable(body: dict[str, Any]) -> None:
    assert not has_undecodable(body)
