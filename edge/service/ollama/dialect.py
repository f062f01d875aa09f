"""Ollama's `/api/chat` and `/api/generate` as dialects: bodies in OpenAI's words, answers in lines of JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import orjson

from edge.service.dialect import Asked
from edge.service.ollama.lines import Lines, WholeLine
from edge.service.ollama.messages import conversation, refuse_images
from edge.service.ollama.naming import model_of
from edge.service.ollama.options import response_format, sampling
from edge.service.ollama.voice import Said, Shape, Voice, as_message, as_response
from edge.service.ollama.wire import ChatBody, GenerateBody, read
from edge.service.translation import EngineRequest
from shared.clock import Clock
from shared.errors import InvalidRequest, IsthmusError
from shared.openai.facts import Endpoint
from shared.openai.wire import MAX_OUTPUT_TOKENS

CHAT = "/api/chat"
GENERATE = "/api/generate"
_UNSUPPORTED = "unsupported_parameter"


class OllamaDialect(ABC):
    """What both routes do alike. A dialect serves one request; `asked_model` is the name that its caller used."""

    stream_type = "application/x-ndjson"
    typed = False
    """Ollama's users post JSON without saying so, as curl does by itself."""

    def __init__(self, route: str, shape: Shape, clock: Clock) -> None:
        self.route = route
        self.asked_model = ""
        self._shape = shape
        self._clock = clock
        self._started_ms = clock.now_ms()

    @abstractmethod
    def read(self, body: dict[str, Any]) -> Asked: ...

    def chunks(self, request: EngineRequest) -> Lines:
        return Lines(request, self._voice())

    def whole(self, request: EngineRequest) -> WholeLine:
        return WholeLine(request, self._voice())

    def keepalive(self) -> bytes:
        """A piece without text: clients read every line as part of the answer."""
        return self._voice().piece(Said())

    def broken(self, error: IsthmusError) -> bytes:
        return orjson.dumps({"error": error.message, "code": error.code}) + b"\n"

    def _voice(self) -> Voice:
        return Voice(self.asked_model, self._shape, self._clock, self._started_ms)

    def _asked(self, endpoint: Endpoint, given: ChatBody | GenerateBody, fields: dict[str, Any]) -> Asked:
        if given.think:
            raise InvalidRequest("This model does not support thinking.", param="think", code=_UNSUPPORTED)
        body = {"model": model_of(given.model), **fields, **sampling(given.options)}
        if given.stream is not False:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        # Ollama's num_predict is the most that is wanted: front ends set it far above what any context holds.
        window = None if given.options is None else given.options.repeat_last_n
        return Asked(endpoint, body, limit_is_bound=True, penalty_window_tokens=window)

    def _loaded(self, given: ChatBody | GenerateBody) -> Asked:
        """Who asks for no text wants the model loaded, which it is; unloading it is the operator's affair."""
        body = {"model": model_of(given.model)}
        return Asked(Endpoint.CHAT, body, at_once=self._voice().end(Said(), "load"))


class Chat(OllamaDialect):
    """POST /api/chat."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(CHAT, as_message, clock)

    def read(self, body: dict[str, Any]) -> Asked:
        given = read(ChatBody, body)
        self.asked_model = given.model
        if not given.messages:
            return self._loaded(given)
        fields: dict[str, Any] = {"messages": conversation(given.messages), **response_format(given.format)}
        if given.tools:
            fields["tools"] = given.tools
        return self._asked(Endpoint.CHAT, given, fields | _chat_logprobs(given))


class Generate(OllamaDialect):
    """POST /api/generate: a prompt that goes through the model's template as a user's message does, or `raw`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(GENERATE, as_response, clock)

    def read(self, body: dict[str, Any]) -> Asked:
        given = read(GenerateBody, body)
        self.asked_model = given.model
        if not given.prompt:
            return self._loaded(given)
        _refuse_what_is_missing(given)
        if given.raw:
            return self._asked(Endpoint.COMPLETIONS, given, _raw(given))
        system = [{"role": "system", "content": given.system}] if given.system else []
        messages = [*system, {"role": "user", "content": given.prompt}]
        fields = {"messages": messages, **response_format(given.format), **_chat_logprobs(given)}
        return self._asked(Endpoint.CHAT, given, fields)


def _chat_logprobs(given: ChatBody | GenerateBody) -> dict[str, Any]:
    return {"logprobs": given.logprobs, "top_logprobs": given.top_logprobs}


def _raw(given: GenerateBody) -> dict[str, Any]:
    if given.format:
        raise InvalidRequest("A format is not supported with raw.", param="format", code=_UNSUPPORTED)
    if given.system:
        raise InvalidRequest("A raw prompt takes no system message.", param="system")
    # OpenAI's default of this route is 16 tokens, Ollama's none.
    fields: dict[str, Any] = {"prompt": given.prompt, "max_tokens": MAX_OUTPUT_TOKENS}
    return fields | ({"logprobs": given.top_logprobs or 0} if given.logprobs else {})


def _refuse_what_is_missing(given: GenerateBody) -> None:
    refuse_images(given.images, "images")
    if given.suffix:
        raise InvalidRequest("This model does not support insert.", param="suffix", code=_UNSUPPORTED)
    if given.template:
        raise InvalidRequest("The model's own template is used.", param="template", code=_UNSUPPORTED)
    if given.context:
        message = "No context of token ids is taken; a conversation goes into the messages of /api/chat."
        raise InvalidRequest(message, param="context", code=_UNSUPPORTED)
