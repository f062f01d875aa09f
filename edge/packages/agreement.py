"""Compares what a manifest states of a model with what its files say."""

from __future__ import annotations

from pydantic import BaseModel

from edge.packages.manifest import ModelFacts
from shared.errors import ModelCorrupt


def check_stated(stated: ModelFacts, found: ModelFacts) -> None:
    """Every fact that is stated must be found; facts that an older publisher did not know of may be absent.

    Raises:
        ModelCorrupt: one differs; `param` names it.
    """
    differing = _first_difference(stated, found, "model")
    if differing is not None:
        raise ModelCorrupt(f"The files say other than the manifest: {differing} differs.", param=differing)


def _first_difference(stated: object, found: object, path: str) -> str | None:
    if not isinstance(stated, BaseModel) or type(stated) is not type(found):
        return None if stated == found else path
    for name in sorted(stated.model_fields_set):
        if (differing := _first_difference(getattr(stated, name), getattr(found, name), f"{path}.{name}")) is not None:
            return differing
    return None
