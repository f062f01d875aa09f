"""Every rendered object is valid by the published schema of its kind, with no field that the schema does not know."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.helm.manifests import KUBE_VERSIONS, Rendered
from tests.helm.strict_schemas import fault_of

SCHEMAS_VARIABLE = "ISTHMUS_K8S_SCHEMAS"
CUSTOM_GROUPS = ("ray.io/", "monitoring.coreos.com/", "keda.sh/")
UNPUBLISHED = ("gateway.networking.k8s.io/",)
"""Checked field by field in test_access.py."""


@pytest.mark.parametrize("version", KUBE_VERSIONS)
def test_built_in_kinds(rendered: Rendered, version: str) -> None:
    checked = 0
    for found in rendered.objects:
        if not found["apiVersion"].startswith(CUSTOM_GROUPS + UNPUBLISHED):
            assert fault_of(found, version.rsplit(".", 1)[0]) is None, found["metadata"]["name"]
            checked += 1
    assert checked > 3


def test_pod_templates_of_the_ray_cluster_are_strict_pods(rendered: Rendered) -> None:
    """The operator's own schema leaves out defaults; the pods that it makes must pass as pods."""
    for name, template in rendered.pod_templates():
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": "p"},
            "spec": template["spec"],
        }
        assert template["spec"]["containers"], name
        assert fault_of(pod, "1.36") is None, name


def test_custom_kinds(rendered: Rendered) -> None:
    """CRDs by the JSON schemas of their operators, found in the folder that $ISTHMUS_K8S_SCHEMAS names."""
    folder = os.environ.get(SCHEMAS_VARIABLE)
    if not folder:
        pytest.skip(f"${SCHEMAS_VARIABLE} names no folder with <group>_<kind>_<version>.json files")
    for found in rendered.objects:
        if found["apiVersion"].startswith(CUSTOM_GROUPS):
            group, version = found["apiVersion"].split("/")
            schema = json.loads((Path(folder) / f"{group}_{found['kind'].lower()}_{version}.json").read_text("utf-8"))
            Draft202012Validator(schema).validate(found)


def test_the_strict_schemas_see_a_misspelt_field(rendered: Rendered) -> None:
    service = rendered.of_kind("Service")[0]
    assert "slector" in str(fault_of({**service, "spec": {**service["spec"], "slector": {}}}, "1.36"))
