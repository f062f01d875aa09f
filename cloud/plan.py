"""What the supervisor decided and the driver carries out: settings, resolved models, folders and ports."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from cloud.settings import AppArgs, CloudSettings


class Plan(BaseModel):
    """One run of the local cluster; written as JSON, for the two are different processes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: CloudSettings
    args: AppArgs
    temp_dir: str
    metrics_port: int
