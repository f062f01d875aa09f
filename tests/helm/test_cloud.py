"""The RayService: same Serve config as the program prints, and the rules of KubeRay that no schema shows."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cloud.cli import app
from cloud.settings import AppArgs, CloudSettings, OpsArgs
from shared.settings import load
from tests.helm.build_app import build
from tests.helm.manifests import CI_VALUES, Helm, Manifest, Rendered, default_values, merged, read

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
MAX_RAYSERVICE_NAME = 47
ON_RAY = [path for path in CI_VALUES if path.name != "external-values.yaml"]


def _printed(section: dict[str, Any], folder: Path) -> dict[str, Any]:
    config = folder / "isthmus.yaml"
    config.write_text(yaml.safe_dump({"cloud": section}), "utf-8")
    done = CliRunner().invoke(app, ["render", "--config", str(config)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    printed = yaml.safe_load(done.stdout)
    assert isinstance(printed, dict)
    return printed


@pytest.mark.parametrize("values", ON_RAY, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_serve_config_is_what_the_program_prints(helm: Helm, values: Path, tmp_path: Path) -> None:
    section = merged(default_values(), read(values))["cloud"]["settings"]
    assert helm.template(values).serve_config() == _printed(section, tmp_path)


@pytest.mark.parametrize(
    "section",
    [
        {"port": 9000, "log_level": "debug"},
        {"life": {"drain_s": 0.5, "retry_after_s": 7}, "ingress": {"body_limit_bytes": 268435456}},
        {"ingress": {"streams": "direct", "proxy": "haproxy", "replicas": 2}},
        {"accelerator": None, "ingress": None, "life": None, "tracing": None},
        {"tracing": {"endpoint": "http://collector:4318/v1/traces", "sample_ratio": 0.25, "queue_spans": 1000000}},
        {"models": [{"model_id": "m", "source": "/data/m", "autoscaling": {"min_replicas": 0, "max_replicas": 2}}]},
        {
            "models": [
                {"model_id": "m", "source": "a/m", "engine_kwargs": {"seed": 0, "quantization": "fp8", "a": {"b": [1]}}}
            ]
        },
        {"models": [{"model_id": "a", "source": "a"}, {"model_id": "b", "source": "b", "enforce_eager": False}]},
        {
            "models": [
                {"model_id": "a", "source": "a", "adapters": {}, "tool_call_parser": "hermes"},
                {"model_id": "b", "source": "b", "adapters": {"folder": "/nfs", "count": 2}, "tokenizer": "a" * 64},
                {"model_id": "c", "source": "c", "adapters": None},
            ]
        },
    ],
)
def test_serve_config_follows_every_kind_of_setting(either: Helm, section: dict[str, Any], tmp_path: Path) -> None:
    """Zero, false, large numbers, lists and removed groups keep their meaning on the way through a template."""
    rendered = either.template(CI_VALUES[-1], {"cloud": {"settings": section}})
    effective = merged(default_values()["cloud"]["settings"], section)
    assert rendered.serve_config() == _printed(effective, tmp_path)


def test_package_sources_become_folders_of_the_model_store(helm4: Helm, tmp_path: Path) -> None:
    values = {
        "cloud": {
            "settings": {"models": [{"model_id": "m", "source": "package:m"}]},
            "modelStore": {"existingClaim": "checkpoints", "mountPath": "/store/"},
        }
    }
    rendered = helm4.template(CI_VALUES[-1], values)
    (model,) = rendered.serve_config()["applications"][1]["args"]["models"]
    assert model["source"] == "/store/m"
    for name, template in rendered.pod_templates():
        if name.startswith("RayService"):
            mounts = template["spec"]["containers"][0]["volumeMounts"]
            assert {"name": "models", "mountPath": "/store", "readOnly": True} in mounts


def test_the_applications_accept_their_arguments(rendered: Rendered) -> None:
    for service in rendered.of_kind("RayService"):
        assert isinstance(service["spec"]["serveConfigV2"], str)
        ops, openai = rendered.serve_config()["applications"]
        assert (ops["import_path"], openai["import_path"]) == ("cloud.capacity:build", "cloud.app:build")
        args = AppArgs.model_validate(openai["args"])
        assert OpsArgs.model_validate(ops["args"]) == OpsArgs.of(args)


@pytest.mark.cloud
@pytest.mark.timeout(600)
def test_rays_builder_accepts_the_rendered_applications(of_ci: Callable[[str], Rendered], tmp_path: Path) -> None:
    """`cloud.app:build` and `cloud.capacity:build` are called with what two RayServices say."""
    pytest.importorskip("ray")
    applications = [a for name in ("small-cpu", "own-redis") for a in of_ci(name).serve_config()["applications"]]
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:
        done = build(applications, tmp_path, ray_folder)
    assert done.returncode == 0, done.stderr[-2000:]
    built = [line for line in done.stdout.splitlines() if line.startswith("isthmus")]
    assert built == ["isthmus-ops Application", "isthmus Application"] * 2


def test_defaults_of_the_chart_are_settings_of_the_program(tmp_path: Path) -> None:
    config = tmp_path / "isthmus.yaml"
    config.write_text(yaml.safe_dump({"cloud": default_values()["cloud"]["settings"]}), "utf-8")
    assert load(CloudSettings, "cloud", config).accelerator.kind == "cpu"


def _clusters(rendered: Rendered) -> list[Manifest]:
    return [found["spec"]["rayClusterConfig"] for found in rendered.of_kind("RayService")]


def test_kuberay_rules(rendered: Rendered) -> None:
    """What the operator's validation refuses at run time (ray-operator, controllers/ray/utils/validation.go)."""
    for service in rendered.of_kind("RayService"):
        name = service["metadata"]["name"]
        assert len(name) <= MAX_RAYSERVICE_NAME and DNS_1035.fullmatch(name)
        assert service["spec"]["upgradeStrategy"]["type"] in ("NewCluster", "None")
    for cluster in _clusters(rendered):
        assert "upgradeStrategy" not in cluster
        assert cluster["rayVersion"] == "2.60.0"
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        assert len({group["groupName"] for group in groups[1:]}) == len(groups) - 1 >= 1
        for group in groups:
            assert not group.get("resources"), "rayStartParams carry them"
            assert all(isinstance(value, str) for value in group["rayStartParams"].values())
            assert "labels" not in group["rayStartParams"] and "redis-password" not in group["rayStartParams"]
            spec = group["template"]["spec"]
            assert spec.get("restartPolicy", "Never") == "Never", "autoscaler v2"
            names = {variable["name"] for variable in spec["containers"][0]["env"]}
            assert not names & {"REDIS_PASSWORD", "REDIS_USERNAME", "RAY_REDIS_ADDRESS", "RAY_enable_autoscaler_v2"}
        for group in cluster["workerGroupSpecs"]:
            assert 0 <= group["minReplicas"] <= group["maxReplicas"]
            assert ("replicas" in group) is not cluster.get("enableInTreeAutoscaling", False)


def test_zero_is_a_number_of_workers(helm: Helm) -> None:
    group = {"replicas": 0, "minReplicas": 0, "maxReplicas": 3}
    workers = {"cpu": group, "gpu": group | {"enabled": True, "maxReplicas": 0}}
    scaling = {"enabled": False, "idleTimeoutSeconds": 0}
    for on in (False, True):
        values = {"cloud": {"ray": {"workers": workers, "autoscaling": scaling | {"enabled": on}}}}
        (cluster,) = _clusters(helm.template(CI_VALUES[-1], values))
        cpu, gpu = cluster["workerGroupSpecs"]
        assert (cpu.get("replicas"), cpu["minReplicas"], cpu["maxReplicas"]) == (None if on else 0, 0, 3)
        assert (gpu.get("replicas"), gpu["minReplicas"], gpu["maxReplicas"]) == (None if on else 0, 0, 0)
    assert cluster["autoscalerOptions"]["idleTimeoutSeconds"] == 0


def test_an_upgrade_lets_streams_of_the_old_cluster_end(rendered: Rendered, helm4: Helm) -> None:
    """The old cluster stays for at least as long as an answer may take to end."""
    for service in rendered.of_kind("RayService"):
        drain_s = rendered.serve_config()["applications"][1]["args"]["life"]["drain_s"]
        assert service["spec"]["rayClusterDeletionDelaySeconds"] >= drain_s
    at_once = {"settings": {"life": {"drain_s": 0}}, "ray": {"oldClusterDeletionDelaySeconds": 0}}
    spec = helm4.template(CI_VALUES[-1], {"cloud": at_once}).one("RayService")["spec"]
    assert spec["rayClusterDeletionDelaySeconds"] == 0, "and not the operator's own default"


def test_head_serves_nothing(rendered: Rendered) -> None:
    """RY-03: proxies on every node, no replica on the head, and the serve service without it."""
    for service in rendered.of_kind("RayService"):
        assert service["spec"]["excludeHeadPodFromServeSvc"] is True
        head = service["spec"]["rayClusterConfig"]["headGroupSpec"]
        assert head["rayStartParams"]["num-cpus"] == "0"
        ports = {port["name"] for port in head["template"]["spec"]["containers"][0]["ports"]}
        assert "serve" in ports, "the operator makes the serve service from this port"
        assert rendered.serve_config()["proxy_location"] == "EveryNode"


@pytest.mark.parametrize(
    ("name", "address", "user"),
    [
        ("own-redis", "redis://demo-isthmus-redis:6379", "ray"),
        ("edge-fleet", "rediss://demo-isthmus-redis:6379", "ray"),
        ("ha", "rediss://redis.data.svc.cluster.local:6380", "isthmus-ray"),
    ],
)
def test_fault_tolerance_on_redis(of_ci: Callable[[str], Rendered], name: str, address: str, user: str) -> None:
    """RY-03: address and secret are set; no constant storage namespace, which two clusters would then share."""
    (cluster,) = _clusters(of_ci(name))
    secret = "demo-isthmus-redis-users" if name == "edge-fleet" else "redis-users"
    assert cluster["gcsFaultToleranceOptions"] == {
        "redisAddress": address,
        "redisUsername": {"value": user},
        "redisPassword": {"valueFrom": {"secretKeyRef": {"name": secret, "key": "ray-password"}}},
    }


@pytest.mark.parametrize(("name", "secret"), [("own-redis", None), ("edge-fleet", "redis-tls"), ("ha", "redis-ca")])
def test_the_head_trusts_the_authority_of_redis(
    of_ci: Callable[[str], Rendered], name: str, secret: str | None
) -> None:
    """Only the head's tables are in Redis; the certificate's key is never mounted on it."""
    for pod, template in of_ci(name).pod_templates():
        if not pod.startswith("RayService"):
            continue
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        variables = {v["name"]: v.get("value") for v in template["spec"]["containers"][0]["env"]}
        if pod.endswith("/head") and secret:
            assert volumes["redis-ca"]["secret"]["secretName"] == secret
            assert volumes["redis-ca"]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
            mounts = {m["name"]: m["mountPath"] for m in template["spec"]["containers"][0]["volumeMounts"]}
            assert variables["RAY_REDIS_CA_CERT"] == f"{mounts['redis-ca']}/ca.crt"
        else:
            assert "redis-ca" not in volumes and "RAY_REDIS_CA_CERT" not in variables, pod


@pytest.mark.parametrize(("tls", "bundle"), [(True, "/etc/ssl/certs/ca-certificates.crt"), (False, None)])
def test_the_head_trusts_the_usual_authorities_where_none_is_named(helm4: Helm, tls: bool, bundle: str | None) -> None:
    """Ray's Redis client verifies the peer, and without a file of authorities it knows none."""
    external = {"host": "cache.example.com", "tls": tls}
    values = {"redis": {"external": external}, "cloud": {"ray": {"faultTolerance": {"enabled": True}}}}
    (cluster,) = _clusters(helm4.template(CI_VALUES[-1], values))
    env = cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    assert {v["name"]: v.get("value") for v in env}.get("RAY_REDIS_CA_CERT") == bundle


@pytest.mark.parametrize(("proxy", "said"), [("haproxy", "1"), ("serve", None), (None, None)])
def test_the_proxy_of_the_settings_runs_on_every_node(either: Helm, proxy: str | None, said: str | None) -> None:
    """Ray reads it from the environment of each process; one pod that differs would speak another way."""
    rendered = either.template(CI_VALUES[-1], {"cloud": {"settings": {"ingress": {"proxy": proxy}}}})
    pods = [template for name, template in rendered.pod_templates() if name.startswith("RayService")]
    assert len(pods) >= 2
    for template in pods:
        variables = {v["name"]: v.get("value") for v in template["spec"]["containers"][0]["env"]}
        assert variables.get("RAY_SERVE_ENABLE_HA_PROXY") == said
    openai = rendered.serve_config()["applications"][1]["args"]["ingress"]
    assert openai["proxy"] == (proxy or "serve")


def test_without_fault_tolerance_nothing_is_said_of_redis(of_ci: Callable[[str], Rendered]) -> None:
    assert "gcsFaultToleranceOptions" not in _clusters(of_ci("small-cpu"))[0]


def test_gpu_engines_run_on_gpu_workers(of_ci: Callable[[str], Rendered]) -> None:
    rendered = of_ci("gpu")
    groups = {group["groupName"]: group for group in _clusters(rendered)[0]["workerGroupSpecs"]}
    gpu = groups["gpu"]["template"]["spec"]
    assert gpu["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert gpu["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "nvidia.com/gpu" not in groups["cpu"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    images = {group["template"]["spec"]["containers"][0]["image"] for group in groups.values()}
    assert images == {"isthmus-cloud:0.1.0-gpu"}, "one Ray cluster runs one image"


def test_hub_token_is_on_workers_alone(of_ci: Callable[[str], Rendered]) -> None:
    for name, template in of_ci("gpu").workloads():
        names = {variable["name"] for variable in template["spec"]["containers"][0]["env"]}
        assert ("HF_TOKEN" in names) is (name.startswith("RayService") and not name.endswith("/head")), name


def test_workers_drain_before_they_end(rendered: Rendered) -> None:
    for cluster in _clusters(rendered):
        drain_s = rendered.serve_config()["applications"][1]["args"]["life"]["drain_s"]
        for group in cluster["workerGroupSpecs"]:
            spec = group["template"]["spec"]
            assert spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", str(int(drain_s))]
            assert spec["terminationGracePeriodSeconds"] > drain_s


def test_external_endpoint_stands_in_for_the_cluster(of_ci: Callable[[str], Rendered]) -> None:
    rendered = of_ci("external")
    assert not rendered.of_kind("RayService")
    assert not [o for o in rendered.objects if "cloud" in o["metadata"]["name"]]
