"""Says whether a body holds what no text scanner reads: pictures, sound, files, token ids, embeddings.

A part's tag is not the only place for them. Some engines take a picture from any part that has its key, token ids or
embeddings from fields beside the messages, and the rest of the body travels with those in any case.
"""

from __future__ import annotations

import re
from typing import Any

_MEDIA = frozenset(
    {"image_url", "input_image", "input_audio", "file", "input_file", "video_url", "audio_url", "image", "images"}
    | {"video", "videos", "audio", "audios", "input_video", "file_data", "file_id", "file_url"}
    | {"base64", "image_pil", "multi_modal_data", "encrypted_content", "redacted_thinking"}
)
"""Tags of parts that are media, and the keys under which they stand."""
_READ_SOURCES = ("text", "content")
"""Sources of a document of the messages API that hold its text, or parts that are looked at one by one."""
_NUMBERED = re.compile(
    r"(?:(?:prompt|inputs?|images?|audios?|videos?|encoder|decoder)_)+(?:token_ids|tokens?|ids|embeds?|embeddings?)"
    r"|token_ids"
)
"""Keys of texts and media that are given as numbers. Fields that steer the choice of tokens are none."""
_SCHEMAS = frozenset({"tools", "functions", "response_format", "metadata", "guided_json", "structured_outputs"})
"""Fields with keys of the caller's own choice: a property may be called `file`. A part's tag counts there too."""
_PLAIN = frozenset({"model", "messages", "role", "content", "text", "stream", "temperature", "max_tokens", "name"})
"""Keys of most objects, and none of them stands for media: they need no second look."""


def has_undecodable(body: dict[str, Any]) -> bool:
    """Whether some part of `body` is media, token ids or embeddings."""
    if ("prompt" in body and _holds_token_ids(body["prompt"])) or ("input" in body and _holds_token_ids(body["input"])):
        return True
    pending: list[tuple[Any, bool]] = []
    for name, value in body.items():
        named = name not in _SCHEMAS
        if name not in _PLAIN:
            if name == "audio" and isinstance(value, dict):
                continue  # of an answer in sound, the voice and format are chosen here: no sound is sent
            if (named and _is_media(name, value)) or (name == "type" and _is_tag(value)):
                return True
        if type(value) is dict or type(value) is list:
            pending.append((value, named))
    while pending:
        node, named = pending.pop()
        if type(node) is dict:
            # A schema may have a property named `type`; only a part's own tag is a string.
            if not _PLAIN.issuperset(node) and (
                _is_part(node) or (named and any(_is_media(key, value) for key, value in node.items()))
            ):
                return True
            node = node.values()
        pending.extend([(value, named) for value in node if type(value) is dict or type(value) is list])
    return False


def _is_part(node: dict[str, Any]) -> bool:
    """Whether a part's own tag says that it is media, or a document whose text is not in it."""
    tag = node.get("type")
    if tag == "document" and "source" in node:
        source = node["source"]
        return not isinstance(source, dict) or source.get("type") not in _READ_SOURCES
    return _is_tag(tag)


def _is_tag(tag: Any) -> bool:
    return isinstance(tag, str) and (tag in _MEDIA or _NUMBERED.fullmatch(tag) is not None)


def _is_media(key: str, value: Any) -> bool:
    if key not in _MEDIA and ("_" not in key or _NUMBERED.fullmatch(key) is None):
        return False
    return isinstance(value, (str, list, dict)) and bool(value)


def _holds_token_ids(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return any((isinstance(v, int) and not isinstance(v, bool)) or _holds_token_ids(v) for v in value)
