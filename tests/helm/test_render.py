"""The chart lints and renders with both Helm releases, for every ci values file and supported Kubernetes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.helm.manifests import (
    CHART,
    CI_VALUES,
    KUBE_VERSIONS,
    NAMESPACE,
    Helm,
    HelmFailed,
    Manifest,
    Rendered,
    StrictLoader,
)

HA_VALUES = next(path for path in CI_VALUES if path.name == "ha-values.yaml")

by_name = pytest.mark.parametrize("values", CI_VALUES, ids=lambda path: path.name.removesuffix("-values.yaml"))


def test_the_binaries_are_the_pinned_releases(helm3: Helm, helm4: Helm) -> None:
    assert helm3.run("version", "--short").startswith("v3.17.")
    assert helm4.run("version", "--short").startswith("v4.")
    for helm in (helm3, helm4):
        kubectl = Helm(helm.binary.with_name("kubectl"), helm.home)
        assert "clientVersion" in yaml.safe_load(kubectl.run("version", "--client", "--output=yaml"))


@by_name
def test_lint_is_strict_and_clean(helm: Helm, values: Path) -> None:
    said = helm.run("lint", "--strict", str(CHART), "--values", str(values))
    assert "0 chart(s) failed" in said
    assert "WARNING" not in said


@by_name
def test_both_helms_render_the_same_for_every_kubernetes(helm3: Helm, helm4: Helm, values: Path) -> None:
    cases = [(helm, version) for version in KUBE_VERSIONS for helm in (helm3, helm4)]
    with ThreadPoolExecutor(2) as pool:
        renderings = list(pool.map(lambda case: case[0].template(values, kube_version=case[1]), cases))
    first = _sorted(renderings[0])
    assert len(first) > 4
    for other in renderings[1:]:
        assert _sorted(other) == first


def _sorted(rendered: Rendered) -> list[tuple[str, str, str]]:
    return sorted((o["kind"], o["metadata"]["name"], yaml.safe_dump(_without_chance(o))) for o in rendered.objects)


def _without_chance(found: Manifest) -> Manifest:
    """Passwords that the chart makes differ in every rendering: a client-side one cannot read back what is there."""
    return found | {"data": sorted(found["data"])} if found["kind"] == "Secret" else found


def test_no_empty_values_and_no_object_twice(rendered: Rendered) -> None:
    """HM-01: neither `null` nor `<no value>` reaches the API server."""
    assert "<no value>" not in rendered.text
    assert not list(_nulls(rendered.objects))
    names = [(o["kind"], o["metadata"]["name"]) for o in rendered.objects]
    assert len(set(names)) == len(names)
    assert {o["metadata"]["namespace"] for o in rendered.objects} == {NAMESPACE}


def _nulls(value: object, path: str = "") -> list[str]:
    if value is None:
        return [path]
    if isinstance(value, dict):
        return [found for key, part in value.items() for found in _nulls(part, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for number, part in enumerate(value) for found in _nulls(part, f"{path}[{number}]")]
    return []


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match=r"chart requires kubeVersion: >=1\.29"):
        helm.template(CI_VALUES[0], kube_version="1.28.9")


@pytest.mark.parametrize("version", ["v1.29.0-gke.1", "v1.33.4-eks-a1b2c3", "v1.36.0+k3s1"])
def test_versions_of_distributions_are_accepted(helm: Helm, version: str) -> None:
    assert helm.template(CI_VALUES[-1], kube_version=version).one("Deployment")


def test_the_loader_refuses_a_key_said_twice() -> None:
    with pytest.raises(yaml.constructor.ConstructorError, match="duplicate key 'a'"):
        yaml.load("a: 1\na: 2\n", Loader=StrictLoader)


def _dry_run(helm: Helm, *values: str) -> str:
    return helm.run("install", "demo", str(CHART), "--namespace", NAMESPACE, "--dry-run=client", *values)


def test_notes_print_commands_for_this_release(helm4: Helm) -> None:
    """The three next commands name objects that this release has. (Helm 3 asks a cluster even then.)"""
    notes = _dry_run(helm4, "--values", str(CI_VALUES[-1])).split("NOTES:")[1]
    assert f"kubectl -n {NAMESPACE} rollout status deployment/demo-isthmus-router" in notes
    assert f"kubectl -n {NAMESPACE} wait rayservice/demo-isthmus-cloud --for=condition=Ready" in notes
    assert f"kubectl -n {NAMESPACE} port-forward service/demo-isthmus-router 8080:80" in notes
    assert "curl http://127.0.0.1:8080/v1/chat/completions" in notes
    assert "KubeRay operator" in notes, "a client-side run knows no ray.io/v1"


@pytest.mark.parametrize("number", range(len(CI_VALUES)), ids=[path.stem for path in CI_VALUES])
def test_notes_are_three_steps_about_objects_that_exist(helm4: Helm, number: int) -> None:
    """Also without a router, and with a note where an autoscaler could not do its work."""
    _, _, notes = _dry_run(helm4, "--values", str(CI_VALUES[number])).partition("NOTES:")
    assert [line[:2] for line in notes.splitlines() if line[:1].isdigit()] == ["1.", "2.", "3."]
    names = {found["metadata"]["name"] for found in helm4.template(CI_VALUES[number]).objects}
    for _, name in re.findall(r"(deployment|service|rayservice)/(\S+)", notes):
        assert name.removesuffix("-serve-svc") in names


def test_notes_of_a_cloud_alone_and_of_an_autoscaler_without_a_measure(helm4: Helm) -> None:
    alone = _dry_run(helm4, "--set", "router.enabled=false")
    assert "port-forward service/demo-isthmus-cloud-serve-svc 8000:8000" in alone and "3. Ask" in alone
    blind = _dry_run(helm4, "--values", str(HA_VALUES), "--set", "router.resources=null")
    assert "NOTE: routers ask for no CPU" in blind


def test_extra_objects_are_templates(helm: Helm) -> None:
    extra = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}-extra", "namespace": "{{ .Release.Namespace }}"},
    }
    for given in (extra, yaml.safe_dump(extra)):
        found = helm.template(CI_VALUES[-1], {"extraObjects": [given]}).one("ConfigMap", "demo-extra")
        assert found["metadata"]["namespace"] == NAMESPACE
