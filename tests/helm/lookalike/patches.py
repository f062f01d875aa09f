"""The three ways in which Helm and kubectl change an object: merge patch, strategic merge patch, server-side apply."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

Json = dict[str, Any]

_KEYS = ("name", "mountPath", "containerPort", "port", "topologyKey", "devicePath", "ip", "type", "key")
"""Merge keys of Kubernetes' lists of objects, by precedence; the real server knows them for each field."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """Strategic merge: lists of objects by their merge key, with the directives that clients send."""
    if isinstance(patch, list):
        return _lists(target if isinstance(target, list) else [], patch)
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name, []) if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _lists(target: list[Any], patch: list[Any]) -> list[Any]:
    objects = all(isinstance(item, dict) for item in [*target, *patch])
    key = next((k for k in _KEYS if objects and all(k in item for item in [*target, *patch])), None)
    if key is None:
        return patch
    result = {item[key]: item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item[key], None)
        else:
            result[item[key]] = strategic(result.get(item[key]), item)
    return list(result.values())


def applied(target: Json, before: Json, config: Json) -> Json:
    """Server-side apply by one manager: what it applied before and says no more goes, what it says now is laid over."""
    return _over(_without(deepcopy(target), before, config), config)


def _without(target: Json, before: Json, config: Json) -> Json:
    for key, value in before.items():
        if key not in config:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(config[key], dict) and isinstance(target.get(key), dict):
            _without(target[key], value, config[key])
    return target


def _over(target: Json, config: Json) -> Json:
    for key, value in config.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _over(target[key], value)
        else:
            target[key] = value
    return target
