"""Holds the objects of the look-alike, and refuses what an API server would: invalid ones, and changed fixed fields."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tests.helm.strict_schemas import fault_of

Json = dict[str, Any]
VERSION = "1.36"
_OF_KUBERNETES = (
    "",
    "apps",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
)


@dataclass(frozen=True)
class Resource:
    """One kind: where it is found and what may never change in it."""

    group: str
    version: str
    kind: str
    plural: str
    fixed: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


RESOURCES = (
    Resource("", "v1", "Secret", "secrets", ("type",)),
    Resource("", "v1", "ConfigMap", "configmaps"),
    Resource("", "v1", "Service", "services", ("spec.clusterIP",)),
    Resource("", "v1", "ServiceAccount", "serviceaccounts"),
    Resource(
        "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", ("spec.accessModes", "spec.storageClassName")
    ),
    Resource("", "v1", "Pod", "pods", ("spec.containers",)),
    Resource("apps", "v1", "Deployment", "deployments", ("spec.selector",)),
    Resource(
        "apps", "v1", "StatefulSet", "statefulsets", ("spec.selector", "spec.serviceName", "spec.volumeClaimTemplates")
    ),
    Resource("batch", "v1", "Job", "jobs", ("spec.template",)),
    Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    Resource("networking.k8s.io", "v1", "Ingress", "ingresses"),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", ("roleRef",)),
    Resource("ray.io", "v1", "RayService", "rayservices"),
    Resource("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    Resource("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"),
    Resource("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    Resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
    Resource("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
)

BUILT_IN = tuple(resource for resource in RESOURCES if resource.group in _OF_KUBERNETES)


class Refused(Exception):
    """The request fails with `status` and `reason`."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


Key = tuple[str, str, str]
"""Plural, namespace, name."""


@dataclass
class Store:
    """Objects by key; every change has a number, and watchers are woken by it."""

    schemas: Path | None = None
    on_create: Mapping[str, Callable[[Json], None]] = field(default_factory=dict)
    objects: dict[Key, Json] = field(default_factory=dict)
    events: list[tuple[int, str, Json]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    configs: dict[tuple[Key, str], Json] = field(default_factory=dict)
    """What each manager last applied."""

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        with self.changed:
            found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise Refused(404, "NotFound", f'{resource.plural} "{name}" not found')
        return found

    def listed(self, resource: Resource, namespace: str) -> list[Json]:
        with self.changed:
            return [
                o for (plural, inside, _), o in self.objects.items() if (plural, inside) == (resource.plural, namespace)
            ]

    def create(self, resource: Resource, namespace: str, body: Json, *, dry: bool) -> Json:
        name = body["metadata"]["name"]
        key = (resource.plural, namespace, name)
        if key in self.objects:
            raise Refused(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        self._check(resource, body)
        made = deepcopy(body)
        made["metadata"] |= {"namespace": namespace, "uid": str(uuid.uuid4()), "generation": 1}
        made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        _finished(resource, made)
        if not dry:
            self._record("ADDED", key, made)
            if run := self.on_create.get(resource.kind):
                run(made)
        return made

    def update(self, resource: Resource, namespace: str, name: str, body: Json, *, dry: bool) -> Json:
        before = self.get(resource, namespace, name)
        self._check(resource, body)
        for path in resource.fixed:
            if _at(body, path) != _at(before, path):
                raise Refused(422, "Invalid", f'{resource.kind} "{name}" is invalid: {path}: field is immutable')
        given = body["metadata"].get("resourceVersion")
        if given and given != before["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f'{resource.plural} "{name}": the object has been modified')
        after = deepcopy(body)
        kept = ("uid", "namespace", "creationTimestamp", "generation")
        after["metadata"] |= {name: before["metadata"][name] for name in kept}
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        if not dry:
            self._record("MODIFIED", (resource.plural, namespace, name), after)
        return after

    def delete(self, resource: Resource, namespace: str, name: str, *, dry: bool) -> Json:
        found = self.get(resource, namespace, name)
        if not dry:
            with self.changed:
                del self.objects[(resource.plural, namespace, name)]
                self._event("DELETED", found)
        return found

    def _record(self, kind: str, key: Key, found: Json) -> None:
        with self.changed:
            self.objects[key] = found
            self._event(kind, found)

    def _event(self, kind: str, found: Json) -> None:
        number = len(self.events) + 1
        found["metadata"]["resourceVersion"] = str(number)
        self.events.append((number, kind, deepcopy(found)))
        self.changed.notify_all()

    def _check(self, resource: Resource, body: Json) -> None:
        """Built-in kinds by Kubernetes' own strict schemas, custom ones by those of their operators where given."""
        said = {key: value for key, value in body.items() if key != "status"}
        custom = (
            self.schemas / f"{resource.group}_{resource.kind.lower()}_{resource.version}.json" if self.schemas else None
        )
        if fault := _fault(json.dumps(said), custom if custom and custom.exists() else None, resource in BUILT_IN):
            raise Refused(422, "Invalid", f"{resource.kind} is invalid: {fault}")


@cache
def _fault(text: str, schema: Path | None, is_built_in: bool) -> str | None:
    """What is wrong with an object, in one line. The same object comes often: at install, upgrade and rollback."""
    try:
        if schema:
            Draft202012Validator(json.loads(schema.read_text("utf-8"))).validate(json.loads(text))
            return None
        return fault_of(json.loads(text), VERSION) if is_built_in else None
    except ValidationError as error:
        return str(error).splitlines()[0]


def _at(body: Json, path: str) -> Any:
    value: Any = body
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _finished(resource: Resource, made: Json) -> None:
    """No controller runs here: Jobs and pods are said to have ended well at once, claims to be bound."""
    if resource.kind == "Job":
        done = {"type": "Complete", "status": "True"}
        made["status"] = {"succeeded": 1, "startTime": "2026-01-01T00:00:00Z", "conditions": [done]}
    elif resource.kind == "Pod":
        made["status"] = {"phase": "Succeeded"}
    elif resource.kind == "PersistentVolumeClaim":
        made["status"] = {"phase": "Bound"}
