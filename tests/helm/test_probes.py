"""PB-01: probes give a start the time it needs, and liveness depends on nothing outside the process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helm.manifests import CI_VALUES, Helm, Rendered, default_values

MODEL_BUDGET_S = 600


def _budget_s(probe: dict[str, Any]) -> int:
    return int(probe["periodSeconds"]) * int(probe["failureThreshold"])


def test_router_probes(rendered: Rendered) -> None:
    container = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert _budget_s(container["livenessProbe"]) >= 30 > _budget_s(container["readinessProbe"])


def test_ray_containers_get_ten_minutes_and_no_probe_that_sees_a_model_load(rendered: Rendered) -> None:
    """Liveness and readiness are left to the operator: raylet health, and the proxy's health on workers."""
    for name, template in rendered.pod_templates():
        if name.startswith("RayService"):
            container = template["spec"]["containers"][0]
            assert container["startupProbe"]["httpGet"] == {"path": "/api/healthz", "port": 52365}
            assert _budget_s(container["startupProbe"]) >= MODEL_BUDGET_S
            assert "livenessProbe" not in container and "readinessProbe" not in container


def test_the_program_gives_models_ten_minutes_too(rendered: Rendered) -> None:
    for _ in rendered.of_kind("RayService"):
        assert rendered.serve_config()["applications"][1]["args"]["life"]["start_timeout_s"] >= MODEL_BUDGET_S


@pytest.mark.parametrize(
    ("budget_s", "period_s", "threshold"), [(600, 10, 60), (601, 10, 61), (1, 10, 1), (1800, 7, 258)]
)
def test_the_budget_is_a_value(either: Helm, budget_s: int, period_s: int, threshold: int) -> None:
    probe = {"budgetSeconds": budget_s, "periodSeconds": period_s}
    values = {"cloud": {"ray": {"probes": {"startup": probe}}}, "router": {"probes": {"startup": probe}}}
    for name, template in either.template(CI_VALUES[-1], values).workloads():
        assert template["spec"]["containers"][0]["startupProbe"]["failureThreshold"] == threshold, name


def test_grace_covers_drain(helm4: Helm) -> None:
    """The kubelet must not kill what is still draining."""
    values = {"router": {"settings": {"drain_limit_s": 300.5}, "preStopSeconds": 9}}
    spec = helm4.template(CI_VALUES[-1], values).one("Deployment")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= 300.5 + 9
    assert spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "9"]


def test_default_budgets_are_documented_values() -> None:
    assert default_values()["cloud"]["ray"]["probes"]["startup"]["budgetSeconds"] >= MODEL_BUDGET_S
