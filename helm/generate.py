"""Makes what the chart must never write twice: schema, the program's defaults, dashboards, and the README's tables.

Sources: the comments and defaults of values.yaml, the settings models of router and cloud, and the strict schemas of
Kubernetes for the blocks that are handed on to it. `python helm/generate.py` writes; `--check` only compares.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from dashboards import DASHBOARDS, grafana
from pydantic import BaseModel
from value_types import BY_KEY, QUANTITY, Schema, nullable

from cloud.settings import (
    ENGINE_SETTINGS,
    AcceleratorSettings,
    AdapterSettings,
    CloudSettings,
    IngressSettings,
    LifeSettings,
    ModelSettings,
)
from router.settings import RouterSettings
from shared.tracing.settings import TracingSettings

CHART = Path(__file__).parent / "isthmus"
KUBERNETES = "v1.36.0-local-strict"
CLOUD_SECTION = ("models", "accelerator", "ingress", "life", "keys", "tracing", "port", "log_level")
"""Settings that mean something in a cluster; `host` and `ray` describe a process that starts Ray by itself."""


def main() -> int:
    """Write the generated files, or say which of them are not as they would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    check = parser.parse_args().check
    stale = {path: text for path, text in generated().items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        if check:
            sys.stderr.write(f"{path} is out of date: run python helm/generate.py\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    return 1 if check and stale else 0


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    paths = (CHART / "values.schema.json", CHART / "files" / "cloud-defaults.yaml", CHART / "README.md")
    pages = {
        CHART / "dashboards" / f"{page.name}.json": json.dumps(grafana(page), indent=1) + "\n" for page in DASHBOARDS
    }
    return {path: text_of(path) for path in paths} | pages


def text_of(path: Path) -> str:
    """The text of one generated file; of the README, only the tables between the markers are made."""
    if path.name == "values.schema.json":
        return json.dumps(values_schema(), indent=1, ensure_ascii=False) + "\n"
    if path.suffix == ".yaml":
        header = (
            "# Generated from the settings model by helm/generate.py: what the program takes where nothing is said.\n"
        )
        return header + yaml.safe_dump(cloud_defaults(), sort_keys=False)
    return re.sub(
        r"(<!-- values: (\w+) -->\n).*?(<!-- end -->)",
        lambda found: found[1] + values_table(found[2]) + found[3],
        path.read_text("utf-8"),
        flags=re.DOTALL,
    )


def cloud_defaults() -> Schema:
    """Defaults of section `cloud`; `model` holds those of each entry of `models`, `adapters` those of a group in
    one, `engine_settings` what sets which."""
    optional = {name for name, field in ModelSettings.model_fields.items() if not field.is_required()}
    return {
        "port": CloudSettings.model_fields["port"].default,
        "log_level": CloudSettings.model_fields["log_level"].default,
        "model": _dumped(ModelSettings(model_id="any", source="any"), include=optional),
        "accelerator": _dumped(AcceleratorSettings()),
        "ingress": _dumped(IngressSettings()),
        "life": _dumped(LifeSettings()),
        "tracing": _dumped(TracingSettings()),
        "adapters": _dumped(AdapterSettings()),
        "engine_settings": dict(ENGINE_SETTINGS),
    }


def _dumped(model: BaseModel, include: set[str] | None = None) -> Schema:
    return model.model_dump(mode="json", exclude_none=True, include=include)


def documented() -> Iterator[tuple[str, str]]:
    """Dotted path and comment of each key of values.yaml that has one, in its order."""
    stack: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in (CHART / "values.yaml").read_text("utf-8").splitlines():
        if found := re.match(r"( *)# (.*)", line):
            comment.append(found[2])
        elif found := re.match(r"( *)([\w./-]+):( |$)", line):
            stack = [item for item in stack if item[0] < len(found[1])] + [(len(found[1]), found[2])]
            if comment:
                yield ".".join(key for _, key in stack), " ".join(comment)
            comment = []
        else:
            comment = []


def values_table(section: str) -> str:
    """The README's table of the keys below `section`; `global` is those at the top that hold no section."""
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    rows = ["| Key | Default | What it is |", "|---|---|---|"]
    for path, comment in documented():
        top = path.split(".")[0]
        nested = isinstance(values[top], dict) and bool(values[top])
        if section != (top if nested else "global"):
            continue
        value: Any = values
        for key in path.split("."):
            value = value[key]
        is_group = isinstance(value, dict) and any(p.startswith(f"{path}.") for p, _ in documented())
        shown = "" if is_group else f"`{json.dumps(value)}`"
        rows.append(f"| `{path}` | {shown} | {comment} |".replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


def values_schema() -> Schema:
    """JSON schema (draft 7: Helm 3 knows no later one) of values.yaml. Every object is closed."""
    definitions: dict[str, Schema] = {}
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = _object(values, "", dict(documented()), definitions)
    # Helm itself adds this one where the chart is a dependency of another.
    schema["properties"]["global"] = {"type": ["object", "null"]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **schema,
        "definitions": dict(sorted(definitions.items())),
    }


def _object(values: Schema, prefix: str, comments: dict[str, str], definitions: dict[str, Schema]) -> Schema:
    properties = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        described = {"description": comments[path]} if path in comments else {}
        properties[key] = described | nullable(_property(key, path, value, comments, definitions))
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _property(key: str, path: str, value: Any, comments: dict[str, str], definitions: dict[str, Schema]) -> Schema:
    if path == "router.settings":
        return _settings(RouterSettings, "router", tuple(RouterSettings.model_fields), definitions)
    if path == "cloud.settings":
        return _settings(CloudSettings, "cloud", CLOUD_SECTION, definitions)
    if path == "cloud.external.models":
        return {"type": "array", "items": {"$ref": "#/definitions/router.StaticModelSettings"}}
    if key == "podSpec":
        spec = _kubernetes("core.v1.PodSpec", definitions)
        spec["properties"].pop("containers", None)
        spec["required"] = []
        return {"$ref": "#/definitions/core.v1.PodSpec"}
    if path == "router.service.spec":
        spec = _kubernetes("core.v1.ServiceSpec", definitions)
        for own in ("selector", "ports", "type"):
            spec["properties"].pop(own, None)
        return {"$ref": "#/definitions/core.v1.ServiceSpec"}
    if path == "router.homeVolume":
        source = _kubernetes("core.v1.Volume", definitions)
        definitions["volumeSource"] = source | {"properties": dict(source["properties"]), "required": []}
        return {"$ref": "#/definitions/volumeSource"}
    match BY_KEY.get(path, BY_KEY.get(key)):
        case str() as name:
            _kubernetes(name, definitions)
            return {"$ref": f"#/definitions/{name}"}
        case [name]:
            _kubernetes(name, definitions)
            return {"type": "array", "items": {"$ref": f"#/definitions/{name}"}}
        case dict() as known:
            return dict(known)
    if isinstance(value, dict):
        return _object(value, f"{path}.", comments, definitions)
    kinds: dict[type, str] = {bool: "boolean", int: "integer", str: "string"}
    return {"type": kinds[type(value)]}


def _settings(model: type[BaseModel], prefix: str, names: tuple[str, ...], definitions: dict[str, Schema]) -> Schema:
    raw = model.model_json_schema()
    for name, schema in raw.get("$defs", {}).items():
        definitions[f"{prefix}.{name}"] = _adapted(schema, f"{prefix}.")
    properties = {name: nullable(_adapted(raw["properties"][name], f"{prefix}.")) for name in names}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _kubernetes(name: str, definitions: dict[str, Schema]) -> Schema:
    """Copy one definition, and those it refers to, out of the published schemas."""
    if name not in definitions:
        folder = files("kubernetes_validate") / "kubernetes-json-schema" / KUBERNETES
        published = json.loads((folder / "_definitions.json").read_text("utf-8"))["$defs"]
        todo = [f"io.k8s.api.{name}"]
        while todo:
            full = todo.pop()
            short = _short(full)
            if short not in definitions:
                definitions[short] = _adapted(published[full], "")
                todo += re.findall(r'#/\$defs/([\w.-]+)"', json.dumps(published[full]))
    return definitions[name]


def _short(name: str) -> str:
    return name.removeprefix("io.k8s.api.").removeprefix("io.k8s.apimachinery.pkg.")


SPECIAL: dict[str, Schema] = {
    "api.resource.Quantity": QUANTITY,
    "util.intstr.IntOrString": {"type": ["integer", "string", "null"]},
}


def _adapted(schema: Any, prefix: str) -> Any:
    """A foreign schema in draft 7 with our names, without what Helm does not read; null allowed wherever a key is."""
    if isinstance(schema, list):
        return [_adapted(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = _short(schema["$ref"].removeprefix("#/$defs/"))
        return dict(SPECIAL[name]) if name in SPECIAL else {"$ref": f"#/definitions/{prefix}{name}"}
    kept: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: nullable(_adapted(part, prefix)) for name, part in value.items()}
        elif (
            key not in ("title", "default", "format") and not key.startswith("x-") and (prefix or key != "description")
        ):
            kept[key] = _adapted(value, prefix)
    if isinstance(kept.get("additionalProperties"), dict):
        kept["additionalProperties"] = nullable(kept["additionalProperties"])
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    return nullable(kept) if kept.get("type") == "object" else kept


if __name__ == "__main__":
    sys.exit(main())
