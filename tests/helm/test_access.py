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


def test_what_the_operator_says_again_takes_the_place_of_the_charts_own(helm: Helm) -> None:
    """The API server refuses two variables or volumes of one name, and two mounts at one place."""
    again = {
        "extraEnv": [{"name": "ISTHMUS_HOME", "value": "/data"}, {"name": "HF_HOME", "value": "/data"}],
        "extraVolumes": [{"name": name, "hostPath": {"path": "/fast"}} for name in ("tmp", "cache", "data")],
        "extraVolumeMounts": [{"name": "data", "mountPath": path} for path in ("/tmp", "/cache", "/data")],
    }
    values = {"router": again, "cloud": {"ray": again | {"workers": {"cpu": again}}}}
    for name, template in helm.template(SMALL, values).workloads():
        spec, container = template["spec"], template["spec"]["containers"][0]
        said = {v["name"]: v.get("value") for v in container["env"]}
        assert (len(said), said["ISTHMUS_HOME"], said["HF_HOME"]) == (len(container["env"]), "/data", "/data"), name
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert len(volumes) == len(spec["volumes"]) and all("hostPath" in volumes[n] for n in ("tmp", "cache", "data"))
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert len(mounts) == len(container["volumeMounts"]) and mounts["/tmp"] == mounts["/cache"] == "data"


def test_the_service_takes_any_field_but_those_that_the_chart_decides(helm: Helm) -> None:
    extra = {"ipFamilyPolicy": "PreferDualStack", "loadBalancerClass": "internal", "externalTrafficPolicy": None}
    values = {"router": {"service": {"type": "LoadBalancer", "spec": extra}}}
    spec = helm.template(SMALL, values).one("Service", "demo-isthmus-router")["spec"]
    assert (spec["type"], spec["ipFamilyPolicy"], spec["loadBalancerClass"]) == ("LoadBalancer", *[*extra.values()][:2])
    assert "externalTrafficPolicy" not in spec and spec["selector"] and spec["ports"]


def test_recreate_carries_no_rolling_update(helm: Helm) -> None:
    """The API server refuses the default's `rollingUpdate` beside another type."""
    rendered = helm.template(SMALL, sets=("router.strategy.type=Recreate",))
    assert rendered.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_a_user_that_the_cluster_chooses(helm: Helm) -> None:
    """OpenShift: the ids are taken away by null, or are large numbers, which stay whole numbers."""
    chosen = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
    values = {"router": {"podSecurityContext": chosen}, "cloud": {"ray": {"podSecurityContext": chosen}}}
    for name, template in helm.template(SMALL, values).pod_templates():
        assert template["spec"]["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}, name
    large = helm.template(SMALL, {"router": {"podSecurityContext": {"runAsUser": 1000650000, "seccompProfile": None}}})
    assert "runAsUser: 1000650000\n" in large.text
    assert "seccompProfile" not in large.one("Deployment")["spec"]["template"]["spec"]["securityContext"]


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
