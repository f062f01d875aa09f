"""The scripts of the chart run for real: the pod of `helm test` against a router, the join Job's fault paths."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.settings import RouterSettings
from shared.keys import ApiKey, Scope, authenticate, generate, hashed
from shared.settings import load
from shared.testing.program import isthmus
from shared.testing.upstream import Upstream
from tests.helm.lookalike.server import serving
from tests.helm.lookalike.store import Refused, Store
from tests.helm.manifests import CHART, NAMESPACE, Helm, Rendered

KEY = generate()
START_LIMIT_S = 60.0


def _command(rendered: Rendered, base: str, limit_s: float, key: Path | None) -> list[str]:
    """The test pod's own command, with address, time and key file of this machine."""
    container = rendered.one("Pod")["spec"]["containers"][0]
    script, address, question, _, *mounted = container["args"]
    assert container["command"] == ["python", "-c"] and address == "http://demo-isthmus-router:80"
    assert mounted == (["/run/isthmus/key/api-key"] if "key" in str(container.get("volumeMounts")) else [])
    given = [str(key)] if key else []
    return [sys.executable, "-I", "-c", script, base, question, str(limit_s), *given]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=90)


@pytest.fixture
async def base(of_ci: Callable[[str], Rendered], tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[str]:
    """A router from the rendered ConfigMap, before a backend that answers where the cloud would be."""
    settings = yaml.safe_load(of_ci("small-cpu").one("ConfigMap", "demo-isthmus-router")["data"]["isthmus.yaml"])
    port = free_port()
    keys = [{"name": "app", "sha256": hashed(KEY), "scopes": ["inference"]}]
    async with Upstream() as upstream:
        settings["router"] |= {"host": "127.0.0.1", "port": port, "keys": keys}
        settings["router"]["clouds"][0] |= {"url": upstream.url, "models": [{"id": "smollm2-135m-instruct"}]}
        with isthmus("router", "serve", home=tmp_path, settings=settings) as program:
            address = f"http://127.0.0.1:{port}"
            await asyncio.to_thread(program.wait_answer, f"{address}/healthz", START_LIMIT_S)
            yield address


async def test_helm_test_asks_a_question(
    base: str, helm4: Helm, of_ci: Callable[[str], Rendered], tmp_path: Path
) -> None:
    with_key, without = of_ci("edge-fleet"), of_ci("small-cpu")
    (tmp_path / "key").write_text(f"{KEY}\n")
    (tmp_path / "wrong").write_text(generate())
    answered = await asyncio.to_thread(_run, _command(with_key, base, 60, tmp_path / "key"))
    assert (answered.returncode, answered.stdout) == (0, "The router answered.\n"), answered.stderr
    stranger = await asyncio.to_thread(_run, _command(without, base, 60, None))
    assert stranger.returncode == 0 and "asks for a key" in stranger.stdout
    wrong = await asyncio.to_thread(_run, _command(with_key, base, 60, tmp_path / "wrong"))
    assert wrong.returncode == 1 and "status 401" in wrong.stderr
    assert KEY not in answered.stdout + answered.stderr + wrong.stderr


def test_helm_test_gives_up_after_its_time(of_ci: Callable[[str], Rendered], free_port: Callable[[], int]) -> None:
    gone = _run(_command(of_ci("small-cpu"), f"http://127.0.0.1:{free_port()}", 0, None))
    assert gone.returncode == 1
    assert "the router cannot be reached" in gone.stderr


def _join(url: str, folder: Path, keys: str, secret: str = "demo-isthmus-join") -> subprocess.CompletedProcess[str]:
    (folder / "namespace").write_text(NAMESPACE)
    (folder / "token").write_text("account-token")
    return _run([sys.executable, "-I", str(CHART / "files" / "join_token.py"), url, str(folder), secret, keys])


def _data(store: Store) -> dict[str, str]:
    found = store.objects[("secrets", NAMESPACE, "demo-isthmus-join")]["data"]
    return {name: base64.b64decode(value).decode() for name, value in found.items()}


def test_join_keeps_its_token_and_follows_the_operators_keys(tmp_path: Path) -> None:
    store = Store()
    with serving(store) as url:
        made = _join(url, tmp_path, json.dumps([{"name": "a", "sha256": "a" * 64}]))
        assert made.returncode == 0, made.stderr
        token = _data(store)["token"]
        again = _join(url, tmp_path, json.dumps([{"name": "b", "sha256": "b" * 64}]))
        assert again.returncode == 0 and "keeps its token" in again.stdout
    after = _data(store)
    assert after["token"] == token and token not in made.stdout + again.stdout
    names = [(key["name"], key.get("scopes")) for key in json.loads(after["keys.json"])]
    assert names == [("b", None), ("edge-join", ["fleet:report"])]


def test_the_router_takes_the_list_and_the_token_is_good_for_reports_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    with serving(store) as url:
        assert _join(url, tmp_path, "[]").returncode == 0
    monkeypatch.setenv("ISTHMUS__ROUTER__KEYS", _data(store)["keys.json"])
    known = [ApiKey(key.name, key.sha256, key.scopes) for key in load(RouterSettings, "router").keys]
    assert authenticate([f"Bearer {_data(store)['token']}"], known).scopes == {Scope.FLEET_REPORT}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('[{"name": "edge-join", "sha256": "x"}]', "that name belongs to the join token"),
        ("[", "The keys are not a JSON list"),
        ('["isk-pasted-by-mistake"]', "The keys are not a JSON list"),
    ],
)
def test_join_refuses_keys_that_it_cannot_add_to(tmp_path: Path, keys: str, said: str) -> None:
    store = Store()
    with serving(store) as url:
        refused = _join(url, tmp_path, keys)
    assert refused.returncode == 1 and said in refused.stderr
    assert "Traceback" not in refused.stderr and "pasted" not in refused.stderr
    assert not store.objects


def test_join_says_what_the_api_refused(tmp_path: Path) -> None:
    class Forbids(Store):
        def create(self, *_: Any, **__: Any) -> Any:
            raise Refused(403, "Forbidden", "secrets is forbidden")

    with serving(Forbids()) as url:
        refused = _join(url, tmp_path, "[]")
    assert refused.returncode == 1
    assert refused.stderr == "The Kubernetes API answered 403 to POST of the Secret.\n"
