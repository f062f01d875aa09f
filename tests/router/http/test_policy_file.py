"""A policy file through the whole router: rules act, changes come into force, and the log can replay both sides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from router.audit.files import find_policy, tail
from router.audit.replay import replay
from router.http.denials import SINGLE
from shared.keys import Scope, hashed
from shared.testing import answers
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter, eventually

CAPPED = "rules: [{name: short, match: {model: 'smol*'}, act: {output_cap_tokens: 7}}]\n"
DEVICE_ONLY = "rules: [{name: near, act: {zones: [device]}}]\n"
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


@pytest.fixture
async def router(start_router: StartRouter, edge: Upstream, cloud: Upstream, path: Path) -> AsyncIterator[Any]:
    path.write_text(CAPPED)
    started = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"file": path, "reload_s": 0.05, "stale_after_ms": 60_000}
    )
    await started.report(edge)
    yield started


def _sent(upstream: Upstream) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(upstream.exchanges[-1].body)
    return found


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {"max_tokens": 7}),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": 8}, {"max_tokens": 7}),
        ({"max_tokens": None}, {"max_tokens": 7}),
        ({"max_completion_tokens": 900}, {"max_completion_tokens": 7}),
    ],
)
async def test_a_cap_is_set_in_the_body_and_nothing_else_changes(
    router: RunningRouter, edge: Upstream, given: dict[str, Any], sent: dict[str, Any]
) -> None:
    body = {"model": MODEL, "messages": USER, "metadata": {"max_tokens": "900"}, **given}
    async with router.send(orjson.dumps(body)) as response:
        assert response.status == 200
    assert _sent(edge) == {**body, **sent}
    [record] = await router.records(1)
    assert record["decision"]["rule"] == "short" and record["decision"]["output_cap_tokens"] == 7


async def test_a_change_comes_into_force_while_the_router_runs(
    router: RunningRouter, edge: Upstream, path: Path
) -> None:
    first = router.router.policies.policy.digest
    async with router.ask() as response:
        await response.read()
    path.write_text(DEVICE_ONLY)
    await eventually(lambda: router.router.policies.policy.digest != first)
    second = router.router.policies.policy.digest
    async with router.ask(headers={"x-isthmus-route": "cloud"}) as response:
        assert response.status == 403
        assert (await response.json())["error"]["code"] == "blocked_by_policy"
    records = await router.records(2)
    assert [r["decision"]["policy"] for r in records] == [first, second]
    await eventually(lambda: find_policy(router.audit_dir, second) is not None)
    for record in records:
        policy = find_policy(router.audit_dir, record["decision"]["policy"])
        assert policy is not None and replay(record, policy).differences == ()
    assert router.metric("isthmus_router_policy_info", digest=second) == 1
    assert router.metric("isthmus_router_policy_info", digest=first) == 0
    assert router.metric("isthmus_router_policy_reloads_total", outcome="applied") == 1


async def test_a_bad_change_changes_nothing_but_a_gauge(router: RunningRouter, edge: Upstream, path: Path) -> None:
    digest = router.router.policies.policy.digest
    path.write_text(CAPPED + "ruled: []\n")
    await eventually(lambda: router.metric("isthmus_router_policy_file_refused") == 1)
    async with router.ask() as response:
        assert response.status == 200
    assert router.router.policies.policy.digest == digest and _sent(edge)["max_tokens"] == 7
    await router.records(1)
    assert len(tail(router.audit_dir, 100, "policy")) == 1
    path.write_text(CAPPED)
    await eventually(lambda: router.metric("isthmus_router_policy_file_refused") == 0)


async def test_words_and_patterns_of_the_file_count_from_the_moment_it_names_them(
    start_router: StartRouter, cloud: Upstream, path: Path
) -> None:
    path.write_text("version: 1\n")
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"file": path, "reload_s": 0.05}
    )  # fmt: skip
    text = "Ask ORION about EMP-0042"
    async with router.ask(text) as response:
        assert (response.status, response.headers["x-isthmus-class"]) == (200, "public")
    digest = router.router.policies.policy.digest
    path.write_text(
        "word_lists: [{kind: customer, words: [Orion]}]\npatterns: [{kind: badge, pattern: 'EMP-[0-9]{4}'}]\n"
        "rules: [{name: m, match: {class: personal, only_entities: [customer, badge]},"
        " act: {action: mask, mask: [customer, badge]}}]\n"
    )
    await eventually(lambda: router.router.policies.policy.digest != digest)
    async with router.ask(text) as response:
        assert (response.status, response.headers["x-isthmus-class"]) == (200, "personal")
    assert b"Ask [CUSTOMER_1] about [BADGE_1]" in cloud.exchanges[-1].body
    path.write_text("word_lists: [{kind: customer, words: [Orion], privacy_class: secret}]\n")
    await eventually(
        lambda: router.router.policies.policy.looks_for is not None and not router.router.policies.policy.rules
    )
    async with router.ask(text) as response:
        assert (response.status, response.headers["x-isthmus-class"]) == (503, "secret")
    records = await router.records(3)
    assert [sorted({e["kind"] for e in r["entities"]}) for r in records] == [[], ["badge", "customer"], ["customer"]]
    assert "Orion" not in "".join(file.read_text() for file in router.audit_dir.glob("*.jsonl"))


async def test_a_masked_body_is_capped_too(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, path: Path
) -> None:
    path.write_text(
        "rules: [{name: m, match: {class: personal, only_entities: card},"
        " act: {action: mask, mask: card, mode: only_cloud, output_cap_tokens: 9}}]\n"
    )
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"file": path})
    async with router.ask(PERSONAL_TEXT, max_tokens=50) as response:
        assert response.status == 200 and response.headers["x-isthmus-tier"] == "cloud"
    assert "4111" not in cloud.exchanges[-1].body.decode() and _sent(cloud)["max_tokens"] == 9
    async with router.ask(f"{PERSONAL_TEXT} maria.lopez@example.com") as response:
        assert response.status == 503, "a kind that the rule does not name stays on the edge"


@pytest.mark.parametrize(("scanning", "held"), [("true", True), ("false", False)])
async def test_a_rule_says_whose_answers_are_scanned(
    start_router: StartRouter, edge: Upstream, path: Path, scanning: str, held: bool
) -> None:
    """Instead of the settings, which say the opposite here."""
    path.write_text(f"rules: [{{name: s, act: {{scan_answers: {scanning}}}}}]\n")
    router = await start_router(policy={"file": path}, scan={"answers": "off" if held else "all"})
    await router.report(edge)
    edge.script(answers.completion("It is 4111 1111 1111 1111, is it not?"))
    async with router.ask() as response:
        assert ("4111 1111" not in await response.text()) is held


async def test_explain_names_the_rule(router: RunningRouter) -> None:
    body = orjson.dumps({"model": MODEL, "messages": USER})
    async with router.send(body, path="/router/v1/explain") as response:
        answer = await response.json()
    assert answer["decision"]["rule"] == "short"
    assert "It falls under the rule short, which limits the answer to 7 tokens." in answer["words"]


KEYS = [
    {"name": "app", "sha256": hashed("k-app"), "scopes": [Scope.INFERENCE]},
    {"name": "other", "sha256": hashed("k-other"), "scopes": [Scope.INFERENCE]},
]


async def _say(router: RunningRouter, body: Any, key: str) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {key}"}
    async with router.send(orjson.dumps(body), path="/router/v1/feedback", headers=headers) as response:
        return response.status, await response.json()


async def test_feedback_is_kept_for_ones_own_requests_alone(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router(keys=KEYS)
    async with router.ask(PERSONAL_TEXT, headers={"Authorization": "Bearer k-app"}) as response:
        decision_id = response.headers["x-isthmus-decision-id"]
    said = {"decision_id": decision_id, "class": "secret"}
    status, kept = await _say(router, said, "k-app")
    assert status == 200 and (kept["class_found"], kept["class_said"], kept["kinds"]) == (
        "personal",
        "secret",
        ["card"],
    )
    await eventually(lambda: tail(router.audit_dir, 1)[0]["kind"] == "feedback")
    assert (await _say(router, said, "k-other"))[0] == 404
    assert (await _say(router, {**said, "decision_id": "dec-nothing"}, "k-app"))[0] == 404
    for body, param in (
        ({**said, "class": "unknown"}, "class"),
        ({**said, "class": 5}, "class"),
        ({"class": "public"}, "decision_id"),
        ({**said, "note": "x"}, None),
    ):
        status, answer = await _say(router, body, "k-app")
        assert (status, answer["error"]["param"]) == (400, param)
    assert (await _say(router, said, "k-wrong"))[0] == 401


async def test_lg_03_a_denial_at_any_route_leaves_one_record(start_router: StartRouter) -> None:
    """Wherever someone without a key or scope knocks."""
    router = await start_router(keys=KEYS)
    knocks = [
        ("POST", "/fleet/v1/heartbeats", 401, None),
        ("POST", "/fleet/v1/heartbeats", 403, "k-app"),
        ("GET", "/fleet/v1/backends", 403, "k-app"),
        ("GET", "/v1/models", 401, None),
        ("GET", "/metrics", 401, "k-wrong"),
        ("POST", "/router/v1/explain", 401, None),
        ("POST", "/router/v1/feedback", 401, None),
    ]
    for method, path, status, key in knocks:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with router.session.request(method, router.url + path, headers=headers) as response:
            assert response.status == status, path
    await eventually(lambda: len(tail(router.audit_dir, 100, "denied")) == len(knocks))
    denied = tail(router.audit_dir, 100, "denied")
    assert [(d["endpoint"], d["status"]) for d in denied] == [(path, status) for _, path, status, _ in knocks]
    assert "k-wrong" not in orjson.dumps(denied).decode()


async def test_knocking_again_and_again_leaves_a_count_and_no_flood(start_router: StartRouter) -> None:
    """The first denials of a kind have records of their own, at every route; the rest is one record a minute."""
    router = await start_router(keys=KEYS)
    for method, path in (("GET", "/fleet/v1/backends"), ("POST", "/v1/chat/completions")):
        for _ in range(SINGLE + 15):
            async with router.session.request(method, router.url + path) as response:
                assert response.status == 401
    await router.records(SINGLE)
    await router.router.denials.close()
    await eventually(lambda: len(tail(router.audit_dir, 100, "denied")) == SINGLE + 2)
    denied = tail(router.audit_dir, 100, "denied")
    [fleet, chat] = [each for each in denied if "times" in each]
    assert (fleet["endpoint"], fleet["times"], fleet["code"]) == ("/fleet/v1/backends", 15, "invalid_api_key")
    assert (chat["endpoint"], chat["times"]) == ("/v1/chat/completions", 15)
    assert fleet["since"] <= fleet["at"] and "request_id" not in fleet
    requests = tail(router.audit_dir, 1000, "request")
    assert [r["status"] for r in requests].count(401) == SINGLE


async def test_lg_03_a_fault_of_the_router_itself_is_recorded_as_500(
    start_router: StartRouter, edge: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = await start_router()
    await router.report(edge)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("router.http.judge.decide", broken)
    async with router.ask() as response:
        assert response.status == 500
    [record] = await router.records(1)
    assert (record["status"], record["code"], record["outcome"]) == (500, "internal_error", "error")
