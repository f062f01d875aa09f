"""Builds the OpenAI application of the cloud tier: the import path `cloud.app:build` of every Serve config."""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.llm import LLMConfig, build_llm_deployment

from cloud.model_server import LocalModel, ModelServer
from cloud.options import DEPLOYMENT_PREFIX, ingress_config, llm_config
from cloud.rayllm import ingress_class
from cloud.settings import AppArgs, ModelSettings
from shared.tracing.build import check_installed


def build(args: dict[str, Any]) -> Application:
    """The application for `args` (see `AppArgs`), for `serve.run`, `serve run` and RayService alike."""
    parsed = AppArgs.model_validate(args)
    check_installed(
        parsed.tracing, tier="cloud"
    )  # here, where its one line is seen: replicas only fail again and again
    ingress = serve.deployment(ingress_class(parsed), **ingress_config(parsed))
    return ingress.bind(
        llm_deployments={model.model_id: _deployment(model, parsed) for model in parsed.models},
        model_cards={model.model_id: {"context_tokens": model.context_tokens} for model in parsed.models},
        life=parsed.life,
        adapters={model.model_id: model.adapters for model in parsed.models if model.adapters is not None},
        only_loopback=bool(parsed.only_loopback),
        direct=parsed.ingress.streams == "direct",
    )


def _deployment(model: ModelSettings, args: AppArgs) -> Application:
    config = llm_config(model, args)
    if model.source.startswith("/"):
        config["callback_config"] = {"callback_class": LocalModel}
    return build_llm_deployment(
        LLMConfig(**config),
        deployment_cls=ModelServer,
        name_prefix=DEPLOYMENT_PREFIX,
        bind_kwargs={
            "expected_digest": model.digest,
            "adapters": model.adapters,
            "only_loopback": bool(args.only_loopback),
        },
    )
