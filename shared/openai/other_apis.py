"""Request models of the responses and the messages API: what the router must know of them, strict in type and range.

Backends that serve these routes check the rest; whatever is not named here passes through as it came.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shared.openai.wire import MAX_MESSAGES, ModelName, NonEmpty, Tokens


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)


Tools = Annotated[list[dict[str, Any]], Field(max_length=128)]


class TextOptions(_Strict):
    format: dict[str, Any] | None = None


class ResponsesRequest(_Strict):
    """POST /v1/responses."""

    model: ModelName
    input: NonEmpty | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    stream: bool | None = None
    background: Literal[False] | None = None
    """An answer that is fetched later would come past the router."""
    max_output_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    text: TextOptions | None = None
    truncation: Literal["disabled"] | None = None
    """No prompt is cut here, and a backend that cut one would answer to less than was asked, unseen."""
    tools: Tools | None = None
    user: Annotated[str, StringConstraints(max_length=512)] | None = None


Blocks = Annotated[list[dict[str, Any]], Field(min_length=1)]


class Turn(_Strict):
    role: Literal["user", "assistant"]
    content: str | Blocks


class MessagesRequest(_Strict):
    """POST /v1/messages."""

    model: ModelName
    max_tokens: Tokens
    messages: Annotated[list[Turn], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | Blocks | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    stop_sequences: Annotated[list[NonEmpty], Field(max_length=16)] | None = None
    tools: Tools | None = None
