"""Renders settings into the Serve config (`serveConfigV2`) that a RayService carries: same settings, same bytes."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import yaml

from cloud.settings import AppArgs, CloudSettings, ModelSettings, OpsArgs

APP_NAME = "isthmus"
OPS_NAME = "isthmus-ops"
REQUEST_TIMEOUT_S = 86_400
"""Serve's limit counts total time and cuts streams in the middle, so it stands out of the way of any real request."""


def serve_config(settings: CloudSettings, *, checkpoints: PurePosixPath) -> dict[str, Any]:
    """The config as plain data. `package:NAME` sources become `checkpoints/NAME`, a folder on every node."""
    models = tuple(_on_cluster(model, checkpoints) for model in settings.models)
    return {
        "proxy_location": "EveryNode",
        "http_options": {
            # Inside a pod; who may connect is the network policy's matter.
            "host": "0.0.0.0",  # noqa: S104
            "port": settings.port,
            "keep_alive_timeout_s": 75,
            "request_timeout_s": REQUEST_TIMEOUT_S,
        },
        "logging_config": logging_config(settings),
        "applications": applications(AppArgs.of(settings, models)),
    }


def applications(args: AppArgs) -> list[dict[str, Any]]:
    """The two applications: the OpenAI API, and the capacity route beside it."""
    ops, app = (part.model_dump(mode="json", exclude_none=True) for part in (OpsArgs.of(args), args))
    return [
        {"name": OPS_NAME, "route_prefix": "/ops", "import_path": "cloud.capacity:build", "args": ops},
        {"name": APP_NAME, "route_prefix": "/", "import_path": "cloud.app:build", "args": app},
    ]


def logging_config(settings: CloudSettings) -> dict[str, Any]:
    """Serve's own logs: JSON, and without an access log line for each request."""
    return {"encoding": "JSON", "log_level": settings.log_level.upper(), "enable_access_log": False}


def render(settings: CloudSettings, *, checkpoints: PurePosixPath) -> str:
    """The config as YAML; equal settings give equal text."""
    return yaml.dump(
        serve_config(settings, checkpoints=checkpoints),
        Dumper=_PlainDumper,
        sort_keys=False,
        allow_unicode=True,
        width=110,
    )


class _PlainDumper(yaml.SafeDumper):
    """Writes each value out: an anchor in one application's args would tie it to the other's."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _on_cluster(model: ModelSettings, checkpoints: PurePosixPath) -> ModelSettings:
    if model.adapters is not None and model.adapters.folder is None:
        adapters = model.adapters.model_copy(update={"folder": str(checkpoints / "adapters")})
        model = model.model_copy(update={"adapters": adapters})
    if model.package is None:
        return model
    return model.model_copy(update={"source": str(checkpoints / model.package)})
