"""Passes vLLM's own metrics on: names, labels and values as vLLM writes them, of all replicas in one text.

Ray exports them too, under names of its own (`ray_vllm_…`), because it takes no colon. Here they keep their names. The
label `replica` is added, since two replicas of a model would otherwise be one series with two values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PREFIX = "vllm:"
_FAMILY = re.compile(r"# (?:HELP|TYPE) (\S+) ")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?")


def own_metrics(vllm_config: Any) -> Any:
    """vLLM's logger that keeps metrics under their own names, beside the one by which Ray exports them under others."""
    from vllm.v1.metrics.loggers import PrometheusStatLogger  # noqa: PLC0415 - loads vLLM, which only replicas need

    return PrometheusStatLogger(vllm_config)


def of_vllm(exposition: str) -> str:
    """What stands in a replica's metrics that is vLLM's."""
    kept = [line for line in exposition.splitlines() if _name_of(line).startswith(_PREFIX)]
    return "".join(f"{line}\n" for line in kept)


def merged(texts: Mapping[str, str]) -> str:
    """The texts of replicas as one, by family: each is described once, and each sample names its replica."""
    described: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for replica, text in texts.items():
        family = ""
        for line in text.splitlines():
            if match := _FAMILY.match(line):
                family = match[1]
                lines = described.setdefault(family, [])
                if line not in lines:
                    lines.append(line)
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(_named(line, replica))
    return "".join(f"{line}\n" for family in described for line in (*described[family], *samples.get(family, ())))


def _name_of(line: str) -> str:
    if match := _FAMILY.match(line):
        return match[1]
    found = _SAMPLE.match(line)
    return found[1] if found else ""


def _named(line: str, replica: str) -> str:
    found = _SAMPLE.match(line)
    if found is None:
        return line
    label = f'replica="{replica}"'
    rest = line[found.end() :]
    return f"{found[1]}{{{label},{rest}" if found[2] else f"{found[1]}{{{label}}}{rest}"
