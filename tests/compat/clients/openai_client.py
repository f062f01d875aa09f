"""What the official OpenAI client gets from an endpoint: `python openai_client.py BASE_URL MODEL`; prints JSON.

Runs with the client's release that requirements/compat.txt pins, an older one than the suite's own.
"""

from __future__ import annotations

import json
import sys

import openai

QUESTION = "Which city is the capital of France?"


def _refused(client: openai.OpenAI) -> dict[str, str | None]:
    try:
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": QUESTION}])
    except openai.NotFoundError as error:
        return {"param": error.param, "code": error.code}
    return {}


def main(base_url: str, name: str) -> None:
    """Print what came."""
    client = openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0)
    asked = {"model": name, "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": QUESTION}]}
    whole = client.chat.completions.create(**asked)
    parts = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    legacy = client.completions.create(model=name, prompt="The capital of France is", temperature=0, max_tokens=2)
    answer = {
        "version": openai.__version__,
        "whole": whole.choices[0].message.content,
        "stream": [part.choices[0].delta.content or "" for part in parts if part.choices],
        "same_usage": parts[-1].usage is not None and parts[-1].usage.total_tokens == whole.usage.total_tokens,
        "legacy": legacy.choices[0].text,
        "models": [model.id for model in client.models.list()],
        "refused": _refused(client),
    }
    print(json.dumps(answer))


main(*sys.argv[1:3])
