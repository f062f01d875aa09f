"""Request bodies of Ollama's API, strict in type: what they mean in OpenAI's words is checked there once more.

Fields and options that are not named here are left alone, as Ollama does.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from shared.openai.validation import fault_in
from shared.openai.wire import MAX_MESSAGES, ModelName

_DURATION = re.compile(r"[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|[0-9]+)\Z")
_LOAD_LIMIT = 2**31 - 1


def _whole(value: Any) -> Any:
    """A whole number that a client wrote with a fraction of zero."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _lowered(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _duration(value: float | str | None) -> float | str | None:
    if isinstance(value, str) and not _DURATION.match(value):
        raise ValueError('a duration is a number of seconds or a text such as "5m"')
    return value


def _format(value: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if isinstance(value, str) and value not in ("", "json"):
        raise ValueError('expected "json" or a JSON schema')
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)


Whole = Annotated[int, BeforeValidator(_whole)]
Load = Annotated[int, BeforeValidator(_whole), Field(ge=-1, le=_LOAD_LIMIT)] | None
KeepAlive = Annotated[float | str | None, AfterValidator(_duration)]
Format = Annotated[str | dict[str, Any] | None, AfterValidator(_format)]
Think = bool | Literal["low", "medium", "high", "max", ""] | None


class Options(_Strict):
    """Ollama's `options`. Those of loading a model are checked and without effect: here the operator decides them."""

    temperature: float | None = None
    top_k: Whole | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    mirostat: Whole | None = None
    repeat_penalty: float | None = None
    repeat_last_n: Annotated[int, BeforeValidator(_whole), Field(ge=-1, le=_LOAD_LIMIT)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: Whole | None = None
    num_predict: Annotated[int, BeforeValidator(_whole), Field(ge=-2, le=_LOAD_LIMIT)] | None = None
    stop: list[str] | None = None

    num_keep: Load = None
    num_ctx: Load = None
    num_batch: Load = None
    num_gpu: Load = None
    main_gpu: Load = None
    num_thread: Load = None
    draft_num_predict: Load = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    numa: bool | None = None
    low_vram: bool | None = None


class CalledFunction(_Strict):
    name: str
    arguments: dict[str, Any] | None = None


class ToolCall(_Strict):
    id: str | None = None
    function: CalledFunction


class Message(_Strict):
    role: Annotated[Literal["system", "user", "assistant", "tool"], BeforeValidator(_lowered)]
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class _Generating(_Strict):
    """Fields of both routes that generate text. `keep_alive` and `truncate` change nothing: the model stays loaded, and
    no prompt is cut."""

    model: ModelName
    stream: bool | None = None
    format: Format = None
    options: Options | None = None
    keep_alive: KeepAlive = None
    think: Think = None
    truncate: bool | None = None
    shift: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class ChatBody(_Generating):
    """POST /api/chat."""

    messages: Annotated[list[Message], Field(max_length=MAX_MESSAGES)] | None = None
    tools: list[dict[str, Any]] | None = None


class GenerateBody(_Generating):
    """POST /api/generate."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[str] | None = None


class ShowBody(_Strict):
    """POST /api/show; `name` is what older clients call the model."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None


class EmbedBody(_Strict):
    """POST /api/embed (`input`) and /api/embeddings (`prompt`)."""

    model: ModelName
    input: str | list[str] | None = None
    prompt: str | None = None
    truncate: bool | None = None
    dimensions: int | None = None
    options: Options | None = None
    keep_alive: KeepAlive = None


Body = TypeVar("Body", bound=BaseModel)


def read(model: type[Body], body: dict[str, Any]) -> Body:
    """`body` as `model`.

    Raises:
        InvalidRequest: `param` is the path of the field at fault, such as `options.temperature`.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise fault_in(body, error) from None
