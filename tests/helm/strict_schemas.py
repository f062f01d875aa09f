"""Judges objects by Kubernetes' own strict schemas, with `kubernetes-validate`.

The library reads a megabyte of JSON for each object that it checks; with this module each file is read once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import kubernetes_validate
from kubernetes_validate import utils

utils.schema_contents = cache(utils.schema_contents)


def fault_of(found: dict[str, Any], version: str) -> str | None:
    """What is wrong with an object of a built-in kind, in one line; None if nothing is."""
    try:
        kubernetes_validate.validate(found, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error).splitlines()[0]
    return None
