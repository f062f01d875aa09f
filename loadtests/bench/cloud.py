"""The cloud tier against the bare vLLM server: same engine arguments, same prompts, turn by turn in one run.

    python -m loadtests.bench.cloud [--rounds 3] [--clients 1 8 32] [--output 64] [--proxy serve] [--streams relayed]

Both servers run all the time, one is asked at a time. Each figure is the median over rounds of the ratio within a
round, so that what else the machine does falls on both. Printed beside: how much 32 clients get out of one engine
compared with one (continuous batching), and what each stage of the start took. `--proxy` and `--streams` take the other
ways of tokens than the default (settings `cloud.ingress`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from cloud.options import engine_kwargs, environment
from cloud.settings import AcceleratorSettings, IngressSettings, ModelSettings
from cloud.supervisor import prepared
from loadtests.prompts import load_body
from shared.settings import environment as inherited
from shared.settings import home
from shared.testing.program import isthmus
from shared.testing.stack import free_ports

START_LIMIT_S = 900.0
SAID_LIMIT_S = 30.0
MODEL = ModelSettings(
    model_id="smollm2-135m-instruct",
    source="package:smollm2-135m-instruct",
    context_tokens=1024,
    max_num_seqs=32,
    autoscaling={"target_ongoing_requests": 32, "max_ongoing_requests": 64},
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One server, one number of clients, one round."""

    tokens_per_s: float
    ttft_p50_ms: float
    failed: int


async def measure(url: str, clients: int, output_tokens: int) -> Measured:
    """`clients` streams side by side, two after each other, each of `output_tokens`."""
    first_ms: list[float] = []
    counts = {"tokens": 0, "failed": 0}

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        for turn in range(2):
            raw = load_body(2 * number + turn, model=MODEL.model_id, max_tokens=output_tokens)
            body = orjson.loads(raw) | {"ignore_eos": True}
            asked_s, seen, ended = time.perf_counter(), 0, False
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                async for line in response.content:
                    if not line.startswith(b"data: {"):
                        continue
                    choices = orjson.loads(line[6:]).get("choices") or [{}]
                    ended = ended or choices[0].get("finish_reason") == "length"
                    if (choices[0].get("delta") or {}).get("content"):
                        if not seen:
                            first_ms.append((time.perf_counter() - asked_s) * 1000)
                        seen += 1
            counts["failed"] += not ended
            counts["tokens"] += output_tokens if ended else 0

    began_s = time.perf_counter()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
        await asyncio.gather(*(one(session, number) for number in range(clients)))
    lasted_s = time.perf_counter() - began_s
    return Measured(counts["tokens"] / lasted_s, statistics.median(first_ms or [float("nan")]), counts["failed"])


def bare_arguments(model: ModelSettings, source: str, port: int) -> list[str]:
    """The command line of vLLM's own server with the engine arguments that the cloud tier gives its engine."""
    words = ["--model", source, "--served-model-name", model.model_id, "--host", "127.0.0.1", "--port", str(port)]
    for name, value in engine_kwargs(model, AcceleratorSettings()).items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not False:
            words += [flag, str(value)]
    return words


@contextlib.contextmanager
def bare_server(source: str, log: Path) -> Iterator[str]:
    """vLLM's OpenAI server; its address."""
    [port] = free_ports(1)
    variables = {**inherited(), **environment(MODEL.model_copy(update={"source": source}), AcceleratorSettings())}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *bare_arguments(MODEL, source, port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=variables, stdout=out, stderr=out)  # noqa: S603 - our own arguments
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def cloud_tier(folder: Path, ingress: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """`isthmus cloud serve` with `ingress` in its settings; its address and its log."""
    [port] = free_ports(1)
    settings: Mapping[str, Any] = {
        "cloud": {
            "port": port,
            "models": [MODEL.model_dump(mode="json", exclude_none=True)],
            "ingress": dict(ingress),
        }
    }
    for name in ("models", "checkpoints", "cache"):
        (home() / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(home() / name)
    with isthmus("cloud", "serve", home=folder, settings=settings, name="cloud") as program:
        yield f"http://127.0.0.1:{port}", program.log


async def wait_ready(url: str) -> None:
    """Return once a request of one token succeeds there."""
    deadline_s = time.monotonic() + START_LIMIT_S
    body = {"model": MODEL.model_id, "prompt": "a", "max_tokens": 1}
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline_s:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.post(f"{url}/v1/completions", json=body) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.5)
    raise SystemExit(f"error: {url} was not ready after {START_LIMIT_S:.0f} s")


async def compare(bare: str, ours: str, clients: list[int], rounds: int, output_tokens: int) -> None:
    """Alternate between the two and print what one is to the other."""
    for url in (bare, ours):
        await wait_ready(url)
        await measure(url, 4, 8)
    best: dict[int, float] = {}
    for count in clients:
        pairs = []
        for number in range(rounds):
            order = (bare, ours) if number % 2 == 0 else (ours, bare)
            found = {url: await measure(url, count, output_tokens) for url in order}
            pairs.append((found[bare], found[ours]))
        speed = statistics.median(b.tokens_per_s / a.tokens_per_s for a, b in pairs)
        first = statistics.median(b.ttft_p50_ms / a.ttft_p50_ms for a, b in pairs)
        best[count] = statistics.median(b.tokens_per_s for _, b in pairs)
        failed = sum(b.failed for _, b in pairs)
        print(
            f"{count:>3} clients: throughput {speed:.2f} x bare ({best[count]:.0f} tokens/s), "
            f"TTFT p50 {first:.2f} x bare, failed {failed}",
            flush=True,
        )
    if len(best) > 1:
        print(f"{max(best)} clients get {best[max(best)] / best[min(best)]:.1f} x the tokens of {min(best)}")


def stages(log: Path) -> str:
    """The line `ready` of the tier's log, as it tells its stages; requests may succeed a moment before it."""
    deadline_s = time.monotonic() + SAID_LIMIT_S
    while time.monotonic() < deadline_s:
        for line in log.read_bytes().splitlines(keepends=True):
            if line.startswith(b"{") and line.endswith(b"\n") and (event := orjson.loads(line))["event"] == "ready":
                return f"ready after {event['after_s']} s: {event['stages_s']}, models {event['models_s']}"
        time.sleep(0.1)
    return "the tier did not say when it was ready"


def main() -> None:
    """Run the comparison on this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--output", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--proxy", choices=("haproxy", "serve"), default=IngressSettings().proxy)
    parser.add_argument("--streams", choices=("direct", "relayed"), default=IngressSettings().streams)
    given = parser.parse_args()
    checkpoint = prepared(MODEL, lambda step: print(f"checkpoint: {step}"))
    if checkpoint is None:
        raise SystemExit("error: the model is not made from a package")
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as name:
        folder = Path(name)
        ingress = {"proxy": given.proxy, "streams": given.streams}
        with cloud_tier(folder, ingress) as (ours, log):
            # Alone, so that its start shares the cores with nothing.
            asyncio.run(wait_ready(ours))
            print(stages(log), flush=True)
            with bare_server(str(checkpoint.folder), folder / "bare.log") as bare:
                asyncio.run(compare(bare, ours, given.clients, given.rounds, given.output))


if __name__ == "__main__":
    main()
