"""Describes the model that is served, and its adapters, as Ollama's clients read them.

Only what requests can use is listed: other installed packages are seen with `isthmus list`.
"""

from __future__ import annotations

from typing import Any

import psutil

from edge.packages.package import Package
from edge.runtime.port import EngineFacts, EngineState, EngineStatus
from edge.service.ollama.naming import shown
from edge.service.ollama.voice import timestamp

_FOREVER = "2318-04-11T23:47:16Z"
"""What Ollama says of a model that is never unloaded: the farthest point that its durations reach."""
_CAPABILITIES = ("completion", "tools")


def listed(facts: EngineFacts, adapters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries of `/api/tags`: the base model, and every registered adapter as a model of its own."""
    base = _entry(facts, facts.model_id, facts.digest, _size_bytes(facts)) | {"capabilities": capabilities(facts)}
    return [base, *(_adapter(facts, base, adapter) for adapter in adapters)]


def running(facts: EngineFacts, status: EngineStatus) -> list[dict[str, Any]]:
    """The entries of `/api/ps`: the base model while its engine answers, with the memory that it really takes."""
    if status.state is not EngineState.READY:
        return []
    size = _resident_bytes(status.pid)
    entry = _entry(facts, facts.model_id, facts.digest, _size_bytes(facts) if size is None else size)
    return [entry | {"expires_at": _FOREVER, "context_length": facts.context_tokens}]


def described(facts: EngineFacts, name: str) -> dict[str, Any]:
    """The answer of `/api/show` for the base model, or for the adapter called `name`, which shares all but its own
    weights with it. The context length is that of a slot, since no request can have more."""
    parent = "" if name == facts.model_id else shown(facts.model_id)
    about = {} if facts.package is None else _about(facts.package)
    return {
        "modelfile": f"FROM {facts.model_id}\n",
        "parameters": "",
        "template": "",
        "details": _details(facts) | {"parent_model": parent},
        "model_info": {
            "general.architecture": facts.architecture,
            **about.pop("model_info", {}),
            f"{facts.architecture}.context_length": facts.context_tokens,
            f"{facts.architecture}.vocab_size": facts.vocabulary_tokens,
        },
        "capabilities": capabilities(facts),
        "modified_at": _modified_at(facts),
        **about,
    }


def capabilities(facts: EngineFacts) -> list[str]:
    """What the model can, in Ollama's words."""
    found = [name for name in _CAPABILITIES if name == "completion" or name in facts.features]
    return found if facts.embedding_input_tokens is None else [*found, "embedding"]


def _entry(facts: EngineFacts, name: str, digest: str, size_bytes: int) -> dict[str, Any]:
    return {
        "name": shown(name),
        "model": shown(name),
        "modified_at": _modified_at(facts),
        "size": size_bytes,
        "digest": digest.removeprefix("sha256:"),
        "details": _details(facts),
    }


def _adapter(facts: EngineFacts, base: dict[str, Any], adapter: dict[str, Any]) -> dict[str, Any]:
    entry = _entry(facts, adapter["name"], adapter["digest"], adapter["size_bytes"])
    return base | entry | {"details": base["details"] | {"parent_model": base["name"]}}


def _details(facts: EngineFacts) -> dict[str, Any]:
    model = None if facts.package is None else facts.package.manifest.model
    return {
        "parent_model": "",
        "format": "" if model is None else model.format,
        "family": facts.architecture,
        "families": [facts.architecture],
        "parameter_size": "" if model is None else parameter_size(model.parameters),
        "quantization_level": "" if model is None else model.quantisation,
    }


def _about(package: Package) -> dict[str, Any]:
    manifest = package.manifest
    geometry = manifest.geometry
    licence = {} if manifest.license is None else {"license": manifest.license}
    return licence | {
        "model_info": {
            "general.basename": package.name,
            "general.parameter_count": manifest.model.parameters,
            f"{geometry.architecture}.block_count": geometry.layers,
            f"{geometry.architecture}.embedding_length": geometry.embedding_length,
        }
    }


def _size_bytes(facts: EngineFacts) -> int:
    return 0 if facts.package is None else facts.package.manifest.size_bytes


def _modified_at(facts: EngineFacts) -> str:
    """When the package was installed."""
    try:
        return timestamp(0.0 if facts.package is None else facts.package.folder.stat().st_mtime)
    except OSError:  # it was removed while it is served
        return timestamp(0.0)


def _resident_bytes(pid: int | None) -> int | None:
    try:
        return None if pid is None else int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def parameter_size(parameters: int) -> str:
    """A count as people say it, such as `134.52M`."""
    for unit, scale, digits in (("B", 1e9, 1), ("M", 1e6, 2), ("K", 1e3, 0)):
        if parameters >= scale:
            return f"{parameters / scale:.{digits}f}{unit}"
    return str(parameters)
