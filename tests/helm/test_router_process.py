"""The router starts for real from the rendered ConfigMap, and the rendered probes find it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.keys import generate, hashed
from shared.testing.program import isthmus
from tests.helm.manifests import Rendered

START_LIMIT_S = 60.0
KEY = generate()

Running = tuple[str, dict[str, Any]]


@pytest.fixture
def router(of_ci: Callable[[str], Rendered], tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Running]:
    """Base address and container. Address and port are this machine's; the keys are what the Secret would hold."""
    rendered = of_ci("small-cpu")
    container = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    settings = yaml.safe_load(rendered.one("ConfigMap", "demo-isthmus-router")["data"]["isthmus.yaml"])
    port = free_port()
    keys = [{"name": "app", "sha256": hashed(KEY), "scopes": ["inference"]}]
    settings["router"] |= {"host": "127.0.0.1", "port": port, "keys": keys}
    with isthmus(*container["args"][:2], home=tmp_path, settings=settings) as program:
        base = f"http://127.0.0.1:{port}"
        program.wait_answer(base + container["startupProbe"]["httpGet"]["path"], START_LIMIT_S)
        yield base, container


def _status(url: str, *, key: str | None = None, body: bytes | None = None) -> int:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_router_whose_backends_are_gone_is_alive_and_asks_for_keys(router: Running) -> None:
    """PB-01: the serve service does not resolve on this machine, so no backend answers; liveness does not mind."""
    base, container = router
    assert _status(base + container["livenessProbe"]["httpGet"]["path"]) == 200
    assert _status(base + container["readinessProbe"]["httpGet"]["path"]) == 200
    body = b'{"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "hello"}]}'
    ask = f"{base}/v1/chat/completions"
    assert _status(ask, body=body) == 401
    assert _status(ask, body=body, key=generate()) == 401
    assert _status(ask, body=body, key=KEY) == 503, "the key is known, but no backend answers"
