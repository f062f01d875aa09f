"""A release's life with the real helm and kubectl, against the API look-alike of this folder, which is no cluster."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.lookalike.server import serving
from tests.helm.lookalike.store import RESOURCES, Resource, Store
from tests.helm.manifests import CHART, CI_VALUES, NAMESPACE, RELEASE, Helm, HelmFailed
from tests.helm.test_schemas import SCHEMAS_VARIABLE

VALUES = next(path for path in CI_VALUES if path.name == "edge-fleet-values.yaml")
OPERATORS_KEYS = [{"name": "app", "sha256": "a" * 64, "scopes": ["inference"]}]
PASSWORDS = "demo-isthmus-redis-users"
JOIN = "demo-isthmus-join"


@dataclass
class Place:
    """Somewhere to install into: the look-alike's objects, and a Helm that is pointed at it."""

    store: Store
    helm: Helm
    kubectl: Helm
    url: str

    def data(self, secret: str) -> dict[str, str]:
        found = self.store.objects[("secrets", NAMESPACE, secret)]["data"]
        return {name: base64.b64decode(value).decode() for name, value in found.items()}

    def spec(self, plural: str, name: str) -> Any:
        return self.store.objects[(plural, NAMESPACE, name)]["spec"]

    def names(self, plural: str) -> set[str]:
        return {name for kind, _, name in self.store.objects if kind == plural}


@pytest.fixture
def place(helm: Helm, tmp_path: Path) -> Iterator[Place]:
    store = Store(schemas=Path(os.environ[SCHEMAS_VARIABLE]) if SCHEMAS_VARIABLE in os.environ else None)
    with serving(store) as url:
        config = tmp_path / "kubeconfig"
        cluster = {"name": "lookalike", "cluster": {"server": url}}
        context = {"name": "it", "context": {"cluster": "lookalike", "namespace": NAMESPACE, "user": "tester"}}
        whole = {"apiVersion": "v1", "kind": "Config", "current-context": "it", "clusters": [cluster]}
        config.write_text(json.dumps(whole | {"contexts": [context], "users": [{"name": "tester", "user": {}}]}))
        kubectl = Helm(helm.binary.with_name("kubectl"), helm.home, config)
        store.on_create = {"Job": lambda job: _run_join(job, url, tmp_path)}
        yield Place(store, replace(helm, kubeconfig=config), kubectl, url)


def _run_join(job: Any, url: str, folder: Path) -> None:
    """Do what the Job's pod would: its own command, with address, account and keys of this machine."""
    account, keys = folder / "account", folder / "keys.json"
    account.mkdir(exist_ok=True)
    (account / "namespace").write_text(NAMESPACE)
    (account / "token").write_text("account-token")
    keys.write_text(json.dumps(OPERATORS_KEYS))
    container = job["spec"]["template"]["spec"]["containers"][0]
    script, server, mounted, secret, given = container["args"]
    assert (server, given) == ("https://kubernetes.default.svc", "/run/isthmus/keys/keys.json")
    assert mounted == "/var/run/secrets/kubernetes.io/serviceaccount"
    command = [sys.executable, "-I", *container["command"][1:], script, url, str(account), secret, str(keys)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "isk-" not in done.stdout + done.stderr


def _values(place: Place, **router_settings: Any) -> list[str]:
    layer = place.helm.home / f"layer-{len(router_settings)}.yaml"
    layer.write_text(yaml.safe_dump({"router": {"settings": router_settings}}))
    return ["--namespace", NAMESPACE, "--values", str(VALUES), "--values", str(layer)]


def test_install_upgrade_rollback_test_uninstall_and_install_again(place: Place) -> None:
    """What a release holds on to, it keeps: passwords, the join token, volumes; what was rolled back is as before."""
    place.helm.run("install", RELEASE, str(CHART), *_values(place))
    passwords, token = place.data(PASSWORDS), place.data(JOIN)["token"]
    assert len(passwords["router-password"]) == len(passwords["ray-password"]) == 48
    assert [key["name"] for key in json.loads(place.data(JOIN)["keys.json"])] == ["app", "edge-join"]
    first = place.spec("deployments", "demo-isthmus-router")
    assert place.names("statefulsets") == {"demo-isthmus-redis"}
    assert not place.names("jobs"), "hooks are gone once they have run"
    assert not place.names("roles"), "and so is what they were allowed"

    place.helm.run("upgrade", RELEASE, str(CHART), *_values(place, keepalive_s=5))
    assert (place.data(PASSWORDS), place.data(JOIN)["token"]) == (passwords, token)
    assert place.spec("deployments", "demo-isthmus-router") != first
    place.helm.run("rollback", RELEASE, "1", "--namespace", NAMESPACE)
    assert place.spec("deployments", "demo-isthmus-router") == first
    assert place.data(PASSWORDS) == passwords
    assert "Succeeded" in place.helm.run("test", RELEASE, "--namespace", NAMESPACE)

    place.helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)
    assert place.names("secrets") == {PASSWORDS, JOIN}, "the data that they open stays too"
    assert place.names("persistentvolumeclaims") == {"demo-isthmus-cloud-cache"}
    assert not place.names("deployments") | place.names("statefulsets") | place.names("rayservices")
    place.helm.run("install", RELEASE, str(CHART), *_values(place))
    assert (place.data(PASSWORDS), place.data(JOIN)["token"]) == (passwords, token)


@pytest.mark.parametrize("values", CI_VALUES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_kubectl_accepts_all_of_it_in_a_dry_run(place: Place, values: Path, tmp_path: Path) -> None:
    """`kubectl apply --dry-run=server`: every object is read, checked and refused nowhere; nothing stays."""
    rendered = place.helm.template(values)
    (tmp_path / "all.yaml").write_text(rendered.text)
    said = place.kubectl.run("apply", "--dry-run=server", "--filename", str(tmp_path / "all.yaml"))
    assert said.count("created (server dry run)") == len(rendered.objects)
    assert not place.store.objects


def test_the_lookalike_refuses_what_a_server_would(place: Place, tmp_path: Path) -> None:
    """A misspelt field, and a changed selector: else the two tests above would prove nothing."""
    rendered = place.helm.template(VALUES)
    deployment = deepcopy(rendered.one("Deployment"))
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(deployment | {"spec": {**deployment["spec"], "replcas": 1}}))
    with pytest.raises(HelmFailed, match=r"Deployment is invalid: .*replcas"):
        place.kubectl.run("apply", "--dry-run=server", "--filename", str(tmp_path / "wrong.yaml"))
    place.store.create(_resource("Deployment"), NAMESPACE, deployment, dry=False)
    deployment["spec"]["selector"]["matchLabels"]["version"] = "2"
    deployment["spec"]["template"]["metadata"]["labels"]["version"] = "2"
    (tmp_path / "moved.yaml").write_text(yaml.safe_dump(deployment))
    with pytest.raises(HelmFailed, match=r"spec\.selector: field is immutable"):
        place.kubectl.run("replace", "--filename", str(tmp_path / "moved.yaml"))


def _resource(kind: str) -> Resource:
    return next(resource for resource in RESOURCES if resource.kind == kind)


def test_a_rendering_without_a_cluster_makes_new_passwords(helm4: Helm) -> None:
    """Why `redis.auth.create` says that it is not for renderers that cannot ask the cluster."""
    first, second = (_password(helm4.run("template", RELEASE, str(CHART), "--values", str(VALUES))) for _ in range(2))
    assert len(first) == len(second) and first != second


def _password(text: str) -> str:
    (secret,) = (found for found in yaml.safe_load_all(text) if found and found["kind"] == "Secret")
    return str(secret["data"]["router-password"])
