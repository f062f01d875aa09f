"""Request models of the OpenAI surface, strict in type and range.

They check and are then thrown away: the caller's bytes travel on unchanged, so a field that is not named here
passes through as it came. Limits are OpenAI's published ones where it publishes them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from shared.openai.schema import check_schema
from shared.openai.structured import StructuredOutputs

MAX_MESSAGES = 4096
MAX_OUTPUT_TOKENS = 2**31 - 1
MAX_TOKEN_ID = 2**20 - 1
"""Above the largest vocabulary in use (262,144); an engine checks against its own vocabulary after this."""
_TOKEN_ID = re.compile(r"(0|[1-9][0-9]{0,6})\Z")
_SEED_LIMIT = 2**63 - 1


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
NonEmpty = Annotated[str, StringConstraints(min_length=1)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\s\x00-\x1f]+$")]
Tokens = Annotated[int, Field(ge=1, le=MAX_OUTPUT_TOKENS)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]


class TextPart(_Strict):
    type: Literal["text"]
    text: str


class MediaPart(_Strict):
    type: Literal["image_url", "input_audio", "file"]


class RefusalPart(_Strict):
    type: Literal["refusal"]
    refusal: str


Part = Annotated[TextPart | MediaPart | RefusalPart, Field(discriminator="type")]
Content = str | Annotated[list[Part], Field(min_length=1)]


class SystemMessage(_Strict):
    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(_Strict):
    role: Literal["user"]
    content: Content
    name: str | None = None


class CalledFunction(_Strict):
    name: NonEmpty
    arguments: str


class ToolCall(_Strict):
    id: NonEmpty
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(_Strict):
    role: Literal["assistant"]
    content: Content | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(min_length=1, max_length=128)] | None = None
    function_call: CalledFunction | None = None

    @model_validator(mode="after")
    def _says_something(self) -> AssistantMessage:
        if self.content is None and not self.tool_calls and self.function_call is None and self.refusal is None:
            raise FieldError("content", "content is required unless the message calls a tool")
        return self


class ToolMessage(_Strict):
    role: Literal["tool"]
    content: Content
    tool_call_id: NonEmpty


class FunctionMessage(_Strict):
    role: Literal["function"]
    content: str | None
    name: NonEmpty


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage,
    Field(discriminator="role"),
]


class FieldError(ValueError):
    """A rule over several fields failed; `field` says where, below the model that raised it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _check_parameters(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise ValueError("the parameters of a function must be a schema of type object")
    return check_schema(schema)


class FunctionTool(_Strict):
    name: Name
    description: str | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(_check_parameters)] | None = None
    strict: bool | None = None


class Tool(_Strict):
    type: Literal["function"]
    function: FunctionTool


class NamedFunction(_Strict):
    name: Name


class NamedTool(_Strict):
    type: Literal["function"]
    function: NamedFunction


class TextFormat(_Strict):
    type: Literal["text"]


class JsonObjectFormat(_Strict):
    type: Literal["json_object"]


class JsonSchema(_Strict):
    name: Name
    description: str | None = None
    schema_: Annotated[dict[str, Any], AfterValidator(check_schema)] = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(_Strict):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class StreamOptions(_Strict):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def _check_bias(bias: dict[str, Any]) -> dict[str, Any]:
    for key in bias:
        if not _TOKEN_ID.match(key) or int(key) > MAX_TOKEN_ID:
            raise ValueError(f"every key must be a token id between 0 and {MAX_TOKEN_ID}")
    return bias


LogitBias = Annotated[
    dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024), AfterValidator(_check_bias)
]
Stop = NonEmpty | Annotated[list[NonEmpty], Field(max_length=16)]


class LoraEntry(_Strict):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    name: ModelName
    scale: Annotated[float, Field(ge=0, le=8)] | None = None


Lora = ModelName | LoraEntry | Annotated[list[ModelName | LoraEntry], Field(max_length=8)]
"""Adapters of an edge model, by name: a field of ours beside OpenAI's."""


class Sampled(_Strict):
    """Fields shared by chat and legacy completions."""

    model: ModelName
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_TOKEN_ID)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None
    logit_bias: LogitBias | None = None
    seed: Annotated[int, Field(ge=-_SEED_LIMIT - 1, le=_SEED_LIMIT)] | None = None
    stop: Stop | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    user: Annotated[str, StringConstraints(max_length=512)] | None = None
    lora: Lora | None = None
    structured_outputs: StructuredOutputs | None = None

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> Sampled:
        if self.stream_options is not None and not self.stream:
            raise FieldError("stream_options", "stream_options is allowed only with stream set to true")
        return self


class ChatRequest(Sampled):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise FieldError("top_logprobs", "top_logprobs is allowed only with logprobs set to true")
        if isinstance(self.tool_choice, NamedTool):
            wanted = self.tool_choice.function.name
            if wanted not in [tool.function.name for tool in self.tools or ()]:
                raise FieldError("tool_choice", "tool_choice names a function that is not in tools")
        elif self.tool_choice in ("auto", "required") and not self.tools:
            raise FieldError("tool_choice", "tool_choice is allowed only when tools are given")
        self._check_results()
        if self.continue_final_message:
            self._check_continuation()
        if self.max_tokens and self.max_completion_tokens and self.max_tokens != self.max_completion_tokens:
            raise FieldError("max_tokens", "max_tokens and max_completion_tokens disagree")
        return self

    def _check_results(self) -> None:
        """A result without its call is read by no template as what it is."""
        called: set[str] = set()
        for index, message in enumerate(self.messages):
            if isinstance(message, AssistantMessage):
                called.update(call.id for call in message.tool_calls or ())
            elif isinstance(message, ToolMessage) and message.tool_call_id not in called:
                raise FieldError(f"messages[{index}].tool_call_id", "no call of that id stands before this result")

    def _check_continuation(self) -> None:
        last = self.messages[-1]
        if self.add_generation_prompt:
            raise FieldError("add_generation_prompt", "it cannot be true together with continue_final_message")
        if not isinstance(last, AssistantMessage) or last.tool_calls or not last.content:
            raise FieldError("continue_final_message", "the last message must be an assistant's text, not empty")


Tokenised = Annotated[list[TokenId], Field(min_length=1)]
Prompt = (
    NonEmpty
    | Annotated[list[NonEmpty], Field(min_length=1, max_length=128)]
    | Tokenised
    | Annotated[list[Tokenised], Field(min_length=1, max_length=128)]
)


class CompletionRequest(Sampled):
    """POST /v1/completions."""

    prompt: Prompt
    suffix: str | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    best_of: Annotated[int, Field(ge=1, le=20)] | None = None


EMBEDDING_INPUTS = 2048
"""Texts of one request, as at OpenAI: clients collect a thousand before they ask."""
EmbeddingInput = (
    NonEmpty
    | Annotated[list[NonEmpty], Field(min_length=1, max_length=EMBEDDING_INPUTS)]
    | Tokenised
    | Annotated[list[Tokenised], Field(min_length=1, max_length=EMBEDDING_INPUTS)]
)


class EmbeddingRequest(_Strict):
    """POST /v1/embeddings."""

    model: ModelName
    input: EmbeddingInput
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=65536)] | None = None
