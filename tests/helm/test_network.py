"""HM-05: under the network policies each connection that the system needs is open, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.helm.manifests import NAMESPACE, RELEASE, Manifest, Rendered

NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True)
class Pod:
    """An end of a connection inside the cluster."""

    labels: dict[str, str]
    namespace: str = NAMESPACE


def of(component: str) -> Pod:
    """A pod of this release."""
    own = {"name": "isthmus", "instance": RELEASE, "component": component}
    return Pod({f"app.kubernetes.io/{key}": value for key, value in own.items()})


ROUTER, HEAD, WORKER, REDIS = (of(component) for component in ("router", "ray-head", "ray-worker", "redis"))
APP = Pod({"app": "shop"})
STRANGER = Pod({"app": "other"}, "elsewhere")
OPERATOR = Pod({"app.kubernetes.io/name": "kuberay-operator"}, "kuberay-system")
PROMETHEUS = Pod({"app": "prometheus"}, "monitoring")
DNS = Pod({"k8s-app": "kube-dns"}, "kube-system")
INTERNET = "203.0.113.7"
NODE_DNS = "169.254.20.10"

End = Pod | str


def _matches(selector: Manifest, labels: dict[str, str]) -> bool:
    assert not selector.keys() - {"matchLabels"}, "the evaluator knows matchLabels"
    return selector.get("matchLabels", {}).items() <= labels.items()


def _is_peer(peer: Manifest, end: End) -> bool:
    if isinstance(end, str):
        return "ipBlock" in peer and ip_address(end) in ip_network(peer["ipBlock"]["cidr"])
    if "ipBlock" in peer:
        return False
    in_namespace = (
        _matches(peer["namespaceSelector"], {NAME: end.namespace})
        if "namespaceSelector" in peer
        else end.namespace == NAMESPACE
    )
    return in_namespace and _matches(peer.get("podSelector", {}), end.labels)


def _allows(rules: list[Manifest], side: str, end: End, port: int, protocol: str) -> bool:
    """One matching rule is enough; a rule without peers or without ports allows all of them (networking.k8s.io/v1)."""
    return any(
        (not rule.get(side) or any(_is_peer(peer, end) for peer in rule[side]))
        and (
            not rule.get("ports")
            or any((known["port"], known.get("protocol", "TCP")) == (port, protocol) for known in rule["ports"])
        )
        for rule in rules
    )


def is_open(rendered: Rendered, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """Whether the policies let `source` connect to `target`: egress of the one and ingress of the other."""

    def passes(end: End, other: End, direction: str, side: str) -> bool:
        if not isinstance(end, Pod) or end.namespace != NAMESPACE:
            return True
        specs: list[Any] = [
            found["spec"]
            for found in rendered.of_kind("NetworkPolicy")
            if _matches(found["spec"]["podSelector"], end.labels) and direction in found["spec"]["policyTypes"]
        ]
        return not specs or any(_allows(s.get(direction.lower(), []), side, other, port, protocol) for s in specs)

    return passes(source, target, "Egress", "to") and passes(target, source, "Ingress", "from")


@pytest.fixture(scope="module")
def policies(of_ci: Callable[[str], Rendered]) -> Rendered:
    return of_ci("own-redis")


@pytest.mark.parametrize("pod", [ROUTER, HEAD, WORKER])
@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
@pytest.mark.parametrize("server", [DNS, NODE_DNS], ids=["cluster", "node"])
def test_names_are_resolved(policies: Rendered, pod: Pod, protocol: str, server: End) -> None:
    assert is_open(policies, pod, server, 53, protocol)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (APP, ROUTER, 8080),
        (ROUTER, REDIS, 6379),
        (ROUTER, WORKER, 8000),
        (ROUTER, INTERNET, 8081),
        (HEAD, REDIS, 6379),
        (HEAD, WORKER, 12345),
        (WORKER, HEAD, 6379),
        (WORKER, HEAD, 34567),
        (WORKER, WORKER, 23456),
        (HEAD, HEAD, 23456),
        (OPERATOR, HEAD, 8265),
        (OPERATOR, HEAD, 52365),
        (HEAD, INTERNET, 6443),
        (WORKER, INTERNET, 443),
        (PROMETHEUS, ROUTER, 8080),
        (PROMETHEUS, HEAD, 8080),
        (PROMETHEUS, WORKER, 8080),
    ],
)
def test_what_is_needed_is_open(policies: Rendered, source: End, target: End, port: int) -> None:
    assert is_open(policies, source, target, port)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (APP, REDIS, 6379),
        (WORKER, REDIS, 6379),
        (PROMETHEUS, REDIS, 6379),
        (OPERATOR, REDIS, 6379),
        (STRANGER, REDIS, 6379),
        (REDIS, INTERNET, 443),
        (REDIS, DNS, 53),
        (APP, WORKER, 8000),
        (STRANGER, WORKER, 8000),
        (STRANGER, ROUTER, 8080),
        (APP, HEAD, 8265),
        (ROUTER, HEAD, 8265),
        (ROUTER, INTERNET, 443),
        (OPERATOR, WORKER, 8265),
        (WORKER, INTERNET, 25),
    ],
)
def test_all_else_is_closed(policies: Rendered, source: End, target: End, port: int) -> None:
    assert not is_open(policies, source, target, port)


def test_external_endpoints_open_their_own_ports_alone(of_ci: Callable[[str], Rendered]) -> None:
    external, ha = of_ci("external"), of_ci("ha")
    assert is_open(external, ROUTER, INTERNET, 443), "the cloud endpoint"
    assert not is_open(external, ROUTER, INTERNET, 80)
    redis = Pod({}, "data")
    assert is_open(ha, ROUTER, redis, 6380) and is_open(ha, HEAD, redis, 6380)
    assert not is_open(ha, ROUTER, Pod({}, "elsewhere"), 6380)
    assert not is_open(ha, WORKER, redis, 6380)


JOB, QUESTION = of("join"), of("test")


def test_hooks_reach_what_they_need_alone(of_ci: Callable[[str], Rendered]) -> None:
    """The join Job asks the Kubernetes API, the pod of `helm test` asks the router; nobody asks them."""
    rendered = of_ci("edge-fleet")
    assert is_open(rendered, JOB, INTERNET, 443) and is_open(rendered, JOB, DNS, 53, "UDP")
    assert is_open(rendered, QUESTION, ROUTER, 8080) and is_open(rendered, QUESTION, DNS, 53, "UDP")
    for source, target, port in [
        (JOB, REDIS, 6379),
        (JOB, ROUTER, 8080),
        (QUESTION, REDIS, 6379),
        (QUESTION, INTERNET, 443),
        (QUESTION, WORKER, 8000),
        (APP, QUESTION, 8080),
        (APP, JOB, 8080),
    ]:
        assert not is_open(rendered, source, target, port), (source, target, port)


def test_the_question_comes_in_where_clients_are_named(helm4: Any) -> None:
    """`networkPolicy.clients` shuts out the rest of the namespace, but not the release's own test."""
    clients = [{"podSelector": {"matchLabels": {"app": "shop"}}}]
    values = {"router": {"keys": {"existingSecret": "keys"}}, "networkPolicy": {"enabled": True, "clients": clients}}
    rendered = helm4.template(values)
    assert is_open(rendered, APP, ROUTER, 8080) and is_open(rendered, QUESTION, ROUTER, 8080)
    assert not is_open(rendered, Pod({"app": "other"}), ROUTER, 8080)
    without = helm4.template(values, {"tests": {"enabled": False}})
    assert not is_open(without, QUESTION, ROUTER, 8080)


def test_tiers_that_trace_reach_the_collector(helm4: Any) -> None:
    tracing = {"settings": {"tracing": {"endpoint": "http://collector.tools:4318/v1/traces"}}}
    values = {"router": {"keys": {"existingSecret": "keys"}}, "networkPolicy": {"enabled": True}}
    collector = Pod({"app": "otel"}, "tools")
    peers = [{"namespaceSelector": {"matchLabels": {NAME: "tools"}}}]
    for more, open_to in (
        ({"router": tracing}, [ROUTER]),
        ({"cloud": tracing}, [WORKER]),
        ({"router": tracing, "cloud": tracing, "networkPolicy": {"collector": {"peers": peers}}}, [ROUTER, WORKER]),
    ):
        rendered = helm4.template(values, more)
        assert [is_open(rendered, pod, collector, 4318) for pod in (ROUTER, WORKER, HEAD)] == [
            pod in open_to for pod in (ROUTER, WORKER, HEAD)
        ]
    assert not is_open(rendered, ROUTER, INTERNET, 4318) and not is_open(rendered, ROUTER, collector, 4317)


def test_redis_is_closed_to_ray_without_fault_tolerance(helm4: Any) -> None:
    values = {
        "router": {"keys": {"existingSecret": "keys"}},
        "redis": {"enabled": True, "auth": {"existingSecret": "redis"}},
        "networkPolicy": {"enabled": True},
    }
    rendered = helm4.template(values)
    assert is_open(rendered, ROUTER, REDIS, 6379)
    assert not is_open(rendered, HEAD, REDIS, 6379)


def test_dns_of_another_port(helm4: Any) -> None:
    """OpenShift's servers listen on 5353, and policies see that port."""
    policy = {"enabled": True, "dnsPorts": [53, 5353]}
    rendered = helm4.template({"router": {"keys": {"existingSecret": "keys"}}, "networkPolicy": policy})
    assert all(is_open(rendered, ROUTER, DNS, port, how) for port in (53, 5353) for how in ("UDP", "TCP"))


def test_no_rule_is_open_by_having_no_peers(rendered: Rendered) -> None:
    """An ingress rule without `from` lets everybody in: it must never come from an empty list of values."""
    for policy in rendered.of_kind("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            assert rule["from"] and all(peer for peer in rule["from"])
        for rule in policy["spec"].get("egress", []):
            assert rule.get("ports") or rule.get("to")
