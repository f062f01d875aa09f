"""What one object says about another is true: selectors, ports, references, targets; and every pod is restricted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest

from tests.helm.manifests import CI_VALUES, Helm, HelmFailed, Manifest, Rendered, read

Labels = dict[str, str]


def _labels_of_pods(rendered: Rendered) -> dict[str, Labels]:
    return {name: template["metadata"]["labels"] for name, template in rendered.pod_templates()}


def _selects(selector: Labels, labels: Labels) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def _containers(template: Manifest) -> Iterator[Manifest]:
    yield from template["spec"].get("initContainers", [])
    yield from template["spec"]["containers"]


def test_every_service_selects_one_workload_and_its_port(rendered: Rendered) -> None:
    for service in rendered.of_kind("Service"):
        spec = service["spec"]
        hits = [
            template
            for _, template in rendered.pod_templates()
            if _selects(spec["selector"], template["metadata"]["labels"])
        ]
        assert len(hits) == 1, service["metadata"]["name"]
        names = {port["name"] for container in _containers(hits[0]) for port in container.get("ports", [])}
        assert {port["targetPort"] for port in spec["ports"]} <= names


def test_workloads_select_exactly_their_own_pods(rendered: Rendered) -> None:
    pods = _labels_of_pods(rendered)
    for found in rendered.of_kind("Deployment") + rendered.of_kind("StatefulSet"):
        own = f"{found['kind']}/{found['metadata']['name']}"
        assert [
            name for name, labels in pods.items() if _selects(found["spec"]["selector"]["matchLabels"], labels)
        ] == [own]


def test_budgets_autoscalers_and_policies_point_at_pods_that_exist(rendered: Rendered) -> None:
    pods = _labels_of_pods(rendered)
    for found in rendered.of_kind("PodDisruptionBudget"):
        assert len([1 for labels in pods.values() if _selects(found["spec"]["selector"]["matchLabels"], labels)]) == 1
        assert len({"minAvailable", "maxUnavailable"} & found["spec"].keys()) == 1
    for found in rendered.of_kind("HorizontalPodAutoscaler"):
        target = found["spec"]["scaleTargetRef"]
        deployment = rendered.one(target["kind"], target["name"])
        assert "replicas" not in deployment["spec"], "server-side apply would fight the autoscaler over it"
        resources = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]
        assert "cpu" in resources["requests"], "utilisation is a share of the request"
    for found in rendered.of_kind("ScaledObject"):
        deployment = rendered.one("Deployment", found["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in deployment["spec"]
        assert 1 <= found["spec"]["minReplicaCount"] <= found["spec"]["maxReplicaCount"]
    assert not (rendered.of_kind("ScaledObject") and rendered.of_kind("HorizontalPodAutoscaler"))
    for found in rendered.of_kind("NetworkPolicy"):
        assert any(_selects(found["spec"]["podSelector"]["matchLabels"], labels) for labels in pods.values())


def test_a_deployment_without_autoscaler_says_its_replicas(of_ci: Callable[[str], Rendered]) -> None:
    assert of_ci("own-redis").one("Deployment")["spec"]["replicas"] == 2
    assert "replicas" not in of_ci("ha").one("Deployment")["spec"]


def _references(value: Any, kind: str) -> set[str]:
    """Names of the Secrets or ConfigMaps that `value` refers to, at any depth."""
    keys = {"Secret": ("secretKeyRef", "secretRef"), "ConfigMap": ("configMapKeyRef", "configMapRef", "configMap")}[
        kind
    ]
    found: set[str] = set()
    if isinstance(value, dict):
        for key, part in value.items():
            if key in keys and isinstance(part, dict):
                found.add(part["name"])
            elif kind == "Secret" and key == "secretName":
                found.add(part)
            elif kind == "Secret" and key == "credentials":
                found.add(part["name"])
            else:
                found |= _references(part, kind)
    elif isinstance(value, list):
        for part in value:
            found |= _references(part, kind)
    return found


@pytest.mark.parametrize("values", CI_VALUES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_secrets_are_by_reference_to_names_that_the_operator_gave(helm4: Helm, values: Any) -> None:
    """What is referred to is what the values name or the release makes, and all that they name is used."""
    rendered = helm4.template(values)
    assert bool(rendered.of_kind("Secret")) is (read(values).get("redis", {}).get("auth", {}).get("create") is True)
    given = set(_existing_secrets(read(values)))
    assert _references(rendered.objects, "Secret") == given | _made(rendered)


def _made(rendered: Rendered) -> set[str]:
    """Secrets that come with the release: passwords of its Redis, and the join token that its Job makes."""
    made = {found["metadata"]["name"] for found in rendered.of_kind("Secret")}
    return made | {job["spec"]["template"]["spec"]["containers"][0]["args"][3] for job in rendered.of_kind("Job")}


def _existing_secrets(values: Any) -> Iterator[str]:
    if isinstance(values, list):
        for item in values:
            yield from _existing_secrets(item)
    elif isinstance(values, dict):
        for key, value in values.items():
            if key in ("existingSecret", "caSecret", "secretName"):
                yield value
            else:
                yield from _existing_secrets(value)


def test_config_maps_and_service_accounts_exist(rendered: Rendered) -> None:
    maps = {
        found["metadata"]["name"]
        for found in rendered.of_kind("ConfigMap")
        if found["metadata"]["labels"]["app.kubernetes.io/component"] != "dashboards"
    }
    assert _references(rendered.objects, "ConfigMap") == maps
    accounts = {found["metadata"]["name"] for found in rendered.of_kind("ServiceAccount")}
    for name, template in rendered.pod_templates():
        account = template["spec"].get("serviceAccountName", "default")
        assert account in accounts | {"default"}, name
        speaks_to_the_api = name.endswith("/head") or name.startswith("Job/")
        assert template["spec"]["automountServiceAccountToken"] is speaks_to_the_api, name


def test_volumes_and_mounts_agree_and_none_lies_inside_a_read_only_one(rendered: Rendered) -> None:
    """A runtime cannot make a mount point inside a ConfigMap or Secret volume."""
    claims = {
        f"StatefulSet/{found['metadata']['name']}": {
            c["metadata"]["name"] for c in found["spec"]["volumeClaimTemplates"]
        }
        for found in rendered.of_kind("StatefulSet")
    }
    for name, template in rendered.pod_templates():
        volumes = {volume["name"] for volume in template["spec"].get("volumes", [])}
        mounted = {m["name"] for container in _containers(template) for m in container.get("volumeMounts", [])}
        assert volumes | claims.get(name, set()) == mounted, name
        for container in _containers(template):
            mounts = container.get("volumeMounts", [])
            paths = {PurePosixPath(mount["mountPath"]): mount for mount in mounts}
            assert len(paths) == len(mounts)
            for path in paths:
                assert not any(paths[outer].get("readOnly") for outer in paths if outer in path.parents), name


def test_every_pod_meets_the_restricted_standard(rendered: Rendered) -> None:
    """Kubernetes Pod Security Standards, `restricted`, on what the chart itself renders."""
    for name, template in rendered.pod_templates():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["securityContext"].get("runAsUser") != 0
        assert not any(spec.get(host) for host in ("hostNetwork", "hostPID", "hostIPC"))
        assert not any("hostPath" in volume for volume in spec.get("volumes", [])), name
        for container in _containers(template):
            _restricted(container["securityContext"])
            assert not any("hostPort" in port for port in container.get("ports", [])), name
    for service in rendered.of_kind("RayService"):
        options = service["spec"]["rayClusterConfig"].get("autoscalerOptions")
        if options:
            _restricted(options["securityContext"])


def _restricted(context: Manifest) -> None:
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not context.get("privileged")


def test_containers_ask_for_resources_and_run_a_fixed_image(rendered: Rendered) -> None:
    for name, template in rendered.pod_templates():
        for container in _containers(template):
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert "memory" in container["resources"]["limits"], name
            repository, _, tag = container["image"].partition(":")
            assert repository and tag and tag != "latest", name


def test_image_by_registry_tag_and_digest(helm: Helm) -> None:
    digest = f"sha256:{'a' * 64}"
    values = {
        "imageRegistry": "mirror.internal/",
        "router": {"image": {"digest": digest}},
        "cloud": {"image": {"tag": "9"}},
    }
    images = {
        container["image"]
        for _, template in helm.template(CI_VALUES[-1], values).pod_templates()
        for container in _containers(template)
    }
    assert images == {f"mirror.internal/isthmus-router@{digest}", "mirror.internal/isthmus-cloud:9"}
    with pytest.raises(HelmFailed, match=r"router.image.tag must not be 'latest'"):
        helm.template(CI_VALUES[-1], {"router": {"image": {"tag": "latest"}}})
