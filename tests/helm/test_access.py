"""Ways in from outside the cluster, and the hatches by which an operator changes a pod that the chart describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helm.manifests import CI_VALUES, Helm, Rendered

SMALL = CI_VALUES[-1]
CLOSED_PATHS = ("/metrics", "/router/v1/explain", "/fleet/v1/backends", "/healthz")


def test_ingress_leads_to_the_router(of_ci: Callable[[str], Rendered]) -> None:
    rendered = of_ci("ha")
    spec = rendered.one("Ingress")["spec"]
    service = rendered.one("Service", "demo-isthmus-router")
    assert spec["ingressClassName"] == "nginx"
    assert spec["tls"] == [{"hosts": ["models.example.com"], "secretName": "models-tls"}]
    (rule,) = spec["rules"]
    assert rule["host"] == "models.example.com"
    for path in rule["http"]["paths"]:
        backend = path["backend"]["service"]
        assert backend["name"] == service["metadata"]["name"]
        assert backend["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}


def test_http_route_leads_to_the_router(of_ci: Callable[[str], Rendered]) -> None:
    """Field by field, as gateway.networking.k8s.io/v1 has them: its schema is not published with Kubernetes'."""
    rendered = of_ci("edge-fleet")
    route = rendered.one("HTTPRoute")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert route["spec"].keys() == {"parentRefs", "hostnames", "rules"}
    assert route["spec"]["parentRefs"] == [{"name": "public", "namespace": "gateways", "sectionName": "https"}]
    assert route["spec"]["hostnames"] == ["models.example.com"]
    (rule,) = route["spec"]["rules"]
    assert rule.keys() == {"matches", "timeouts", "backendRefs"}
    assert rule["timeouts"] == {"request": "0s"}, "no gateway may cut a stream for its length"
    assert [match["path"]["type"] for match in rule["matches"]] == ["PathPrefix"] * 2
    service = rendered.one("Service", "demo-isthmus-router")
    assert rule["backendRefs"] == [{"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}]


@pytest.mark.parametrize("name", ["ha", "edge-fleet"])
def test_what_is_for_operators_is_not_reached_from_outside(of_ci: Callable[[str], Rendered], name: str) -> None:
    rendered = of_ci(name)
    prefixes = [
        path["path"]
        for ingress in rendered.of_kind("Ingress")
        for rule in ingress["spec"]["rules"]
        for path in rule["http"]["paths"]
    ] + [
        match["path"]["value"]
        for route in rendered.of_kind("HTTPRoute")
        for rule in route["spec"]["rules"]
        for match in rule["matches"]
    ]
    assert prefixes == ["/v1", "/fleet/v1/heartbeats"]
    assert not [path for path in CLOSED_PATHS for prefix in prefixes if path == prefix or path.startswith(f"{prefix}/")]


HATCHES: dict[str, Any] = {
    "extraEnv": [{"name": "EXTRA", "value": "1"}],
    "extraVolumes": [{"name": "extra", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "extra", "mountPath": "/extra"}],
    "extraContainers": [{"name": "beside", "image": "sidecar:1"}],
    "initContainers": [{"name": "before", "image": "init:1"}],
    "podAnnotations": {"note": "yes"},
    "podLabels": {"team": "a", "app.kubernetes.io/component": "stolen"},
    "podSpec": {"runtimeClassName": "gvisor", "terminationGracePeriodSeconds": 7, "securityContext": {"runAsUser": 5}},
}


def _with_hatches() -> dict[str, Any]:
    groups = {"head": HATCHES, "workers": {"cpu": HATCHES}}
    redis = {"enabled": True, "auth": {"existingSecret": "users"}}
    return {"router": HATCHES, "cloud": {"ray": groups}, "redis": redis | HATCHES}


def test_every_pod_that_stays_has_the_same_hatches(helm: Helm) -> None:
    seen = set()
    for name, template in helm.template(SMALL, _with_hatches()).workloads():
        spec, labels = template["spec"], template["metadata"]["labels"]
        container = spec["containers"][0]
        seen.add(labels["app.kubernetes.io/component"])
        assert {"name": "EXTRA", "value": "1"} in container["env"], name
        assert {"name": "extra", "mountPath": "/extra"} in container["volumeMounts"]
        assert {"name": "extra", "emptyDir": {}} in spec["volumes"]
        assert spec["containers"][1] == HATCHES["extraContainers"][0]
        assert spec["initContainers"] == HATCHES["initContainers"]
        assert template["metadata"]["annotations"]["note"] == "yes"
        assert labels["team"] == "a"
        assert (spec["runtimeClassName"], spec["terminationGracePeriodSeconds"]) == ("gvisor", 7)
        assert spec["securityContext"]["runAsUser"] == 5
        assert spec["securityContext"]["runAsNonRoot"] is True, "what is not said stays"
    assert seen == {"router", "ray-head", "ray-worker", "redis"}, "labels that select pods cannot be taken over"


def test_router_pods_are_spread_over_zones_and_nodes(rendered: Rendered) -> None:
    constraints = rendered.one("Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [c["topologyKey"] for c in constraints] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    for constraint in constraints:
        assert constraint["labelSelector"]["matchLabels"].items() <= labels.items()
        assert constraint["whenUnsatisfiable"] == "ScheduleAnyway", "one node is a cluster too"


def test_the_cache_is_one_claim_for_all_ray_pods(of_ci: Callable[[str], Rendered]) -> None:
    rendered = of_ci("edge-fleet")
    claim = rendered.one("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "200Gi"
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    for name, template in rendered.workloads():
        if name.startswith("RayService"):
            volume = next(v for v in template["spec"]["volumes"] if v["name"] == "cache")
            assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_keda_scales_on_requests_in_flight(of_ci: Callable[[str], Rendered]) -> None:
    cpu, prometheus, cron = of_ci("edge-fleet").one("ScaledObject")["spec"]["triggers"]
    assert (cpu["type"], cpu["metadata"]) == ("cpu", {"value": "70"})
    assert prometheus["metadata"] == {
        "serverAddress": "http://prometheus.monitoring:9090",
        "query": 'sum(isthmus_router_in_flight{namespace="models", service="demo-isthmus-router"})',
        "threshold": "64",
    }
    assert cron["metadata"]["desiredReplicas"] == "4"
