"""Options of the chaos run, and the router it is run on."""

from __future__ import annotations

import pytest

from tests.router.conftest import scanner, start_router

__all__ = ["scanner", "start_router"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-minutes", type=float, default=10.0, help="Length of the long chaos run.")
    parser.addoption("--chaos-users", type=int, default=24, help="Locust users of the long chaos run.")
