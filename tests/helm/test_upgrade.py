"""An upgrade to a later chart changes no immutable field, and restarts only what really changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.manifests import CHART, CI_VALUES, Helm, Rendered, read

by_name = pytest.mark.parametrize("values", CI_VALUES, ids=lambda path: path.name.removesuffix("-values.yaml"))


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Copies of the chart under other versions."""

    def of(**versions: str) -> Path:
        folder = tmp_path_factory.mktemp("later") / "isthmus"
        shutil.copytree(CHART, folder)
        (folder / "Chart.yaml").write_text(yaml.safe_dump(read(CHART / "Chart.yaml") | versions), "utf-8")
        return folder

    return of


def _immutable(rendered: Rendered) -> dict[str, Any]:
    """What the API server refuses to change, and the names that clients hold on to."""
    fixed: dict[str, Any] = {
        "services": {
            found["metadata"]["name"]: (found["spec"].get("clusterIP"), found["spec"]["selector"])
            for found in rendered.of_kind("Service")
        },
        "names": sorted((found["kind"], found["metadata"]["name"]) for found in rendered.objects),
    }
    for found in rendered.of_kind("Deployment") + rendered.of_kind("StatefulSet"):
        spec = found["spec"]
        name = f"{found['kind']}/{found['metadata']['name']}"
        fixed[name] = (spec["selector"], spec.get("volumeClaimTemplates"), spec.get("serviceName"))
    return fixed


@by_name
def test_versions_are_in_no_selector_or_claim_template(either: Helm, values: Path, later: Callable[..., Path]) -> None:
    """HM-03: chart and app version bumped; selectors, claim templates and names are identical."""
    before = either.template(values)
    after = either.template(values, chart=later(version="1.7.3+build.5", appVersion="1.7.3"))
    assert _immutable(after) == _immutable(before)
    labels = [found["metadata"]["labels"] for found in after.objects]
    assert {found["helm.sh/chart"] for found in labels} == {"isthmus-1.7.3_build.5"}, "objects do carry the version"
    assert {found["app.kubernetes.io/version"] for found in labels} == {"1.7.3"}


@by_name
def test_a_new_chart_alone_restarts_no_pod(helm4: Helm, values: Path, later: Callable[..., Path]) -> None:
    """A change inside rayClusterConfig would bring up a second cluster, GPUs and all."""
    before, after = helm4.template(values), helm4.template(values, chart=later(version="0.1.1"))
    assert dict(after.workloads()) == dict(before.workloads())
    assert [o["spec"] for o in after.of_kind("RayService")] == [o["spec"] for o in before.of_kind("RayService")]


def test_a_new_release_of_the_images_does(helm4: Helm, later: Callable[..., Path]) -> None:
    before = helm4.template(CI_VALUES[-1])
    after = helm4.template(CI_VALUES[-1], chart=later(appVersion="0.2.0"))
    images = {template["spec"]["containers"][0]["image"] for _, template in after.pod_templates()}
    assert images == {"isthmus-router:0.2.0", "isthmus-cloud:0.2.0-cpu"}
    assert dict(after.workloads()) != dict(before.workloads())


def test_settings_of_the_router_restart_it_and_nothing_else(helm4: Helm) -> None:
    before = helm4.template(CI_VALUES[-1])
    after = helm4.template(CI_VALUES[-1], {"router": {"settings": {"keepalive_s": 5}}})
    changed = {name for name, template in after.pod_templates() if dict(before.pod_templates())[name] != template}
    assert changed == {"Deployment/demo-isthmus-router"}


def test_models_change_in_place(helm4: Helm) -> None:
    """A new Serve config is rolled out inside the running cluster."""
    before = helm4.template(CI_VALUES[-1])
    after = helm4.template(
        CI_VALUES[-1], {"cloud": {"settings": {"models": [{"model_id": "other", "source": "a/other"}]}}}
    )
    clusters = [found.one("RayService")["spec"]["rayClusterConfig"] for found in (before, after)]
    assert clusters[0] == clusters[1]
    assert before.serve_config() != after.serve_config()


@pytest.mark.parametrize(
    "release", ["a", "isthmus", "rel.with.dots", "a-release-name-of-exactly-fifty-three-characters-long"]
)
def test_names_fit_for_any_release(helm4: Helm, release: str) -> None:
    rendered = helm4.template(next(p for p in CI_VALUES if p.name == "own-redis-values.yaml"), release=release)
    for found in rendered.objects:
        assert len(found["metadata"]["name"]) <= 63
        assert "." not in found["metadata"]["name"]
        assert all(len(value) <= 63 for value in found["metadata"]["labels"].values())
    assert len(rendered.one("RayService")["metadata"]["name"]) <= 47


def test_long_names_that_begin_alike_stay_apart(helm4: Helm) -> None:
    one, two = (f"a-release-name-of-exactly-fifty-three-characters-{end}" for end in ("long", "also"))
    names = [
        {o["metadata"]["name"] for o in helm4.template(CI_VALUES[-1], release=name).objects} for name in (one, two)
    ]
    assert not names[0] & names[1]
