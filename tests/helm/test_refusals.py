"""Values that are refused: by the schema with the key at fault, or by a line that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud.settings import CloudSettings
from shared.errors import SettingsError
from shared.settings import load
from tests.helm.manifests import CI_VALUES, Helm, HelmFailed, default_values, merged, read
from tests.helm.specimens import EVERYTHING, nested

NO_GPU: dict[str, Any] = {name: {"nvidia.com/gpu": None} for name in ("limits", "requests")}


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (nested("router.replcas", 2), "replcas"),
        (nested("router.settings.limits", {"body_byte": 1}), "body_byte"),
        (nested("cloud.settings.models", [{"model_id": "m", "source": "m", "treads": 2}]), "treads"),
        (nested("cloud.settings.host", "::"), "host"),
        (nested("router.resources.limit", {"cpu": 1}), "limit"),
        (nested("router.tolerations", [{"kee": "a"}]), "kee"),
        (nested("router.replicas", "two"), "replicas"),
        (nested("cloud.ray.upgradeStrategy", "Rolling"), "upgradeStrategy"),
        (nested("cloud.ray.upgradeStrategy", "NewClusterWithIncrementalUpgrade"), "upgradeStrategy"),
        (nested("router.image.digest", "sha256:short"), "digest"),
        (nested("redis.storage.size", "2 GB"), "size"),
        (nested("router.probes.startup.budgetSeconds", 0), "budgetSeconds"),
        (nested("cloud.external.url", "llm.example.com"), "url"),
        (nested("router.podSpec", {"runtimeClas": "gvisor"}), "runtimeClas"),
        (nested("router.extraContainers", [{"image": "a"}]), "name"),
        (nested("router.autoscaling.keda.triggers", [{"type": "cron", "metdata": {}}]), "metdata"),
        (nested("router.httpRoute.parentRefs", [{"namespace": "a"}]), "name"),
        (nested("router.httpRoute.requestTimeout", "soon"), "requestTimeout"),
        (nested("monitoring.serviceMonitor.interval", "15"), "interval"),
        (nested("monitoring.prometheusRule.extraRules", [{"record": "a"}]), "expr"),
        (nested("redis.auth.routerUsername", "me@home"), "routerUsername"),
        (nested("redis.maxMemory", "200 MB"), "maxMemory"),
        (nested("redis.external.host", "redis://cache:6379"), "host"),
        (nested("redis.external.host", "cache:6379"), "host"),
        (nested("router.keys.existingSecret", "My_Secret"), "existingSecret"),
        (nested("router.keys.key", "keys json"), "key"),
        (nested("nameOverride", "a b"), "nameOverride"),
        (nested("router.autoscaling.minReplicas", 0), "minReplicas"),
        (nested("router.service.spec", {"selector": {"app": "other"}}), "selector"),
        (nested("router.image.tag", 1.5), "tag"),
        (nested("router.podAnnotations", {"port": 8080}), "port"),
        (nested("cloud.external.rateDomain", "d" * 65), "rateDomain"),
    ],
)
def test_the_schema_names_the_key_at_fault(either: Helm, layer: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmFailed, match=said):
        either.template(EVERYTHING, layer)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (
            nested("router.keys.existingSecret", ""),
            "router.keys.existingSecret is required: the router listens beyond",
        ),
        (
            nested("redis.enabled", False) | nested("cloud.ray", {"faultTolerance": {"enabled": False}}),
            "more than one router needs shared fleet state",
        ),
        (
            nested("router.autoscaling", {"minReplicas": 9, "maxReplicas": 3}),
            "minReplicas is over router.autoscaling.maxReplicas",
        ),
        (
            nested("router.podDisruptionBudget", {"minAvailable": 1, "maxUnavailable": "50%"}),
            "minAvailable or maxUnavailable, not both",
        ),
        (nested("cloud.ray.workers.gpu.minReplicas", 9), "cloud.ray.workers.gpu.minReplicas is over maxReplicas"),
        (nested("redis.external.host", "redis"), "redis.enabled and redis.external.host exclude each other"),
        (nested("redis.auth.existingSecret", ""), "redis.auth.existingSecret is required with redis.enabled"),
        (nested("redis.auth.create", True), "redis.auth.create and redis.auth.existingSecret exclude each other"),
        (nested("redis.tls.existingSecret", ""), "redis.tls.existingSecret is required with redis.tls.enabled"),
        (nested("router.ingress.hosts", []), "router.ingress.hosts needs at least one host name"),
        (nested("router.httpRoute.parentRefs", []), "router.httpRoute.parentRefs needs at least one gateway"),
        (nested("monitoring.serviceMonitor.key.existingSecret", ""), "/metrics asks for a key"),
        (nested("cloud.modelStore.cacheClaim", "cache"), "cacheClaim and cloud.modelStore.cacheStorage.size exclude"),
        (nested("fullnameOverride", "1st"), "the name '1st' must begin with a letter"),
        (
            nested("cloud.settings.models", [{"model_id": "m", "source": "m", "threads": 5}]),
            "model m wants 5 threads but a worker of group cpu has 4 CPUs",
        ),
        (nested("router.joinToken.secretName", "keys"), "the Job would write over your keys"),
        (nested("router.settings.edges", [{"id": "cloud", "url": "http://pi:8081"}]), "two backends with the id cloud"),
        (
            nested("cloud.ray.extraEnv", [{"name": "REDIS_PASSWORD", "value": "x"}]),
            "cloud.ray.extraEnv must not set REDIS_PASSWORD: the operator does, for cloud.ray.faultTolerance",
        ),
        (
            nested("cloud.ray.workers.cpu.extraEnv", [{"name": "A"}, {"name": "RAY_AUTH_TOKEN", "value": "x"}]),
            "cloud.ray.workers.cpu.extraEnv must not set RAY_AUTH_TOKEN: the operator does, for cloud.ray.auth",
        ),
        (
            nested("cloud.ray.head.extraEnv", [{"name": "RAY_enable_autoscaler_v2", "value": "0"}]),
            "cloud.ray.head.extraEnv must not set RAY_enable_autoscaler_v2",
        ),
        (
            nested("cloud.ray.head.podSpec", {"restartPolicy": "Always"}),
            "cloud.ray.head.podSpec.restartPolicy must be Never under cloud.ray.autoscaling",
        ),
        (
            nested("cloud.ray.annotations", {"ray.io/external-storage-namespace": "mine"}),
            "cloud.ray.annotations must not hold ray.io/external-storage-namespace",
        ),
    ],
)
def test_values_that_could_never_work_are_refused(helm4: Helm, layer: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmFailed) as failed:
        helm4.template(EVERYTHING, layer)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (
            nested("cloud.settings.accelerator", {"kind": "gpu"}),
            "accelerator.kind is gpu but cloud.ray.workers.gpu.enabled is not true",
        ),
        (
            {
                "cloud": {
                    "settings": {"accelerator": {"kind": "gpu"}},
                    "ray": {"workers": {"gpu": {"enabled": True, "resources": NO_GPU}}},
                }
            },
            "cloud.ray.workers.gpu.resources.limits hold no GPU",
        ),
        (nested("cloud.ray.faultTolerance.enabled", True), "cloud.ray.faultTolerance.enabled needs a Redis"),
        (
            nested("cloud.settings.models", [{"model_id": "m", "source": "package:m"}]),
            "set cloud.modelStore.existingClaim",
        ),
        (
            nested("cloud", {"enabled": False, "external": {"url": "https://llm.example.com"}}),
            "cloud.external.url is set but cloud.enabled is false",
        ),
        (nested("router.replicas", 2), "more than one router needs shared fleet state"),
        (nested("redis.auth.create", True), "redis.auth.create needs redis.enabled"),
        (
            nested("cloud.settings.life", {"drain_s": 600}),
            "cloud.ray.oldClusterDeletionDelaySeconds (120) is shorter than cloud.settings.life.drain_s (600)",
        ),
        (
            nested("cloud.ray", {"autoscaling": {"enabled": False}, "workers": {"cpu": {"replicas": 0}}}),
            "cloud.ray.workers.cpu.replicas (0) is not between minReplicas (1) and maxReplicas (2)",
        ),
        (
            nested("cloud.ray.workers.cpu", {"minReplicas": 0, "maxReplicas": 0}),
            "cloud.ray.workers.cpu.maxReplicas is 0: no node could run an engine",
        ),
    ],
)
def test_the_small_installation_is_checked_too(helm4: Helm, layer: dict[str, Any], said: str) -> None:
    small = read(CI_VALUES[-1])
    with pytest.raises(HelmFailed) as failed:
        helm4.template(small, layer)
    assert said in str(failed.value)


MODEL = {"model_id": "m", "source": "a/m"}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"models": [MODEL, MODEL]}, "cloud.settings.models has two models called m"),
        ({"models": [MODEL | {"model_id": None}]}, "cloud.settings.models has a model without a model_id"),
        ({"models": [MODEL | {"source": None}]}, "model m has no source"),
        ({"keys": [{"name": None, "sha256": "a" * 64}]}, "cloud.settings.keys has a key without a name"),
        ({"keys": [{"name": "a", "sha256": None}]}, "key a of cloud.settings.keys has no sha256"),
        ({"models": [MODEL | {"autoscaling": {"min_replicas": 2}}]}, "model m has autoscaling.min_replicas over"),
        (
            {"models": [MODEL | {"autoscaling": {"max_ongoing_requests": 8}}]},
            "model m has autoscaling.target_ongoing_requests over max_ongoing_requests",
        ),
        (
            {"models": [MODEL | {"engine_kwargs": {"max_model_len": 9}}]},
            "engine_kwargs.max_model_len is set by context_tokens",
        ),
        ({"accelerator": {"type": "L4"}}, "cloud.settings.accelerator.type is allowed only with kind gpu"),
    ],
)
def test_what_the_program_would_refuse_is_refused_before(
    helm4: Helm, section: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Each of these is a section that `isthmus cloud render` refuses too: the check is about something real."""
    whole = merged(default_values()["cloud"]["settings"], section)
    (tmp_path / "isthmus.yaml").write_text(yaml.safe_dump({"cloud": whole}), "utf-8")
    with pytest.raises(SettingsError):
        load(CloudSettings, "cloud", tmp_path / "isthmus.yaml")
    with pytest.raises(HelmFailed) as failed:
        helm4.template(CI_VALUES[-1], {"cloud": {"settings": section}})
    assert said in str(failed.value)
