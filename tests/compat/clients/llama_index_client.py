"""What LlamaIndex's OpenAI adapter gets from an endpoint: `python llama_index_client.py BASE_URL MODEL`; prints JSON.

Runs in the environment of requirements/compat.txt, where there is no Isthmus.
"""

from __future__ import annotations

import json
import sys
from typing import Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from openai import BadRequestError
from pydantic import BaseModel

QUESTION = "Which city is the capital of France?"


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


class Choice(BaseModel):
    """Arguments of the tool."""

    city: Literal["Paris", "Rome"]


def choose(city: str) -> str:
    """Choose a city."""
    return city


def _refused(model: OpenAILike) -> str | None:
    try:
        model.complete(QUESTION, temperature=9)
    except BadRequestError as error:
        return error.param
    return None


def main(base_url: str, name: str) -> None:
    """Print what came."""
    model = OpenAILike(
        model=name,
        api_base=base_url,
        api_key="unused",
        temperature=0,
        max_tokens=24,
        max_retries=0,
        is_chat_model=True,
        is_function_calling_model=True,
    )
    messages = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content=QUESTION)]
    tool = FunctionTool.from_defaults(choose, fn_schema=Choice)
    called = model.chat_with_tools([tool], user_msg=QUESTION, tool_required=True)
    calls = model.get_tool_calls_from_response(called)
    answer = {
        "complete": model.complete(QUESTION).text,
        "chat": model.chat(messages).message.content,
        "stream_chat": [part.delta for part in model.stream_chat([messages[1]])],
        "stream_complete": [part.delta for part in model.stream_complete(QUESTION)],
        "call": {"name": calls[0].tool_name, "args": calls[0].tool_kwargs},
        "structured": model.as_structured_llm(City).complete(QUESTION).raw.model_dump(),
        "refused": _refused(model),
    }
    print(json.dumps(answer))


main(*sys.argv[1:3])
