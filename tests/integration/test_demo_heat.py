"""`isthmus demo heat` with the real edge pair and a scripted cloud: through every level and back, and nothing fails."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import orjson
import pytest
import yaml

from shared.testing.program import child_environment, command
from shared.testing.stack import free_ports, use_cache
from shared.testing.upstream import Upstream

pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(900)]


async def _demo(home: Path, config: Path) -> tuple[int | None, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *(*command(), "demo", "heat", "--config", str(config), "--json"),
        env=child_environment(home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()  # it ends its stack in order
            await process.wait()
    return process.returncode, out, err


async def test_a_device_that_grows_hot_sheds_load_recovers_and_fails_nobody() -> None:
    router, edge = free_ports(2)
    async with Upstream() as cloud:
        settings = {
            "up": {"tiers": ["edge"]},
            "edge": {"port": edge, "slots": 2, "context_tokens": 2048, "engine": {"threads": 1, "threads_prefill": 1}},
            "router": {"port": router, "clouds": [{"id": "cloud", "url": cloud.url}]},
        }
        # A short path: the control socket's name has to fit into 107 bytes.
        with tempfile.TemporaryDirectory(prefix="isthmus-heat-") as folder:
            home, config = Path(folder), Path(folder) / "c.yaml"
            use_cache(home)
            config.write_text(yaml.safe_dump(settings))
            code, out, err = await _demo(home, config)
    assert code == 0, out.decode() + err.decode()
    told = orjson.loads(out)
    assert told["faults"] == []
    assert told["levels"] == ["nominal", "warm", "hot", "critical", "hot", "warm", "nominal"]
    assert {"cloud", "edge"} <= set(told["tiers"])
    by_level = {row["level"]: row for row in told["rows"]}
    assert (by_level["nominal"]["slots"], by_level["hot"]["slots"]) == (2, 1)
    assert by_level["critical"]["cloud_ratio"] in (1.0, None)
    ahead = [row["throttle_in_s"] for row in told["rows"] if row["throttle_in_s"] is not None]
    assert ahead, "the next level was never seen coming"
