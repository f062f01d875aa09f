"""Strict chat templates on the real engine: what they refuse is a 400 with their reason before any token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.devices.probe import probe
from edge.packages.library import Library
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.supervisor import SupervisedEngine
from shared.clock import SystemClock
from tests.edge.service.harness import running_agent

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
_STRICT = (
    "{% for m in messages %}{% set r=m.role %}{% if r=='system' and loop.index>1 %}{{raise_exception('System first')}}"
    "{% elif r=='tool' %}{{raise_exception('No tools')}}"
    "{% elif loop.index>1 and r==messages[loop.index0-1].role or loop.first and r=='assistant' %}"
    "{{raise_exception('Roles must alternate')}}{% endif %}{{r+': '+m.content+'\n'}}{% endfor %}assistant:"
)


def _with_template(package: Package, folder: Path, template: str) -> Package:
    """The same model with another template, of the same length in the file."""
    data = package.model_path.read_bytes()
    key = data.index(b"tokenizer.chat_template") + len("tokenizer.chat_template") + 4
    size = int.from_bytes(data[key : key + 8], "little")
    text = template.encode()
    # A comment fills what is left: white space would be part of the prompt.
    filler = b"{#" + b"-" * (size - len(text) - 4) + b"#}"
    assert len(text) + len(filler) == size
    path = folder / "strict.gguf"
    path.write_bytes(data[: key + 8] + text + filler + data[key + 8 + size :])
    return Library(folder / "models").import_path(path, "strict")


async def test_ct_01_a_strict_template_refuses_before_any_token(installed_model: Package, tmp_path: Path) -> None:
    """CT-01: repeated roles, a late system message, an assistant first; a result without its call comes no further."""
    package = _with_template(installed_model, tmp_path, _STRICT)
    plan = plan_engine(package, probe(), PlanRequest(context_tokens=512, threads=1, threads_batch=1))
    engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=tmp_path / "run")
    cases: list[tuple[list[str], str]] = [
        (["system", "user", "user"], "Roles must alternate"),
        (["user", "system", "user"], "System first"),
        (["assistant", "user"], "Roles must alternate"),
    ]
    async with running_agent(engine, model="strict") as running:
        for roles, reason in cases:
            messages: list[dict[str, Any]] = [{"role": role, "content": "hi"} for role in roles]
            for stream in (False, True):
                body = {"model": "strict", "messages": messages, "stream": stream, "max_tokens": 4}
                async with running.session.post(f"{running.url}/v1/chat/completions", json=body) as response:
                    answer = await response.text()
                    assert response.status == 400, (roles, answer)
                    assert response.content_type == "application/json"
                assert reason in answer, (roles, answer)
                assert "template_error" in answer
                assert "at line" not in answer
        async with running.chat(model="strict", max_tokens=2) as response:
            assert response.status == 200


async def test_ct_a_model_without_a_template_takes_no_chat(installed_model: Package, tmp_path: Path) -> None:
    """CT-01: the engine would take a template that the model was never shown, and the answer would be 200."""
    data = installed_model.model_path.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_templat_", 1)
    path = tmp_path / "bare.gguf"
    path.write_bytes(data)
    package = Library(tmp_path / "models").import_path(path, "bare")
    plan = plan_engine(package, probe(), PlanRequest(context_tokens=512, threads=1, threads_batch=1))
    engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=tmp_path / "run")
    async with running_agent(engine, model="bare") as running:
        messages = [{"role": "user", "content": "hi"}]
        for route in ("/v1/chat/completions", "/v1/tokenize"):
            async with running.session.post(
                f"{running.url}{route}", json={"model": "bare", "messages": messages}
            ) as response:
                error = (await response.json())["error"]
                assert (response.status, error["code"], error["param"]) == (400, "unsupported_model", "model")
        body = {"model": "bare", "prompt": "The sky is", "max_tokens": 2}
        async with running.session.post(f"{running.url}/v1/completions", json=body) as response:
            assert response.status == 200
