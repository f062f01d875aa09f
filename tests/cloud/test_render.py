"""The rendered Serve config: the same bytes for the same settings, and what the builders take."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
import yaml
from typer.testing import CliRunner

from cloud.cli import app
from cloud.render import render, serve_config
from cloud.settings import AppArgs, CloudSettings, OpsArgs
from shared.settings import load

CHECKPOINTS = PurePosixPath("/models")


@pytest.fixture
def settings() -> CloudSettings:
    return load(CloudSettings, "cloud")


def test_rendering_is_deterministic_and_plain_yaml(settings: CloudSettings) -> None:
    text = render(settings, checkpoints=CHECKPOINTS)
    assert text == render(load(CloudSettings, "cloud"), checkpoints=CHECKPOINTS)
    assert yaml.safe_load(text) == serve_config(settings, checkpoints=CHECKPOINTS)
    assert "null" not in text
    assert "&id" not in text


def test_rendered_args_are_what_the_builders_read(settings: CloudSettings) -> None:
    ops, openai = serve_config(settings, checkpoints=CHECKPOINTS)["applications"]
    args = AppArgs.model_validate(openai["args"])
    assert args.models[0].source == "/models/smollm2-135m-instruct"
    assert args.life == settings.life
    assert OpsArgs.model_validate(ops["args"]) == OpsArgs.of(args)
    assert (openai["import_path"], ops["import_path"]) == ("cloud.app:build", "cloud.capacity:build")
    assert (openai["route_prefix"], ops["route_prefix"]) == ("/", "/ops")


def test_adapters_lie_beside_the_checkpoints_unless_a_folder_is_named() -> None:
    for adapters, folder in (({}, "/models/adapters"), ({"folder": "/shared"}, "/shared")):
        model = {"model_id": "m", "source": "package:m", "adapters": adapters}
        config = serve_config(load(CloudSettings, "cloud", models=[model]), checkpoints=CHECKPOINTS)
        assert config["applications"][1]["args"]["models"][0]["adapters"]["folder"] == folder


def test_the_command_prints_the_file_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text("cloud: {models: [{model_id: big, source: org/big, context_tokens: 32768}]}\n")
    result = CliRunner().invoke(app, ["render", "--config", str(path), "--checkpoints", "/data"])
    assert result.exit_code == 0
    model = yaml.safe_load(result.stdout)["applications"][1]["args"]["models"][0]
    assert (model["model_id"], model["source"], model["context_tokens"]) == ("big", "org/big", 32768)


@pytest.mark.cloud
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, at its import
def test_serve_accepts_the_config_and_its_options(settings: CloudSettings) -> None:
    """Ray's own schemas read the config and the options made of it, so a renamed option fails here."""
    from ray.serve.schema import DeploymentSchema, ServeDeploySchema

    from cloud.options import deployment_config, ingress_config

    config = serve_config(settings, checkpoints=CHECKPOINTS)
    parsed = ServeDeploySchema.model_validate(config)
    args = AppArgs.model_validate(parsed.applications[1].args)
    for routing in ("balanced", "prefix"):
        model = args.models[0].model_copy(update={"routing": routing})
        DeploymentSchema.model_validate({"name": "m", **deployment_config(model, args)})
    DeploymentSchema.model_validate(ingress_config(args))
