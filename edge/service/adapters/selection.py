"""Reads which adapters a request asks for: `model: base:adapter`, or the field `lora` with names and scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edge.packages.adapters.adapter import Adapter
from shared.errors import InvalidRequest, NotFound


@dataclass(frozen=True, slots=True)
class Wanted:
    """One adapter by name, its scale, and the field that asked for it."""

    name: str
    scale: float
    param: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """One adapter in one version, and its scale."""

    adapter: Adapter
    scale: float


def served_name(body: dict[str, Any], base: str) -> str:
    """The model that a validated body asks for, without its adapter.

    Raises:
        NotFound: it is not `base` or an adapter of it.
    """
    model: str = body["model"]
    name, colon, adapter = model.partition(":")
    if model == base or (name == base and colon and adapter):
        return base
    raise NotFound("This backend does not serve the model asked for.", param="model", code="model_not_found")


def wanted_in(body: dict[str, Any], base: str) -> tuple[Wanted, ...]:
    """The adapters that a validated body for `base` asks for. A scale of 0 asks for none.

    Raises:
        InvalidRequest: one is named twice, or by model name and by `lora`.
    """
    _, _, by_model = body["model"].partition(":") if body["model"] != base else ("", "", "")
    field = body.get("lora")
    if by_model and field:
        raise InvalidRequest("The model name selects an adapter already; leave lora out.", param="lora")
    if by_model:
        return (Wanted(by_model, 1.0, "model"),)
    entries = field if isinstance(field, list) else [] if field is None else [field]
    found = [_entry(entry, base) for entry in entries]
    if len({each.name for each in found}) < len(found):
        raise InvalidRequest("lora names an adapter twice.", param="lora")
    return tuple(each for each in found if each.scale != 0)


def _entry(entry: str | dict[str, Any], base: str) -> Wanted:
    """One entry: a name with or without its base, or an object of name and scale."""
    given: dict[str, Any] = {"name": entry} if isinstance(entry, str) else entry
    scale = given.get("scale")
    return Wanted(given["name"].removeprefix(f"{base}:"), 1.0 if scale is None else float(scale), "lora")
