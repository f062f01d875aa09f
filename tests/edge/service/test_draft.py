"""A draft model that does not fit is seen by whoever looks: in the metrics, and in what `isthmus edge ps` prints."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from edge.console import show_status
from edge.packages.manifest import Manifest
from edge.packages.package import Package
from edge.runtime.drafting import Drafting
from edge.scheduling.draft import Mismatch
from tests.edge.service.fakes import FakeEngine
from tests.edge.service.harness import running_agent


async def test_sp_01_a_vocabulary_mismatch_is_off_with_a_metric_reason(
    engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.drafting = Drafting(Package("small", tmp_path, cast(Manifest, None)), Mismatch.TEXT)
    async with running_agent(engine) as running:
        metrics = await running.metrics()
        assert 'isthmus_edge_speculation{mode="draft",reason="vocab_mismatch"} 0.0' in metrics
        assert 'isthmus_edge_speculation{mode="off"' in metrics
        async with running.session.get(f"{running.url}/edge/v1/status") as response:
            status = await response.json()
    assert status["speculation"]["draft"] == {"model": "small", "mismatch": "text"}
    show_status({**status, "computes": {"n_threads": 1, "n_threads_batch": 2, "n_batch": 126}}, as_json=False)
    shown = capsys.readouterr().out
    assert "draft small: vocab_mismatch (text)" in shown
    assert "1 thread(s) decode, 2 read 126 tokens at once; measured for this device: off" in shown
