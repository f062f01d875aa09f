"""`structured_outputs`, vLLM's own field for what an answer must look like, within what a grammar compiler can take.

Measured on vLLM's compiler (xgrammar): 20,000 alternatives stall it for seconds, a schema that is nested 2,000 deep or
leads back to itself makes it fail, and a server that fails on a request is asked again elsewhere by whoever relays it.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from shared.openai.schema import MAX_ENUM_VALUES, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, check_schema

_MAX_REGEX_CHARS = 4096


def _check_nesting(text: str) -> str:
    """Parentheses that are nested deeper than a schema may be. Quoted ones count too: a bound, not a parser."""
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth > MAX_SCHEMA_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    return text


def _check_json(schema: str | dict[str, Any]) -> str | dict[str, Any]:
    """A schema, or its text."""
    parsed: object = schema
    if isinstance(schema, str):
        if len(schema) > MAX_SCHEMA_BYTES:
            raise ValueError(f"the schema is larger than {MAX_SCHEMA_BYTES} bytes")
        try:
            parsed = orjson.loads(schema)
        except orjson.JSONDecodeError:
            raise ValueError("it is not JSON") from None
    if isinstance(parsed, dict):
        check_schema(parsed)
        return schema
    raise ValueError("a schema is an object")


Choice = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class StructuredOutputs(BaseModel):
    """The value of the field. That only one sort may be given is the engine's to say."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, protected_namespaces=())

    json_: Annotated[str | dict[str, Any], AfterValidator(_check_json)] | None = Field(default=None, alias="json")
    regex: Annotated[str, StringConstraints(max_length=_MAX_REGEX_CHARS), AfterValidator(_check_nesting)] | None = None
    choice: Annotated[list[Choice], Field(min_length=1, max_length=MAX_ENUM_VALUES)] | None = None
    grammar: Annotated[str, StringConstraints(max_length=MAX_SCHEMA_BYTES), AfterValidator(_check_nesting)] | None = (
        None
    )
    structural_tag: Annotated[str, StringConstraints(max_length=MAX_SCHEMA_BYTES)] | None = None
    json_object: bool | None = None
    whitespace_pattern: Annotated[str, StringConstraints(max_length=256)] | None = None
