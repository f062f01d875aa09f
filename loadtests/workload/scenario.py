"""Scenarios as files: which kinds of requests in which shares, how long they are, and what must happen to them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from loadtests.workload.lengths import Lengths
from shared.errors import SettingsError
from shared.strict_yaml import strict_yaml

FOLDER = Path(__file__).parents[1] / "scenarios"


class Kind(StrEnum):
    """What one request is."""

    CHAT = "chat"
    RAG = "rag"
    AGENT = "agent"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    ADAPTERS = "adapters"
    PRIVACY = "privacy"


class Sizes(BaseModel):
    """How long the requests of one kind are (tokens)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Lengths
    output: Lengths


_SIZES = {
    Kind.CHAT: Sizes(
        prompt=Lengths(median=48, sigma=0.8, least=8, most=400),
        output=Lengths(median=32, sigma=0.5, least=8, most=96),
    ),
    Kind.RAG: Sizes(
        prompt=Lengths(median=700, sigma=0.4, least=200, most=1_200),
        output=Lengths(median=40, sigma=0.4, least=16, most=96),
    ),
    Kind.AGENT: Sizes(
        prompt=Lengths(median=120, sigma=0.5, least=40, most=400),
        output=Lengths(median=32, sigma=0.4, least=8, most=96),
    ),
    Kind.COMPLETIONS: Sizes(
        prompt=Lengths(median=64, sigma=0.7, least=8, most=400),
        output=Lengths(median=24, sigma=0.5, least=8, most=96),
    ),
    Kind.EMBEDDINGS: Sizes(
        prompt=Lengths(median=80, sigma=0.6, least=8, most=400),
        output=Lengths(median=1),
    ),
    Kind.ADAPTERS: Sizes(
        prompt=Lengths(median=48, sigma=0.8, least=8, most=400),
        output=Lengths(median=32, sigma=0.5, least=8, most=96),
    ),
    Kind.PRIVACY: Sizes(
        prompt=Lengths(median=48, sigma=0.6, least=16, most=300),
        output=Lengths(median=24, sigma=0.4, least=8, most=64),
    ),
}
"""Of an interactive service whose small model has a context of 2,048 tokens; a scenario may say otherwise."""


class Scenario(BaseModel):
    """One scenario. `mix` gives the weight of each kind; every request of kind `privacy` carries a canary, and
    `canary_ratio` of all others do."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    about: str = Field(min_length=1, max_length=500)
    mix: dict[Kind, float] = Field(min_length=1)
    canary_ratio: float = Field(default=0.0, ge=0, le=1)
    sizes: dict[Kind, Sizes] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _weighs_something(self) -> Scenario:
        if any(weight < 0 for weight in self.mix.values()) or sum(self.mix.values()) <= 0:
            raise ValueError("mix needs weights that are not negative, one of them above 0")
        return self

    def sizes_of(self, kind: Kind) -> Sizes:
        """The lengths of one kind."""
        return self.sizes.get(kind, _SIZES[kind])


def shipped() -> tuple[str, ...]:
    """The names of the scenarios that ship."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def read_scenario(name: str) -> Scenario:
    """The shipped scenario of that name, or the one in the file of that name.

    Raises:
        SettingsError: there is none, or it does not say what a scenario must.
    """
    path = FOLDER / f"{name}.yaml" if name in shipped() else Path(name)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise SettingsError(
            f"There is no such scenario. Shipped: {', '.join(shipped())}; or a YAML file.", param="SCENARIO"
        )
    try:
        return Scenario.model_validate(strict_yaml(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise SettingsError(f"The scenario {path} cannot be read as YAML.", param="SCENARIO") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "scenario"
        raise SettingsError(f"The scenario {path}, {where}: {first['msg']}.", param="SCENARIO") from None
