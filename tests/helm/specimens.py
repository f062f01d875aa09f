"""Values that several tests start from: every part of the chart switched on, and single keys."""

from __future__ import annotations

from typing import Any

EVERYTHING: dict[str, Any] = {
    "imageRegistry": "mirror.internal",
    "imagePullSecrets": [{"name": "pull"}],
    "commonLabels": {"team": "a"},
    "router": {
        "replicas": 2,
        "keys": {"existingSecret": "keys"},
        "edgeKey": {"existingSecret": "edge"},
        "auditKey": {"existingSecret": "audit"},
        "settings": {"limits": {"body_bytes": 2048}},
        "podDisruptionBudget": {"enabled": True},
        "autoscaling": {"enabled": True},
        "affinity": {"podAntiAffinity": {}},
        "ingress": {"enabled": True, "className": "nginx", "hosts": ["a.example.com"]},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["a.example.com"]},
        "joinToken": {"enabled": True},
    },
    "cloud": {
        "modelStore": {"existingClaim": "checkpoints", "cacheStorage": {"size": "5Gi", "className": "files"}},
        "hubToken": {"existingSecret": "hub"},
        "ray": {"faultTolerance": {"enabled": True}, "workers": {"gpu": {"enabled": True}}},
    },
    "redis": {
        "enabled": True,
        "auth": {"existingSecret": "redis"},
        "tls": {"enabled": True, "existingSecret": "redis-tls"},
    },
    "networkPolicy": {"enabled": True, "serveClients": [{"podSelector": {}}]},
    "monitoring": {
        "serviceMonitor": {"enabled": True, "key": {"existingSecret": "metrics"}},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "tests": {"key": {"existingSecret": "test-key"}},
}
"""Values under which every template renders, so that removing a key is felt wherever it is used."""


def nested(path: str, value: Any) -> dict[str, Any]:
    """Values that hold one key, by its dotted path."""
    *parents, last = path.split(".")
    layer: dict[str, Any] = {last: value}
    for key in reversed(parents):
        layer = {key: layer}
    return layer
