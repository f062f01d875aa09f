"""The router's ConfigMap and environment are loaded by the router's own settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.settings import RouterSettings
from shared.settings import load
from tests.helm.manifests import CI_VALUES, Helm, HelmFailed, Rendered

KEYS = [{"name": "app", "sha256": "a" * 64, "scopes": ["inference"]}]


def _loaded(rendered: Rendered, folder: Path, monkeypatch: pytest.MonkeyPatch) -> RouterSettings:
    """What the router in the rendered Deployment would run with; the Secret's content is a specimen."""
    container = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:3] == ["router", "serve", "--config"]
    mount = next(m for m in container["volumeMounts"] if m["name"] == "config")
    (name, text), *others = rendered.one("ConfigMap", "demo-isthmus-router")["data"].items()
    assert not others and container["args"][3] == f"{mount['mountPath']}/{name}"
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value") or json.dumps(KEYS))
    (folder / name).write_text(text, "utf-8")
    return load(RouterSettings, "router", folder / name)


def test_every_rendered_config_is_accepted(rendered: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _loaded(rendered, tmp_path, monkeypatch)
    container = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert settings.host == "0.0.0.0"
    assert settings.port == container["ports"][0]["containerPort"]
    assert [key.name for key in settings.keys] == ["app"], "keys come from the Secret"
    mounts = [Path(mount["mountPath"]) for mount in container["volumeMounts"]]
    files = [settings.state.password_file, settings.audit.key_file, settings.edge_api_key_file]
    files += [cloud.api_key_file for cloud in settings.clouds]
    assert all(file.parent in mounts for file in files if file), "every file named is mounted"


@pytest.mark.parametrize(
    ("name", "url"),
    [("small-cpu", None), ("own-redis", "redis://router@demo-isthmus-redis:6379"),
     ("edge-fleet", "rediss://router@demo-isthmus-redis:6379?ssl_ca_certs=/run/isthmus/secrets/redis-ca/ca.crt"),
     ("ha", "rediss://isthmus-router@redis.data.svc.cluster.local:6380"
      "?ssl_ca_certs=/run/isthmus/secrets/redis-ca/ca.crt")],
)  # fmt: skip
def test_state(
    of_ci: Callable[[str], Rendered], name: str, url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = _loaded(of_ci(name), tmp_path, monkeypatch).state
    assert (state.kind, state.url) == ("redis" if url else "memory", url)
    assert bool(state.password_file) is bool(url)


@pytest.mark.parametrize("host", ["fd00::7", "[fd00::7]"])
def test_an_address_of_ipv6_stands_in_brackets(
    helm4: Helm, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"redis": {"external": {"host": host}}, "cloud": {"ray": {"faultTolerance": {"enabled": True}}}}
    rendered = helm4.template(CI_VALUES[-1], values)
    assert _loaded(rendered, tmp_path, monkeypatch).state.url == "redis://[fd00::7]:6379"
    cluster = rendered.one("RayService")["spec"]["rayClusterConfig"]
    assert cluster["gcsFaultToleranceOptions"]["redisAddress"] == "redis://[fd00::7]:6379"


def test_cloud_on_ray_is_reached_at_the_operators_service(
    of_ci: Callable[[str], Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KubeRay names the serve service `<RayService>-serve-svc`."""
    rendered = of_ci("gpu")
    (cloud,) = _loaded(rendered, tmp_path, monkeypatch).clouds
    port = rendered.serve_config()["http_options"]["port"]
    assert cloud.url == f"http://{rendered.one('RayService')['metadata']['name']}-serve-svc:{port}"
    assert cloud.models == (), "asked at the capacity route"


def test_external_clouds(of_ci: Callable[[str], Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _loaded(of_ci("external"), tmp_path, monkeypatch).clouds
    assert first.url == "https://llm.example.com", "the router adds /v1 itself"
    assert (first.rate_domain, first.models[0].features) == ("example", ("tools",))
    assert str(first.api_key_file) == "/run/isthmus/secrets/cloud/api-key"
    assert second.id == "second"


def test_no_cloud_at_all(helm4: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = helm4.template(CI_VALUES[-1], {"cloud": {"enabled": False}})
    assert _loaded(rendered, tmp_path, monkeypatch).clouds == ()
    assert not rendered.of_kind("RayService")


def test_the_operators_settings_win(helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own: dict[str, Any] = {
        "port": 9090,
        "drain_limit_s": 0,
        "policy": {"actions": {"personal": "mask"}, "hysteresis_ratio": 0},
        "limits": {"body_bytes": 268435456},
        "keepalive_s": None,
        "retry": None,
    }
    settings = _loaded(helm.template(CI_VALUES[-1], {"router": {"settings": own}}), tmp_path, monkeypatch)
    assert (settings.port, settings.drain_limit_s, settings.limits.body_bytes) == (9090, 0, 268435456)
    assert settings.policy.hysteresis_ratio == 0
    assert settings.keepalive_s == RouterSettings.model_fields["keepalive_s"].default


def test_a_router_alone_needs_no_cloud_section(helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = helm.template(CI_VALUES[-1], {"cloud": None})
    assert _loaded(rendered, tmp_path, monkeypatch).clouds == ()


def test_the_cloud_can_be_installed_without_a_router(helm: Helm) -> None:
    rendered = helm.template({"router": {"enabled": False}, "networkPolicy": {"enabled": True}})
    assert not rendered.of_kind("Deployment") and rendered.of_kind("RayService")
    with pytest.raises(HelmFailed, match="existingSecret is required"):
        helm.template({})


def test_files_on_top_keep_the_key_out_of_the_settings_file(rendered: Rendered) -> None:
    assert (
        "keys" not in yaml.safe_load(rendered.one("ConfigMap", "demo-isthmus-router")["data"]["isthmus.yaml"])["router"]
    )
