"""Service level objectives as a file, and whether a run met them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from loadtests.summary import summary_of
from loadtests.workload.scenario import Kind
from shared.errors import SettingsError
from shared.strict_yaml import strict_yaml

SHIPPED = Path(__file__).with_name("slo") / "default.yaml"
SETTLING_S = 10.0
"""Time after a fault that still counts as part of it: routers need a moment to notice that all is well again."""

Spread = Literal["ttft_ms", "content_ms", "total_ms", "tpot_ms", "longest_gap_ms"]
Figure = Literal[
    "failed_ratio", "requests_per_s", "output_tokens_per_s", "edge_ratio", "stalls", "leaks", "privacy_violations",
    "wrong_tier", "unfinished", "told_to_wait_ratio",
]  # fmt: skip
Point = Literal["min", "p50", "p90", "p95", "p99", "max"]
_SPREADS = ("ttft_ms", "content_ms", "total_ms", "tpot_ms", "longest_gap_ms")
_WHOLE_RUN = ("leaks", "unfinished")


class Objective(BaseModel):
    """One bound on one measure."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    measure: Spread | Figure
    point: Point | None = None
    at_most: float | None = None
    at_least: float | None = None
    kind: Kind | None = None
    when: Literal["steady", "fault"] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Objective:
        if (self.at_most is None) is (self.at_least is None):
            raise ValueError("say at_most or at_least, one of them")
        if (self.point is not None) is not (self.measure in _SPREADS):
            raise ValueError("times need a point such as p95, other measures have none")
        if self.measure in _WHOLE_RUN and (self.kind is not None or self.when is not None):
            raise ValueError("this measure is one of the whole run: it takes neither kind nor when")
        return self

    @property
    def name(self) -> str:
        """The objective in words."""
        bound = f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"
        narrowed = " ".join(filter(None, (self.kind, self.when)))
        return " ".join(filter(None, (narrowed, self.measure, self.point, bound)))


class Slo(BaseModel):
    """An SLO file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    objectives: tuple[Objective, ...] = Field(min_length=1, max_length=200)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One objective held against a run; `seen` is None where nothing was measured, which counts as missed."""

    name: str
    seen: float | None
    met: bool


def read_slo(path: Path) -> Slo:
    """The objectives in a file.

    Raises:
        SettingsError: it cannot be read, or does not say what an SLO file must.
    """
    try:
        return Slo.model_validate(strict_yaml(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"The SLO file {path} cannot be read.", param="--slo") from None
    except yaml.YAMLError as error:
        at = getattr(error, "problem_mark", None)
        where = f" (line {at.line + 1})" if at else ""
        raise SettingsError(f"The SLO file {path} is not YAML{where}.", param="--slo") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise SettingsError(f"The SLO file {path}, {where}: {first['msg']}.", param="--slo") from None


def verdicts(
    slo: Slo, rows: Sequence[Mapping[str, Any]], whole: Mapping[str, Any], bands: Sequence[tuple[float, float]]
) -> list[Verdict]:
    """Each objective held against the samples. `whole` are the figures of the whole run, `bands` its faults in
    seconds of the run."""
    return [_verdict(objective, rows, whole, bands) for objective in slo.objectives]


def _verdict(
    objective: Objective,
    rows: Sequence[Mapping[str, Any]],
    whole: Mapping[str, Any],
    bands: Sequence[tuple[float, float]],
) -> Verdict:
    figures = whole
    if objective.kind is not None or objective.when is not None:
        lasted_s = _lasted_s(objective.when, float(whole["duration_s"]), bands)
        figures = summary_of([row for row in rows if _counts(objective, row, bands)], lasted_s)
    value = figures.get(objective.measure)
    seen = value.get(objective.point) if isinstance(value, dict) else value
    if seen is None:
        return Verdict(objective.name, None, met=False)
    met = seen <= objective.at_most if objective.at_most is not None else seen >= (objective.at_least or 0.0)
    return Verdict(objective.name, float(seen), met)


def _counts(objective: Objective, row: Mapping[str, Any], bands: Sequence[tuple[float, float]]) -> bool:
    if objective.kind is not None and row.get("kind") != objective.kind:
        return False
    if objective.when is None:
        return True
    end_s = row["at_s"] + row["total_ms"] / 1000
    ill = any(row["at_s"] < to_s + SETTLING_S and end_s > from_s for from_s, to_s in bands)
    return ill is (objective.when == "fault")


def _lasted_s(when: str | None, duration_s: float, bands: Sequence[tuple[float, float]]) -> float:
    """Seconds of the run that `when` means; faults that overlap count once."""
    if when is None:
        return duration_s
    ill_s = until_s = 0.0
    for from_s, to_s in sorted(bands):
        end_s = min(duration_s, to_s + SETTLING_S)
        ill_s += max(0.0, end_s - max(from_s, until_s))
        until_s = max(until_s, end_s)
    return ill_s if when == "fault" else duration_s - ill_s
