"""Values: documented, closed by a schema that is generated, and removable by null."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.helm.manifests import CHART, Helm, HelmFailed, default_values
from tests.helm.specimens import EVERYTHING, nested
from tests.helm.test_render import _nulls

GENERATOR = CHART.parent / "generate.py"
FREE_FORM = {
    "global",  # belongs to all charts of a release
    "extraObjects",  # any object of any API
    "engine_kwargs",  # whatever the engine takes
    "PluginSettings.properties.options",  # whatever a recogniser of others takes
    "FieldsV1",  # of Kubernetes itself, whose schema says no more
}

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


PARTS = {key for key, value in default_values().items() if isinstance(value, dict) and value}
TOGETHER = 24


def _rounds() -> Iterator[tuple[str, ...]]:
    """Keys to remove together: each part of the chart alone, else the switches of one depth, or some of the others."""
    free = [path for path in DOCUMENTED if path not in NEEDED]
    alone = [path for path in free if path.removesuffix(".enabled") in PARTS]
    yield from ((path,) for path in alone)
    for depth in range(8):
        level = [path for path in free if path.count(".") == depth and path not in alone]
        switches = [path for path in level if path.endswith((".enabled", ".create"))]
        for paths in (switches, [path for path in level if path not in switches]):
            yield from (tuple(paths[start : start + TOGETHER]) for start in range(0, len(paths), TOGETHER))


def test_null_removes_every_documented_key(helm: Helm) -> None:
    """HM-01: no key is left as a literal null."""
    assert len(DOCUMENTED) > 150
    assert {path for together in _rounds() for path in together} | set(NEEDED) == set(DOCUMENTED)

    def fault(paths: tuple[str, ...]) -> str | None:
        try:
            rendered = helm.template(EVERYTHING, *(nested(path, None) for path in paths))
        except HelmFailed as failed:
            return f"{paths}: {failed}"
        found = _nulls(rendered.objects)
        return f"{paths}: {found}" if found or "<no value>" in rendered.text else None

    with ThreadPoolExecutor(2) as pool:
        assert [found for found in pool.map(fault, _rounds()) if found] == []


def test_a_line_of_ours_says_which_key_cannot_be_missing(helm3: Helm, helm4: Helm) -> None:
    """HM-01: each such key in turn, by one Helm and the other."""

    def fault(asked: tuple[Helm, str]) -> str | None:
        helm, path = asked
        try:
            helm.template(EVERYTHING, nested(path, None))
        except HelmFailed as failed:
            return None if NEEDED[path] in str(failed) else f"{path}: {failed}"
        return f"{path}: rendered without it"

    with ThreadPoolExecutor(2) as pool:
        assert [found for found in pool.map(fault, zip(cycle((helm3, helm4)), NEEDED, strict=False)) if found] == []


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("router.resources", "resources"),
        ("router.probes.liveness", "livenessProbe"),
        ("router.preStopSeconds", "lifecycle"),
    ],
)
def test_null_removes_the_block_itself(either: Helm, path: str, gone: str) -> None:
    """HM-01: not only does it render; the default is gone, from a file as from the command line."""
    with_it = either.template(EVERYTHING).one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert gone in with_it
    for rendered in (
        either.template(EVERYTHING, nested(path, None)),
        either.template(EVERYTHING, sets=(f"{path}=null",)),
    ):
        assert gone not in rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    "path",
    [
        "router.resources.limits.cpu",
        "router.nodeSelector.zone",
        "commonLabels.team",
        "router.podAnnotations.note",
        "router.podSpec.dnsConfig",
        "router.affinity.podAntiAffinity",
        "router.settings.scan.workers",
        "cloud.ray.head.resources.limits.memory",
        "cloud.settings.accelerator.type",
    ],
)
def test_null_removes_keys_that_the_chart_does_not_know(helm: Helm, path: str) -> None:
    """HM-01: inside blocks that are handed on, where Helm itself would keep the null and hand it on."""
    assert not _nulls(helm.template(EVERYTHING, nested(path, None)).objects)
    items = {"tolerations": [None, {"key": "a", "value": None}], "extraEnv": [{"name": "A", "valueFrom": None}]}
    rendered = helm.template(EVERYTHING, {"router": items})
    assert not _nulls(rendered.objects)
    assert rendered.one("Deployment")["spec"]["template"]["spec"]["tolerations"] == [{"key": "a"}]


def test_null_in_a_list_is_no_item(helm: Helm) -> None:
    """HM-01: also where an item of the list means something to the chart."""
    model = {"model_id": "m", "source": "a/m"}
    clouds = {"clouds": [None, {"id": "far", "url": "http://far"}]}
    layer = {"router": {"settings": clouds}, "cloud": {"settings": {"models": [None, model]}}}
    rendered = helm.template(EVERYTHING, layer, {"imagePullSecrets": [None, {"name": "a"}, {"name": "a"}]})
    assert [m["model_id"] for m in rendered.serve_config()["applications"][1]["args"]["models"]] == ["m"]
    assert not _nulls(rendered.objects)
    assert rendered.one("Deployment")["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "a"}]
    external = {"enabled": True, "external": {"url": "http://far", "models": [None, {"id": "large"}]}}
    assert '\\"model\\":\\"large\\"' in helm.template(EVERYTHING, {"cloud": external}).text


def test_null_works_where_the_chart_is_a_dependency(helm: Helm, tmp_path: Path) -> None:
    """HM-01: a parent chart removes keys of its subchart."""
    shutil.copytree(CHART, tmp_path / "charts" / "isthmus")
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n", "utf-8")
    values = {"isthmus": EVERYTHING | {"router": EVERYTHING["router"] | {"affinity": None, "resources": None}}}
    rendered = helm.template(values, chart=tmp_path)
    spec = rendered.one("Deployment")["spec"]["template"]["spec"]
    assert "affinity" not in spec and "resources" not in spec["containers"][0]
    assert not _nulls(rendered.objects)


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
