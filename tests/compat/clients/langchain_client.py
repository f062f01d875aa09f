"""What LangChain's OpenAI adapter gets from an endpoint: `python langchain_client.py BASE_URL MODEL`; prints JSON.

Runs in the environment of requirements/compat.txt, where there is no Isthmus.
"""

from __future__ import annotations

import json
import sys
from typing import Literal

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import BadRequestError
from pydantic import BaseModel

QUESTION = "Which city is the capital of France?"


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


@tool
def choose(city: Literal["Paris", "Rome"]) -> str:
    """Choose a city."""
    return city


def _refused(model: ChatOpenAI) -> str | None:
    try:
        model.bind(temperature=9).invoke(QUESTION)
    except BadRequestError as error:
        return error.param
    return None


def main(base_url: str, name: str) -> None:
    """Print what came."""
    model = ChatOpenAI(model=name, base_url=base_url, api_key="unused", temperature=0, max_tokens=24, max_retries=0)
    whole = model.invoke([SystemMessage("Be brief."), HumanMessage(QUESTION)])
    called = model.bind_tools([choose], tool_choice="choose").invoke(QUESTION)
    result = ToolMessage("Paris", tool_call_id=called.tool_calls[0]["id"])
    told = model.bind_tools([choose]).invoke([HumanMessage(QUESTION), called, result])
    answer = {
        "invoke": model.invoke(QUESTION).content,
        "system_usage": whole.usage_metadata["input_tokens"],
        "finish": whole.response_metadata["finish_reason"],
        "stream": [part.content for part in model.stream(QUESTION)],
        "batch": [each.content for each in model.batch([QUESTION, QUESTION])],
        "call": called.tool_calls[0],
        "after_call": bool(told.content or told.tool_calls),
        "by_schema": model.with_structured_output(City, method="json_schema").invoke(QUESTION).model_dump(),
        "by_call": model.with_structured_output(City, method="function_calling").invoke(QUESTION).model_dump(),
        "refused": _refused(model),
    }
    print(json.dumps(answer))


main(*sys.argv[1:3])
