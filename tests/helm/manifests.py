"""Renders the chart with a real Helm and reads the result strictly: a key said twice in one mapping is an error."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "helm" / "isthmus"
CI_VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
RELEASE = "demo"
NAMESPACE = "models"
KUBE_VERSIONS = ("1.29.0", "1.33.0", "1.36.0")

Manifest = dict[str, Any]


class StrictLoader(yaml.CSafeLoader):
    """The C loader, which refuses duplicate keys; Helm, like most YAML readers, takes the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


class HelmFailed(Exception):
    """Helm ended with an error; the message is what it said."""


@dataclass(frozen=True)
class Rendered:
    """One rendering: its text and its objects."""

    text: str
    objects: list[Manifest] = field(repr=False)

    def of_kind(self, kind: str) -> list[Manifest]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str | None = None) -> Manifest:
        found = [o for o in self.of_kind(kind) if name is None or o["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} objects of kind {kind}, name {name}"
        return found[0]

    def pod_templates(self) -> Iterator[tuple[str, Manifest]]:
        """Name and pod template of everything that makes pods."""
        for found in self.objects:
            name = f"{found['kind']}/{found['metadata']['name']}"
            if found["kind"] in ("Deployment", "StatefulSet", "Job"):
                yield name, found["spec"]["template"]
            elif found["kind"] == "Pod":
                yield name, {"metadata": found["metadata"], "spec": found["spec"]}
            elif found["kind"] == "RayService":
                cluster = found["spec"]["rayClusterConfig"]
                yield f"{name}/head", cluster["headGroupSpec"]["template"]
                for group in cluster["workerGroupSpecs"]:
                    yield f"{name}/{group['groupName']}", group["template"]

    def workloads(self) -> Iterator[tuple[str, Manifest]]:
        """Those of the pod templates whose pods stay: no hook, no test."""
        return ((name, template) for name, template in self.pod_templates() if not name.startswith(("Job/", "Pod/")))

    def serve_config(self) -> dict[str, Any]:
        text = self.one("RayService")["spec"]["serveConfigV2"]
        assert isinstance(text, str)
        loaded = yaml.load(text, Loader=StrictLoader)
        assert isinstance(loaded, dict)
        return loaded


@dataclass(frozen=True)
class Helm:
    """One Helm binary, with a home of its own so that no user's configuration is read."""

    binary: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, timeout_s: float = 60) -> str:
        environment = {
            name: str(self.home / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        }
        # A process that lives for a tenth of a second need not collect its garbage.
        environment["GOGC"] = "off"
        if self.kubeconfig:
            environment["KUBECONFIG"] = str(self.kubeconfig)
        done = subprocess.run(
            [str(self.binary), *arguments],
            capture_output=True,
            check=False,
            text=True,
            timeout=timeout_s,
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin", **environment},
        )
        if done.returncode:
            raise HelmFailed(done.stderr + done.stdout)
        return done.stdout

    def template(
        self,
        *values: Path | Mapping[str, Any],
        chart: Path = CHART,
        release: str = RELEASE,
        kube_version: str = "1.33.0",
        sets: tuple[str, ...] = (),
    ) -> Rendered:
        """Render; mappings are written to files first, so that null and numbers stay what they are.

        The same question gets the same answer without another process: nobody may change what is returned.
        """
        arguments = ["template", release, str(chart), "--namespace", NAMESPACE, "--kube-version", kube_version]
        for given in values:
            arguments += ["--values", str(given if isinstance(given, Path) else self._written(given))]
        for one in sets:
            arguments += ["--set", one]
        return _rendering(replace(self, kubeconfig=None), tuple(arguments))

    def _written(self, values: Mapping[str, Any]) -> Path:
        """A file with these values, named after its content; JSON, so that every text is quoted.

        YAML reads JSON, but knows no pairs of surrogates.
        """
        text = re.sub(r"\\u(d[89ab]..)\\u(d[c-f]..)", lambda pair: json.loads(f'"{pair[0]}"'), json.dumps(dict(values)))
        path = self.home / f"values-{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
        if not path.exists():  # by renaming: another thread's Helm may read it already
            with tempfile.NamedTemporaryFile("w", dir=self.home, encoding="utf-8", delete=False) as written:
                written.write(text)
            Path(written.name).rename(path)
        return path


@cache
def _rendering(helm: Helm, arguments: tuple[str, ...]) -> Rendered:
    text = helm.run(*arguments)
    return Rendered(text, [o for o in yaml.load_all(text, Loader=StrictLoader) if o is not None])


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Values laid over each other as Helm does it: mappings are merged, all else replaced, null removes."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if value is None:
                result.pop(key, None)
            elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
                result[key] = merged(result[key], value)
            else:
                result[key] = value
    return result


def read(path: Path) -> dict[str, Any]:
    """One YAML file, strictly."""
    loaded = yaml.load(path.read_text("utf-8"), Loader=StrictLoader)
    assert isinstance(loaded, dict)
    return loaded


def default_values() -> dict[str, Any]:
    """values.yaml of the chart."""
    return read(CHART / "values.yaml")
