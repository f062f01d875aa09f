"""One compiled scanner for all tests of this folder."""

from __future__ import annotations

import pytest

from router.privacy.scanner import Scanner


@pytest.fixture(scope="session")
def scanner() -> Scanner:
    return Scanner()
