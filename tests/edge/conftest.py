"""The real default model, installed once for all tests of the edge tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.packages.catalogue import DEFAULT_MODEL
from edge.packages.library import Library
from edge.packages.package import Package
from shared.testing.models import model_source
from tests.edge.onnx_packages import install_onnx


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Building the ONNX package, for whichever test needs it first, may take longer than a test."""
    for item in items:
        if "onnx_package" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def model_library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A store of its own with the default model in it."""
    library = Library(tmp_path_factory.mktemp("models"))
    library.pull(model_source(DEFAULT_MODEL))
    return library


@pytest.fixture(scope="session")
def installed_model(model_library: Library) -> Package:
    """The installed default model."""
    return model_library.show(DEFAULT_MODEL)


@pytest.fixture(scope="session")
def model_file(installed_model: Package) -> Path:
    """Its GGUF file. Never written to: copy it first."""
    return installed_model.model_path


@pytest.fixture(scope="session")
def onnx_package(installed_model: Package, tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The same model as an installed ONNX package."""
    return install_onnx(installed_model, tmp_path_factory.mktemp("onnx"))
