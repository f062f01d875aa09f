"""Types of values that their defaults in values.yaml do not show, as pieces of a JSON schema (draft 7)."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING_MAP: Schema = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
DIGEST: Schema = {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "integer", "minimum": 1}
PODS: Schema = {"type": ["integer", "string"], "minimum": 0, "pattern": "^([0-9]+%)?$"}
QUANTITY: Schema = {"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]+)?(m|[numk]|[kKMGTPE]i?|[eE][0-9]+)?$"}
SIZE: Schema = {"type": "string", "pattern": f"{QUANTITY['pattern'][:-1]}$|^$"}
DURATION: Schema = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))+$"}
HOST: Schema = {"type": "string", "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
HOSTS: Schema = {"type": "array", "items": HOST}
USER: Schema = {"type": "string", "pattern": r"^[\w.-]*$"}
NAME: Schema = {"type": "string", "minLength": 1}
OBJECT_NAME: Schema = {"type": "string", "pattern": r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 253}
SECRET_KEY: Schema = {"type": "string", "pattern": r"^[-._a-zA-Z0-9]*$", "maxLength": 253}
ADDRESS: Schema = {
    "type": "string",
    "pattern": r"^([a-zA-Z0-9]([-.\w]*\w)?\.?|\[?[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\]?)?$",
}


def nullable(schema: Schema) -> Schema:
    """The schema or null, for null removes a key. Definitions that are referred to already allow it."""
    if "type" not in schema and "enum" not in schema:
        return schema
    allowed = dict(schema)
    if "enum" in schema:
        allowed["enum"] = [*schema["enum"], None]
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        allowed["type"] = [*kinds, *(["null"] if "null" not in kinds else [])]
    return allowed


def closed(required: Schema, optional: Schema) -> Schema:
    """An object of these keys alone."""
    properties = required | {name: nullable(part) for name, part in optional.items()}
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


# Blocks of custom resources whose schemas are not published with Kubernetes.
TRIGGER: Schema = closed(
    {"type": NAME, "metadata": STRING_MAP},
    {
        "name": NAME,
        "metricType": {"enum": ["AverageValue", "Value", "Utilization"]},
        "useCachedMetrics": {"type": "boolean"},
        "authenticationRef": closed({"name": NAME}, {"kind": NAME}),
    },
)
PARENT: Schema = closed(
    {"name": NAME}, {**dict.fromkeys(("namespace", "sectionName", "group", "kind"), NAME), "port": PORT}
)
RULE: Schema = closed(
    {"expr": NAME},
    {
        **dict.fromkeys(("alert", "record"), NAME),
        **dict.fromkeys(("for", "keep_firing_for"), DURATION),
        **dict.fromkeys(("labels", "annotations"), STRING_MAP),
    },
)

PEERS = ["networking.v1.NetworkPolicyPeer"]

SECRET_KEYS = [
    f"{group}.key"
    for group in (
        "router.keys",
        "router.edgeKey",
        "router.auditKey",
        "cloud.external",
        "cloud.hubToken",
        "monitoring.serviceMonitor.key",
        "tests.key",
    )
]

BY_KEY: dict[str, str | list[str] | Schema] = {
    # Blocks of Kubernetes, by the name that they have wherever they occur; in brackets: a list of them.
    "affinity": "core.v1.Affinity",
    "resources": "core.v1.ResourceRequirements",
    "podSecurityContext": "core.v1.PodSecurityContext",
    "securityContext": "core.v1.SecurityContext",
    "strategy": "apps.v1.DeploymentStrategy",
    "behavior": "autoscaling.v2.HorizontalPodAutoscalerBehavior",
    "tolerations": ["core.v1.Toleration"],
    "topologySpreadConstraints": ["core.v1.TopologySpreadConstraint"],
    "extraEnv": ["core.v1.EnvVar"],
    "extraVolumes": ["core.v1.Volume"],
    "extraVolumeMounts": ["core.v1.VolumeMount"],
    "extraContainers": ["core.v1.Container"],
    "initContainers": ["core.v1.Container"],
    "router.ingress.tls": ["networking.v1.IngressTLS"],
    "imagePullSecrets": ["core.v1.LocalObjectReference"],
    "clients": PEERS,
    "serveClients": PEERS,
    "networkPolicy.monitoring": PEERS,
    "dns": PEERS,
    "kuberay": PEERS,
    "peers": PEERS,
    "networkPolicy.modelStore": ["networking.v1.NetworkPolicyEgressRule"],
    "networkPolicy.routerEgress": ["networking.v1.NetworkPolicyEgressRule"],
    # Values with a narrower type than their default shows.
    **dict.fromkeys(
        ("commonLabels", "commonAnnotations", "annotations", "podAnnotations", "podLabels", "nodeSelector", "labels"),
        STRING_MAP,
    ),
    **dict.fromkeys(("replicas", "minReplicas", "maxReplicas", "preStopSeconds"), COUNT),
    **dict.fromkeys(("periodSeconds", "timeoutSeconds", "budgetSeconds"), SECONDS),
    **dict.fromkeys(("idleTimeoutSeconds", "oldClusterDeletionDelaySeconds", "cooldownPeriodSeconds"), COUNT),
    **dict.fromkeys(("inFlightPerPod", "pollingIntervalSeconds", "timeoutSeconds", "firstTokenSeconds"), SECONDS),
    "hosts": HOSTS,
    "hostnames": HOSTS,
    "paths": {"type": "array", "items": {"type": "string", "pattern": "^/[^\\s]*$"}},
    "interval": DURATION,
    **dict.fromkeys(
        ("existingSecret", "caSecret", "secretName", "existingClaim", "cacheClaim", "className", "priorityClassName"),
        OBJECT_NAME,
    ),
    "name": OBJECT_NAME,
    **dict.fromkeys((*SECRET_KEYS, "routerPasswordKey", "rayPasswordKey"), SECRET_KEY),
    "nameOverride": {"type": "string", "pattern": r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"},
    "redis.external.host": ADDRESS,
    "cloud.external.rateDomain": {"type": "string", "maxLength": 64},
    **dict.fromkeys(("router.autoscaling.minReplicas", "router.autoscaling.maxReplicas"), SECONDS),
    "networkPolicy.dnsPorts": {"type": "array", "items": PORT},
    "routerUsername": USER,
    "rayUsername": USER,
    "maxMemory": {"type": "string", "pattern": "^([0-9]+([kmg]b?|b)?)?$"},
    "size": SIZE,
    **dict.fromkeys(("minAvailable", "maxUnavailable"), PODS),
    "digest": DIGEST,
    "port": PORT,
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "targetCPUUtilizationPercentage": {"type": "integer", "minimum": 1},
    "cacheSizeLimit": QUANTITY,
    "router.service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "cloud.ray.upgradeStrategy": {"enum": ["NewCluster", "None"]},
    "cloud.ray.auth.mode": {"enum": ["token", "disabled"]},
    "cloud.ray.version": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
    "cloud.external.url": {
        "type": "string",
        "pattern": r"^(https?://[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]+(/[A-Za-z0-9._~%!$&'()*+,;=:\[\]/-]*)?)?$",
    },
    "cloud.modelStore.cacheStorage.accessMode": {"enum": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]},
    "router.autoscaling.engine": {"enum": ["hpa", "keda"]},
    "router.autoscaling.keda.prometheusUrl": {"type": "string", "pattern": r"^(https?://[!-~]+)?$"},
    "router.autoscaling.keda.triggers": {"type": "array", "items": TRIGGER},
    "router.httpRoute.parentRefs": {"type": "array", "items": PARENT},
    "router.httpRoute.requestTimeout": {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"},
    "monitoring.prometheusRule.failedPercent": {"type": "integer", "minimum": 1, "maximum": 100},
    "monitoring.prometheusRule.extraRules": {"type": "array", "items": RULE},
    "networkPolicy.kubernetesApi.ports": {"type": "array", "items": PORT},
    "extraObjects": {"type": "array", "items": {"type": ["object", "string"]}},
}
