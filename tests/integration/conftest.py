"""What tests of the whole stack share; the stack itself is in `tests/conftest.py`."""

from __future__ import annotations

import pytest

from shared.testing.stack import Stack


@pytest.fixture
def cloud_url(stack: Stack) -> str:
    """Base address of the cloud tier; without one the test is skipped."""
    if "cloud" not in stack.tiers:
        pytest.skip("Ray and vLLM are not installed")
    return stack.urls["cloud"]
