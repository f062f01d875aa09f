"""Stages of a start: each counted once, the first from the birth of the process."""

from __future__ import annotations

import time

import psutil

from cloud.stages import Stages


def test_the_first_stage_began_with_the_process() -> None:
    age_s = time.time() - psutil.Process().create_time()
    stages = Stages()
    stages.end("imports")
    assert stages.ended_s["imports"] >= round(age_s, 1)


def test_stages_add_up_to_the_whole() -> None:
    stages = Stages()
    for name in ("a", "b", "c"):
        stages.end(name)
    assert list(stages.ended_s) == ["a", "b", "c"]
    assert abs(sum(stages.ended_s.values()) - stages.total_s) < 1
