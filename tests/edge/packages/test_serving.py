"""While a model answers, every kind of bad package for its name is refused, and the answer goes on to its end."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest

from edge.devices.probe import probe
from edge.packages.lease import lease
from edge.packages.library import Library
from edge.packages.manifest import canonical
from edge.packages.package import Package
from edge.packages.signing_key import SigningKey
from edge.packages.trust import Trust, TrustedKey
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.supervisor import SupervisedEngine
from shared.clock import SystemClock
from shared.errors import (
    DigestMismatch,
    Downgrade,
    FileMissing,
    FileUnexpected,
    IsthmusError,
    LinkRefused,
    ModelCorrupt,
    PackageInUse,
    SignatureInvalid,
    Unsigned,
    UntrustedKey,
)
from tests.edge.service.fakes import MODEL
from tests.edge.service.harness import running_agent

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.fixture
def owner() -> SigningKey:
    """The key that the device trusts."""
    return SigningKey.generate()


@pytest.fixture
def library(tmp_path: Path, installed_model: Package, owner: SigningKey) -> Library:
    """A store with release 2 of the real model, signed by the owner, whom alone it trusts."""
    trust = Trust("require", {owner.key_id: TrustedKey("owner", owner.key_id, owner.public)})
    library = Library(tmp_path / "models", trust)
    library.import_path(installed_model.model_path, MODEL, sequence=2, signing_key=owner)
    return library


@pytest.fixture
def attacks(library: Library, tmp_path: Path, owner: SigningKey) -> Iterator[dict[type[IsthmusError], Path]]:
    """A folder with the package as a publisher would bring it, for each way in which it can be wrong."""
    good = library.show(MODEL).folder

    def copy(name: str) -> Path:
        folder = tmp_path / "offered" / name
        folder.mkdir(parents=True)
        for file in good.iterdir():  # the model's bytes are shared until an attack changes them
            (os.link if file.name == "model.gguf" else shutil.copyfile)(file, folder / file.name)
        for file in folder.glob("manifest.*"):
            file.chmod(0o644)
        return folder

    def restated(name: str, change: Callable[[dict[str, object]], None], key: SigningKey | None) -> Path:
        import json

        from edge.packages import signature

        folder = copy(name)
        stated = json.loads((folder / "manifest.json").read_bytes())
        change(stated)
        (folder / "manifest.json").write_bytes(canonical(stated))
        (folder / "manifest.sig").unlink()
        if key is not None:
            (folder / "manifest.sig").write_bytes(signature.sign(canonical(stated), key))
        return folder

    found: dict[type[IsthmusError], Path] = {}
    found[DigestMismatch] = restated("flipped", lambda stated: stated.update(sequence=3), owner)
    model = found[DigestMismatch] / "model.gguf"
    raw = bytearray(model.read_bytes())
    raw[50_000_000] ^= 1
    model.unlink()
    model.write_bytes(raw)
    found[ModelCorrupt] = restated("short", lambda stated: stated.update(sequence=3), owner)
    model = found[ModelCorrupt] / "model.gguf"
    model.unlink()
    model.write_bytes(raw[:-1])
    found[FileMissing] = copy("missing")
    (found[FileMissing] / "model.gguf").unlink()
    found[FileUnexpected] = copy("extra")
    (found[FileUnexpected] / "payload.so").write_bytes(b"x")
    found[LinkRefused] = copy("link")
    (found[LinkRefused] / "model.gguf").unlink()
    (found[LinkRefused] / "model.gguf").symlink_to(good / "model.gguf")
    found[Downgrade] = restated("older", lambda stated: stated.update(sequence=1), owner)
    found[UntrustedKey] = restated("foreign", lambda stated: stated.update(sequence=3), SigningKey.generate())
    found[Unsigned] = restated("unsigned", lambda stated: stated.update(sequence=3), None)
    found[SignatureInvalid] = copy("edited")
    edited = (found[SignatureInvalid] / "manifest.json").read_bytes().replace(b'"sequence": 2', b'"sequence": 9')
    (found[SignatureInvalid] / "manifest.json").write_bytes(edited)
    yield found


async def test_a_running_answer_goes_on_while_bad_packages_are_refused(
    library: Library, attacks: dict[type[IsthmusError], Path], tmp_path: Path
) -> None:
    """GG-01, GG-03: each refused with its own error; the engine lives and the stream ends by itself."""
    served = library.vouched(MODEL).package
    request = PlanRequest(context_tokens=1024, threads=1, threads_batch=1)
    engine = SupervisedEngine(plan_engine(served, probe(), request), clock=SystemClock(), run_dir=tmp_path / "run")
    with lease(served.folder):
        async with (
            running_agent(engine) as running,
            openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
        ):
            pid = engine.status.pid
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "Count slowly from one to one hundred."}],
                temperature=0,
                max_tokens=400,
                stream=True,
            )
            ends = asyncio.create_task(_end_of(stream))
            for kind, folder in attacks.items():
                with pytest.raises(kind) as caught:
                    await asyncio.to_thread(library.pull, str(folder))
                assert type(caught.value) is kind
            with pytest.raises(PackageInUse):
                await asyncio.to_thread(library.remove, MODEL)
            await asyncio.to_thread(library.collect)
            pieces, reason = await ends
            assert (reason, pieces > 50) == ("length", True) or reason == "stop"
            assert engine.status.pid == pid
            assert engine.status.restarts == 0
    assert library.show(MODEL) == served
    assert library.verify(MODEL).package == served


async def _end_of(stream: openai.AsyncStream[openai.types.chat.ChatCompletionChunk]) -> tuple[int, str | None]:
    pieces, reason = 0, None
    async for part in stream:
        for choice in part.choices:
            pieces += bool(choice.delta.content)
            reason = choice.finish_reason or reason
    return pieces, reason
