"""Values: documented, closed by a schema that is generated, removable by null, and refused with a clear message."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.helm.manifests import CHART, CI_VALUES, Helm, HelmFailed, default_values, read
from tests.helm.test_render import _nulls

GENERATOR = CHART.parent / "generate.py"
FREE_FORM = {
    "global",  # belongs to all charts of a release
    "extraObjects",  # any object of any API
    "engine_kwargs",  # whatever the engine takes
    "PluginSettings.properties.options",  # whatever a recogniser of others takes
    "FieldsV1",  # of Kubernetes itself, whose schema says no more
}

EVERYTHING: dict[str, Any] = {
    "imageRegistry": "mirror.internal",
    "imagePullSecrets": [{"name": "pull"}],
    "commonLabels": {"team": "a"},
    "router": {
        "replicas": 2,
        "keys": {"existingSecret": "keys"},
        "edgeKey": {"existingSecret": "edge"},
        "auditKey": {"existingSecret": "audit"},
        "settings": {"limits": {"body_bytes": 2048}},
        "podDisruptionBudget": {"enabled": True},
        "autoscaling": {"enabled": True},
        "affinity": {"podAntiAffinity": {}},
        "ingress": {"enabled": True, "className": "nginx", "hosts": ["a.example.com"]},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["a.example.com"]},
        "joinToken": {"enabled": True},
    },
    "cloud": {
        "modelStore": {"existingClaim": "checkpoints", "cacheStorage": {"size": "5Gi", "className": "files"}},
        "hubToken": {"existingSecret": "hub"},
        "ray": {"faultTolerance": {"enabled": True}, "workers": {"gpu": {"enabled": True}}},
    },
    "redis": {
        "enabled": True,
        "auth": {"existingSecret": "redis"},
        "tls": {"enabled": True, "existingSecret": "redis-tls"},
    },
    "networkPolicy": {"enabled": True, "serveClients": [{"podSelector": {}}]},
    "monitoring": {
        "serviceMonitor": {"enabled": True, "key": {"existingSecret": "metrics"}},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "tests": {"key": {"existingSecret": "test-key"}},
}
"""Values under which every template renders, so that removing a key is felt wherever it is used."""

NEEDED = {
    "router.keys": "router.keys.existingSecret is required",
    "router.keys.existingSecret": "router.keys.existingSecret is required",
    "router.image": "router.image.repository is required",
    "router.image.repository": "router.image.repository is required",
    "cloud.image": "cloud.image.repository is required",
    "cloud.image.repository": "cloud.image.repository is required",
    "cloud.settings": "cloud.settings.models needs at least one model",
    "cloud.settings.models": "cloud.settings.models needs at least one model",
    "cloud.ray": "cloud.ray.version is required",
    "cloud.ray.workers": "cloud.ray.workers.cpu.enabled is not true",
    "cloud.ray.workers.cpu": "cloud.ray.workers.cpu.enabled is not true",
    "cloud.ray.workers.cpu.enabled": "cloud.ray.workers.cpu.enabled is not true",
    "cloud.ray.version": "cloud.ray.version is required",
    "redis": "needs shared fleet state",
    "redis.enabled": "needs shared fleet state",
    "redis.auth": "redis.auth.existingSecret is required",
    "redis.auth.existingSecret": "redis.auth.existingSecret is required",
    "redis.tls.existingSecret": "redis.tls.existingSecret is required",
    "router.ingress.hosts": "router.ingress.hosts needs at least one host",
    "router.ingress.paths": "router.ingress.paths needs at least one path",
    "router.httpRoute.parentRefs": "router.httpRoute.parentRefs needs at least one gateway",
    "router.httpRoute.paths": "router.httpRoute.paths needs at least one path",
    "monitoring.serviceMonitor.key": "monitoring.serviceMonitor.key.existingSecret is required",
    "monitoring.serviceMonitor.key.existingSecret": "monitoring.serviceMonitor.key.existingSecret is required",
    "redis.image": "redis.image.repository is required",
    "redis.image.repository": "redis.image.repository is required",
}
"""Keys that cannot be missing in `EVERYTHING`, and what is said then."""


def _paths(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted paths of all keys that the chart itself documents; blocks of Kubernetes are one key."""
    for key, value in values.items():
        yield f"{prefix}{key}"
        known = schema["properties"][key]
        if isinstance(value, dict) and "properties" in known:
            yield from _paths({k: v for k, v in value.items() if k in known["properties"]}, known, f"{prefix}{key}.")


def _schema() -> dict[str, Any]:
    loaded = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert isinstance(loaded, dict)
    return loaded


DOCUMENTED = sorted(_paths(default_values(), _schema()))


def _nested(path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split(".")
    layer: dict[str, Any] = {last: value}
    for key in reversed(parents):
        layer = {key: layer}
    return layer


def _rounds() -> Iterator[tuple[str, ...]]:
    """Keys to remove together: many of one depth at once; alone what is needed or switches a part off."""
    alone = [path for path in DOCUMENTED if path in NEEDED or "." not in path or path.endswith((".enabled", ".create"))]
    yield from ((path,) for path in alone)
    for depth in range(1, 8):
        level = [path for path in DOCUMENTED if path not in alone and path.count(".") == depth]
        yield from (tuple(level[start : start + 12]) for start in range(0, len(level), 12))


def test_null_removes_every_documented_key(helm: Helm) -> None:
    """HM-01: no key is left as a literal null, and where one cannot be missing a line of ours says so."""
    assert len(DOCUMENTED) > 150
    assert {path for together in _rounds() for path in together} == set(DOCUMENTED)

    def outcome(paths: tuple[str, ...]) -> str | None:
        needed = NEEDED.get(paths[0])
        try:
            rendered = helm.template(EVERYTHING, *(_nested(path, None) for path in paths))
        except HelmFailed as failed:
            return None if needed and needed in str(failed) else f"{paths}: {failed}"
        if needed:
            return f"{paths}: rendered without it"
        found = _nulls(rendered.objects)
        return f"{paths}: {found}" if found or "<no value>" in rendered.text else None

    with ThreadPoolExecutor(2) as pool:
        assert [fault for fault in pool.map(outcome, _rounds()) if fault] == []


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("router.resources", "resources"),
        ("router.probes.liveness", "livenessProbe"),
        ("router.preStopSeconds", "lifecycle"),
    ],
)
def test_null_removes_the_block_itself(helm: Helm, path: str, gone: str) -> None:
    """HM-01: not only does it render; the default is gone, from a file as from the command line."""
    with_it = helm.template(EVERYTHING).one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert gone in with_it
    for rendered in (helm.template(EVERYTHING, _nested(path, None)), helm.template(EVERYTHING, sets=(f"{path}=null",))):
        assert gone not in rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]


def test_null_works_where_the_chart_is_a_dependency(helm: Helm, tmp_path: Path) -> None:
    """HM-01: a parent chart removes keys of its subchart."""
    shutil.copytree(CHART, tmp_path / "charts" / "isthmus")
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n", "utf-8")
    values = {"isthmus": EVERYTHING | {"router": EVERYTHING["router"] | {"affinity": None, "resources": None}}}
    rendered = helm.template(values, chart=tmp_path)
    spec = rendered.one("Deployment")["spec"]["template"]["spec"]
    assert "affinity" not in spec and "resources" not in spec["containers"][0]
    assert not _nulls(rendered.objects)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (_nested("router.replcas", 2), "replcas"),
        (_nested("router.settings.limits", {"body_byte": 1}), "body_byte"),
        (_nested("cloud.settings.models", [{"model_id": "m", "source": "m", "treads": 2}]), "treads"),
        (_nested("cloud.settings.host", "::"), "host"),
        (_nested("router.resources.limit", {"cpu": 1}), "limit"),
        (_nested("router.tolerations", [{"kee": "a"}]), "kee"),
        (_nested("router.replicas", "two"), "replicas"),
        (_nested("cloud.ray.upgradeStrategy", "Rolling"), "upgradeStrategy"),
        (_nested("cloud.ray.upgradeStrategy", "NewClusterWithIncrementalUpgrade"), "upgradeStrategy"),
        (_nested("router.image.digest", "sha256:short"), "digest"),
        (_nested("redis.storage.size", "2 GB"), "size"),
        (_nested("router.probes.startup.budgetSeconds", 0), "budgetSeconds"),
        (_nested("cloud.external.url", "llm.example.com"), "url"),
        (_nested("router.podSpec", {"runtimeClas": "gvisor"}), "runtimeClas"),
        (_nested("router.extraContainers", [{"image": "a"}]), "name"),
        (_nested("router.autoscaling.keda.triggers", [{"type": "cron", "metdata": {}}]), "metdata"),
        (_nested("router.httpRoute.parentRefs", [{"namespace": "a"}]), "name"),
        (_nested("router.httpRoute.requestTimeout", "soon"), "requestTimeout"),
        (_nested("monitoring.serviceMonitor.interval", "15"), "interval"),
        (_nested("monitoring.prometheusRule.extraRules", [{"record": "a"}]), "expr"),
        (_nested("redis.auth.routerUsername", "me@home"), "routerUsername"),
        (_nested("redis.maxMemory", "200 MB"), "maxMemory"),
    ],
)
def test_the_schema_names_the_key_at_fault(helm: Helm, layer: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmFailed, match=said):
        helm.template(EVERYTHING, layer)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (
            _nested("router.keys.existingSecret", ""),
            "router.keys.existingSecret is required: the router listens beyond",
        ),
        (
            _nested("redis.enabled", False) | _nested("cloud.ray", {"faultTolerance": {"enabled": False}}),
            "more than one router needs shared fleet state",
        ),
        (
            _nested("router.autoscaling", {"minReplicas": 9, "maxReplicas": 3}),
            "minReplicas is over router.autoscaling.maxReplicas",
        ),
        (
            _nested("router.podDisruptionBudget", {"minAvailable": 1, "maxUnavailable": "50%"}),
            "minAvailable or maxUnavailable, not both",
        ),
        (_nested("cloud.ray.workers.gpu.minReplicas", 9), "cloud.ray.workers.gpu.minReplicas is over maxReplicas"),
        (_nested("redis.external.host", "redis"), "redis.enabled and redis.external.host exclude each other"),
        (_nested("redis.auth.existingSecret", ""), "redis.auth.existingSecret is required with redis.enabled"),
        (_nested("redis.auth.create", True), "redis.auth.create and redis.auth.existingSecret exclude each other"),
        (_nested("redis.tls.existingSecret", ""), "redis.tls.existingSecret is required with redis.tls.enabled"),
        (_nested("router.ingress.hosts", []), "router.ingress.hosts needs at least one host name"),
        (_nested("router.httpRoute.parentRefs", []), "router.httpRoute.parentRefs needs at least one gateway"),
        (_nested("monitoring.serviceMonitor.key.existingSecret", ""), "/metrics asks for a key"),
        (_nested("cloud.modelStore.cacheClaim", "cache"), "cacheClaim and cloud.modelStore.cacheStorage.size exclude"),
        (_nested("fullnameOverride", "1st"), "the name '1st' must begin with a letter"),
        (
            _nested("cloud.settings.models", [{"model_id": "m", "source": "m", "threads": 5}]),
            "model m wants 5 threads but a worker of group cpu has 4 CPUs",
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
            _nested("cloud.settings.accelerator", {"kind": "gpu"}),
            "accelerator.kind is gpu but cloud.ray.workers.gpu.enabled is not true",
        ),
        (_nested("cloud.ray.faultTolerance.enabled", True), "cloud.ray.faultTolerance.enabled needs a Redis"),
        (
            _nested("cloud.settings.models", [{"model_id": "m", "source": "package:m"}]),
            "set cloud.modelStore.existingClaim",
        ),
        (
            _nested("cloud", {"enabled": False, "external": {"url": "https://llm.example.com"}}),
            "cloud.external.url is set but cloud.enabled is false",
        ),
        (_nested("router.replicas", 2), "more than one router needs shared fleet state"),
        (_nested("redis.auth.create", True), "redis.auth.create needs redis.enabled"),
    ],
)
def test_the_small_installation_is_checked_too(helm4: Helm, layer: dict[str, Any], said: str) -> None:
    small = read(CI_VALUES[-1])
    with pytest.raises(HelmFailed) as failed:
        helm4.template(small, layer)
    assert said in str(failed.value)


def test_generated_files_are_current() -> None:
    """Schema, defaults and README tables follow values.yaml and the settings models."""
    done = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, check=False, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_every_key_has_a_comment_of_its_own() -> None:
    """All keys down to the blocks that Kubernetes documents; the schema carries the comment as description."""

    def bare(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for key, part in schema["properties"].items():
            path = f"{prefix}{key}"
            if path not in ("global",) and not part.get("description"):
                yield path
            if "properties" in part and path not in ("router.settings", "cloud.settings"):
                yield from bare(part, f"{path}.")

    assert list(bare(_schema())) == []


def test_every_object_of_the_schema_is_closed() -> None:
    def opened(schema: Any, path: str) -> Iterator[str]:
        if isinstance(schema, list):
            for number, part in enumerate(schema):
                yield from opened(part, f"{path}[{number}]")
        elif isinstance(schema, dict):
            kinds = schema.get("type", [])
            is_object = "object" in (kinds if isinstance(kinds, list) else [kinds])
            if is_object and schema.get("additionalProperties", True) is True:
                yield path
            for key, part in schema.items():
                yield from opened(part, f"{path}.{key}")

    open_paths = set(opened(_schema(), ""))
    assert {path for path in open_paths if not any(name in path for name in FREE_FORM)} == set()
