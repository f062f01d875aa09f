"""Whatever the schema allows, the chart either renders into sound objects or refuses with a line of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, repeat
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cloud.settings import AppArgs, OpsArgs
from router.settings import RouterSettings
from tests.helm.manifests import CHART, Helm, HelmFailed, Rendered
from tests.helm.specimens import EVERYTHING
from tests.helm.strict_schemas import fault_of
from tests.helm.test_render import _nulls
from tests.helm.test_schemas import CUSTOM_GROUPS, UNPUBLISHED

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
BATCH = 6
"""Values rendered side by side in one example: a rendering is a process of its own."""
OWN_LINE = re.compile(r"execution error at \(isthmus/templates/")
"""How Helm begins a refusal that a template worded itself."""
PATTERNS = {
    r"^(sha256:[0-9a-f]{64})?$": st.sampled_from(["", f"sha256:{'0' * 64}"]),
    r"^([0-9]+%)?$": st.sampled_from(["", "50%"]),
    r"^sha256:[0-9a-f]{64}$": st.just(f"sha256:{'1' * 64}"),
    r"^[0-9a-f]{64}$": st.just("a" * 64),
}
"""Patterns that a search for matches would seldom hit."""
WORDS = st.sampled_from(["a", "b-2", "models", "5", "true", "x.y", "0123"])
"""Texts that are valid names, and some that YAML would take for something else where a quote is missing."""


def values(schema: dict[str, Any], path: str = "") -> st.SearchStrategy[Any]:
    """Values that `schema` allows: keys of the chart are there or not, or null; blocks of Kubernetes stay small."""
    if "$ref" in schema:
        return _block(schema["$ref"].rsplit("/", 1)[-1])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([values(part, path) for part in schema["anyOf"]])
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return st.one_of([_of_kind(kind, schema, path) for kind in kinds])


def _of_kind(kind: str, schema: dict[str, Any], path: str) -> st.SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            high = schema.get("maximum", schema.get("exclusiveMaximum", low + 51) - 1)
            return st.integers(int(low), int(max(low, min(high, low + 50))))
        case "string":
            return _text(schema)
        case "array":
            least = schema.get("minItems", 0)
            return st.lists(
                values(schema.get("items", {"type": "string"}), path), min_size=least, max_size=max(2, least)
            )
        case _:
            return _mapping(schema, path)


def _text(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    pattern = schema.get("pattern")
    if pattern in PATTERNS:
        return PATTERNS[pattern]
    if pattern:
        return st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True).filter(lambda text: len(text) < 40)
    return WORDS if schema.get("minLength") else st.one_of(st.just(""), WORDS)


def _mapping(schema: dict[str, Any], path: str) -> st.SearchStrategy[dict[str, Any]]:
    known = schema.get("properties")
    if known is None:
        extra = schema.get("additionalProperties")
        names = values(schema["propertyNames"]) if "propertyNames" in schema else WORDS
        return st.dictionaries(names, values(extra), max_size=2) if isinstance(extra, dict) else st.just({})
    required = set(schema.get("required", []))
    parts = {name: values(part, f"{path}.{name}") for name, part in known.items() if f"{path}.{name}" not in SKIPPED}
    return st.fixed_dictionaries(
        {name: part for name, part in parts.items() if name in required},
        optional={name: part for name, part in parts.items() if name not in required},
    )


SKIPPED = {".extraObjects", ".global"}
"""Objects of any API, and values of other charts: nothing can be said about them."""

_BLOCKS: dict[str, st.SearchStrategy[Any]] = {
    "core.v1.ResourceRequirements": st.sampled_from(
        [{}, {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi", "cpu": None}}]
    ),
    "core.v1.Toleration": st.sampled_from([{"operator": "Exists"}, {"key": "a", "value": "5", "effect": None}, None]),
    "core.v1.EnvVar": st.sampled_from([{"name": "A", "value": "5"}, {"name": "B"}, {"name": "HF_HOME", "value": "1"}]),
    "core.v1.Volume": st.sampled_from([{"name": name, "emptyDir": {}} for name in ("extra", "tmp", "cache")]),
    "core.v1.VolumeMount": st.sampled_from([{"name": "extra", "mountPath": path} for path in ("/extra", "/tmp")]),
    "core.v1.Container": st.just({"name": "beside", "image": "sidecar:1"}),
    "core.v1.LocalObjectReference": st.just({"name": "pull"}),
    "core.v1.PodSpec": st.sampled_from([{}, {"hostname": "a", "enableServiceLinks": None}]),
    "core.v1.PodSecurityContext": st.sampled_from([{}, {"runAsUser": 1000650000, "fsGroup": None}]),
    "core.v1.ServiceSpec": st.sampled_from([{}, {"ipFamilyPolicy": "PreferDualStack", "externalTrafficPolicy": None}]),
    "core.v1.TopologySpreadConstraint": st.just(
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ),
    "networking.v1.NetworkPolicyPeer": st.sampled_from([{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]),
    "networking.v1.NetworkPolicyEgressRule": st.just({"ports": [{"port": 443, "protocol": "TCP"}]}),
    "networking.v1.IngressTLS": st.just({"hosts": ["a.example.com"], "secretName": "tls"}),
    "router.StaticModelSettings": st.just({"id": "large", "context_tokens": 1000}),
}


def _block(name: str) -> st.SearchStrategy[Any]:
    """Blocks that are handed on to Kubernetes or to the program are theirs to check: a few specimens, else nothing."""
    if name in _BLOCKS:
        return _BLOCKS[name]
    if name.startswith(("router.", "cloud.")):
        return values(SCHEMA["definitions"][name])
    return st.just({})


FILLED = {"router": {"keys": {"existingSecret": "keys"}}}
BELOW = (FILLED, EVERYTHING)
"""Laid under the examples in turn, so that most of them render: next to nothing, and every part of the chart."""


def _outcome(helm: Helm, below: dict[str, Any], layer: dict[str, Any]) -> str | None:
    """What is wrong with a rendering; None if it is sound or was refused properly."""
    try:
        rendered = helm.template(below, layer)
    except HelmFailed as failed:
        return None if OWN_LINE.search(str(failed)) else str(failed)
    return _fault(rendered, layer)


def _fault(rendered: Rendered, layer: dict[str, Any]) -> str | None:
    if "<no value>" in rendered.text or (found := _nulls(rendered.objects)):
        return f"no value: {found if '<no value>' not in rendered.text else rendered.text}"
    names = [(o["kind"], o["metadata"]["name"]) for o in rendered.objects]
    if len(set(names)) != len(names):
        return f"twice: {names}"
    for found in rendered.objects:
        if not found["apiVersion"].startswith(CUSTOM_GROUPS + UNPUBLISHED) and (fault := fault_of(found, "1.36")):
            return f"{found['kind']}: {fault}"
    return _said_twice(rendered) or _refused_by_the_program(rendered)


def _said_twice(rendered: Rendered) -> str | None:
    """Lists that are maps to the API server: it refuses one key in two items."""
    for name, template in rendered.pod_templates():
        for field, key in (("env", "name"), ("volumeMounts", "mountPath")):
            items = [item[key] for item in template["spec"]["containers"][0].get(field, [])]
            if len(set(items)) != len(items):
                return f"{name}: {field} {items}"
        volumes = [volume["name"] for volume in template["spec"].get("volumes", [])]
        if len(set(volumes)) != len(volumes):
            return f"{name}: volumes {volumes}"
    return None


def _refused_by_the_program(rendered: Rendered) -> str | None:
    """What is rendered must start: the router with its file, the applications with their arguments."""
    try:
        for found in rendered.of_kind("ConfigMap"):
            for text in (text for name, text in found["data"].items() if name == "isthmus.yaml"):
                RouterSettings.model_validate(yaml.safe_load(text)["router"])
        for _ in rendered.of_kind("RayService"):
            ops, openai = rendered.serve_config()["applications"]
            if OpsArgs.model_validate(ops["args"]) != OpsArgs.of(AppArgs.model_validate(openai["args"])):
                return "the capacity route knows other models"
    except ValidationError as refused:
        return str(refused)
    return None


# The same values at every run, and no shrinking: each step of it would be six processes.
BOUNDED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@given(st.lists(values(SCHEMA), min_size=BATCH, max_size=BATCH))
@settings(BOUNDED, max_examples=8)
def test_what_the_schema_allows_renders_or_is_refused_in_our_words(helm4: Helm, layers: list[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(2) as pool:
        faults = list(pool.map(_outcome, repeat(helm4), cycle(BELOW), layers))
    for layer, fault in zip(layers, faults, strict=True):
        assert fault is None, f"{fault}\n{json.dumps(layer)}"


def _groups(schema: dict[str, Any], *parents: str) -> Iterator[tuple[str, ...]]:
    """Every group of keys of the chart's own."""
    for name, part in schema["properties"].items():
        if "properties" in part:
            yield (*parents, name)
            yield from _groups(part, *parents, name)


GROUPS = sorted(_groups(SCHEMA))


@given(st.lists(st.sampled_from(GROUPS), min_size=BATCH, max_size=BATCH))
@settings(BOUNDED, max_examples=2)
def test_a_key_that_the_schema_does_not_know_is_refused_wherever_it_is(
    helm4: Helm, groups: list[tuple[str, ...]]
) -> None:
    def refusal(group: tuple[str, ...]) -> str:
        layer: dict[str, Any] = {"enabledd": True}
        for name in reversed(group):
            layer = {name: layer}
        try:
            helm4.template(FILLED, layer)
        except HelmFailed as failed:
            return str(failed)
        return "rendered"

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(refusal, groups))
    assert [group for group, text in zip(groups, said, strict=True) if "'enabledd'" not in text] == []
