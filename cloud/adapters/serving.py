"""Joins adapters and engine: what a replica needs to serve them; answers carry the name that the client asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from cloud.adapters.resident import EngineAdapters, ResidentAdapters
from cloud.adapters.store import AdapterStore, BaseModel
from cloud.adapters.trust import Trust
from cloud.settings import AdapterSettings
from cloud.sizing.geometry import geometry_of
from cloud.sizing.sources import config_of
from shared.errors import IsthmusError, NotReady


def adapter_of(model: str) -> str | None:
    """The adapter that `model` names as `base:adapter`; None for a base model."""
    _, colon, name = model.partition(":")
    return name if colon else None


def store_of(settings: AdapterSettings, model_id: str) -> AdapterStore:
    """The store that `settings` name; its folders are filled in before a tier starts."""
    trust = Trust.in_folder(Path(settings.trust) if settings.trust else None)
    folder = Path(settings.folder or "/models/adapters")
    return AdapterStore(folder, model_id, trust, rank_limit=settings.rank_limit)


def base_model(model_id: str, source: str, digest: str | None) -> BaseModel:
    """The base model whose checkpoint is the folder `source`."""
    return BaseModel(model_id, geometry_of(config_of(source, Path("/nonexistent"))), digest)


def resident_adapters(settings: AdapterSettings, base: BaseModel, models: Any) -> ResidentAdapters:
    """The adapters of one replica, whose engine's registry is `models` (vLLM's `OpenAIServingModels`)."""
    from vllm.entrypoints.serve.lora.protocol import (  # noqa: PLC0415 - only replicas load vLLM
        LoadLoRAAdapterRequest,
        UnloadLoRAAdapterRequest,
    )

    async def load(name: str, folder: str) -> None:
        answer = await models.load_lora_adapter(LoadLoRAAdapterRequest(lora_name=name, lora_path=folder))
        if not isinstance(answer, str):
            raise NotReady("The engine cannot load this adapter now.", code="adapter_unavailable")

    async def unload(name: str) -> None:
        known = models.lora_requests.get(name)
        await models.unload_lora_adapter(UnloadLoRAAdapterRequest(lora_name=name))
        if known is not None:
            # vLLM forgets the name alone; its weights would keep a place until others push them out.
            await models.engine_client.remove_lora(known.lora_int_id)

    return ResidentAdapters(
        store_of(settings, base.model_id),
        base,
        EngineAdapters(load, unload),
        count=settings.count,
        rank_limit=settings.rank_limit,
    )


async def one_error(error: IsthmusError) -> AsyncGenerator[Any, None]:
    """The answer of a request that is refused: errors are values on the way between replicas."""
    yield error


async def renamed(source: AsyncGenerator[Any, None], engine_name: str, asked: str) -> AsyncGenerator[Any, None]:
    """What `source` gives, with the client's name in place of the engine's.

    An event is JSON text: inside a string its quotes would be escaped, so the member is found nowhere else.
    """
    old, new = f'"model":"{engine_name}"', f'"model":"{asked}"'
    async with aclosing(source) as items:
        async for item in items:
            if isinstance(item, list):
                yield [each.replace(old, new) if isinstance(each, str) else each for each in item]
            elif isinstance(item, str):
                yield item.replace(old, new)
            else:
                if getattr(item, "model", None) == engine_name:
                    item.model = asked
                yield item
