"""The action `mask` through the whole router: what the cloud gets, what the caller gets back, what stays behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.openai.sse import DONE
from shared.testing import answers
from shared.testing.answers import EVENT_STREAM, MODEL, Answer, Write
from shared.testing.upstream import Upstream
from tests.router.conftest import RunningRouter, StartRouter, eventually

CARD = "4111 1111 1111 1111"
MAIL = "bob@example.org"
MASKING = {"public": "any", "personal": "mask", "secret": "mask", "unknown": "edge_only"}
ASK = f"Card {CARD} of {MAIL}, again 4111-1111-1111-1111."


async def masking(start_router: StartRouter, cloud: Upstream, **settings: Any) -> RunningRouter:
    return await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}],
        **{"policy": {"actions": MASKING, "mode": "prefer_cloud"}, **settings},
    )


def text_of(raw: bytes) -> str:
    return str(orjson.loads(raw)["messages"][-1]["content"])


async def streamed(router: RunningRouter, text: str = ASK, **fields: Any) -> tuple[str, list[dict[str, Any]]]:
    """The joined content of a streamed answer, and its chunks."""
    async with router.ask(text, stream=True, **fields) as response:
        assert response.status == 200
        raw = await response.read()
    assert raw.endswith(DONE)
    chunks = [orjson.loads(line[6:]) for line in raw.split(b"\n\n") if line.startswith(b"data: {")]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]), chunks


async def test_pv_03_the_cloud_gets_placeholders_and_the_caller_gets_values(
    start_router: StartRouter, cloud: Upstream
) -> None:
    router = await masking(start_router, cloud)
    cloud.script(answers.completion("Paid with [CARD_1] for [EMAIL_1]; [CARD_2] is unknown."))
    async with router.ask(ASK) as response:
        assert response.status == 200
        assert response.headers["x-isthmus-tier"] == "cloud"
        assert response.headers["x-isthmus-class"] == "personal"
        answer = await response.json()
    assert answer["choices"][0]["message"]["content"] == f"Paid with {CARD} for {MAIL}; [CARD_2] is unknown."
    [exchange] = cloud.exchanges
    assert text_of(exchange.body) == "Card [CARD_1] of [EMAIL_1], again [CARD_1]."
    [record] = await router.records(1)
    assert record["decision"]["action"] == "mask"
    assert {e["kind"] for e in record["entities"]} == {"card", "email"}
    assert b"4111 1111" not in orjson.dumps(record) and MAIL not in orjson.dumps(record).decode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_pv_03_a_placeholder_split_over_chunks_is_restored(
    start_router: StartRouter, cloud: Upstream, size: int
) -> None:
    router = await masking(start_router, cloud)
    said = "Yes [CARD_1], [not one] and [EMAIL_1"
    cloud.script(answers.stream(*[said[at : at + size] for at in range(0, len(said), size)]))
    content, chunks = await streamed(router)
    assert content == f"Yes {CARD}, [not one] and [EMAIL_1"
    assert [c for c in chunks if c["choices"] and c["choices"][0]["finish_reason"]]
    assert chunks[-1]["usage"]


async def test_text_goes_on_while_nothing_looks_like_a_placeholder(start_router: StartRouter, cloud: Upstream) -> None:
    """Hold-back is no buffering: each token but the head of a placeholder goes on as it comes."""
    router = await masking(start_router, cloud)
    cloud.script(answers.stream("One ", "two ", "[CA", "RD_1]", " end"))
    _, chunks = await streamed(router)
    said = [c["choices"][0]["delta"].get("content") for c in chunks if c["choices"]]
    assert [s for s in said if s] == ["One ", "two ", CARD, " end"]


async def test_tool_arguments_are_masked_and_restored(start_router: StartRouter, cloud: Upstream) -> None:
    router = await masking(start_router, cloud)
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "pay", "arguments": '{"a":"\\u0034111 1111 1111 1111"}'},
    }
    messages = [
        {"role": "user", "content": "pay"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": f"paid {CARD}"},
    ]
    tools = [{"type": "function", "function": {"name": "pay", "description": f"like {CARD}"}}]
    reply = {
        "index": 0,
        "id": "c2",
        "type": "function",
        "function": {"name": "pay", "arguments": '{"card":"[CARD_1]"}'},
    }
    value = {"choices": [{"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [reply]}}]}
    cloud.script(Answer(headers=answers.JSON, writes=(Write(orjson.dumps(value)),)))
    async with router.ask(messages=messages, tools=tools) as response:
        answer = await response.json()
    [exchange] = cloud.exchanges
    assert b"4111" not in exchange.body and b"0034" not in exchange.body and exchange.body.count(b"[CARD_1]") == 3
    arguments = answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert orjson.loads(arguments) == {"card": CARD}


async def test_streamed_tool_arguments_are_restored_call_by_call(start_router: StartRouter, cloud: Upstream) -> None:
    router = await masking(start_router, cloud)

    def event(index: int, arguments: str, finish: str | None = None, **more: Any) -> Write:
        call = {"index": index, **more, "function": {"arguments": arguments}}
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": finish}
        return Write(b"data: " + orjson.dumps({"id": "x", "model": MODEL, "choices": [choice]}) + b"\n\n")

    writes = [
        event(0, '{"a":"[CA', id="c1"),
        event(1, '{"b":"[EMAIL', id="c2"),
        event(0, 'RD_1]"}'),
        event(1, '_1]"}', "tool_calls"),
    ]
    cloud.script(Answer(headers=EVENT_STREAM, writes=(*writes, Write(DONE))))
    _, chunks = await streamed(router)
    arguments = {0: "", 1: ""}
    for chunk in chunks:
        for call in chunk["choices"][0]["delta"].get("tool_calls", ()):
            arguments[call["index"]] += call["function"]["arguments"]
    assert [orjson.loads(arguments[n]) for n in (0, 1)] == [{"a": CARD}, {"b": MAIL}]


_NAMED = {
    "a field": {"metadata": {"password": "blueberry"}},
    "a field in another language": {"metadata": {"passwort": "blueberry"}},
    "a deep field": {"x_own": [{"auth": {"api_key": "blueberry"}}]},
    "a name beside a value": {"x_own": [{"name": "X-Api-Key", "value": "blueberry"}]},
    "tool arguments": {"messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": {"password": "blueberry"}}'}}
        ]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]},
    "a tool's result": {"messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "c", "content": '{"user": "bob", "password": "blueberry"}'},
    ]},
}  # fmt: skip


@pytest.mark.parametrize("case", _NAMED)
async def test_pv_03_a_value_that_only_its_key_names_is_masked_and_restored(
    start_router: StartRouter, cloud: Upstream, case: str
) -> None:
    router = await masking(start_router, cloud)
    cloud.script(answers.completion("It was [PASSWORD_1]."))
    async with router.ask("go", **_NAMED[case]) as response:
        assert response.status == 200, await response.text()
        assert response.headers["x-isthmus-tier"] == "cloud" and response.headers["x-isthmus-class"] == "secret"
        said = (await response.json())["choices"][0]["message"]["content"]
    [exchange] = cloud.exchanges
    assert b"blueberry" not in exchange.body and b"[PASSWORD_1]" in exchange.body
    assert said == "It was blueberry."


async def test_a_placeholder_that_the_user_typed_is_the_users_own(start_router: StartRouter, cloud: Upstream) -> None:
    """It is neither given to a value nor replaced by one, in the turn in which it comes."""
    router = await masking(start_router, cloud)
    cloud.script(answers.stream("You wrote [CARD", "_1], and paid with [CARD_2]", "."))
    content, _ = await streamed(router, f"What is [CARD_1]? My card is {CARD}.")
    assert text_of(cloud.exchanges[0].body) == "What is [CARD_1]? My card is [CARD_2]."
    assert content == f"You wrote [CARD_1], and paid with {CARD}."


async def test_sessions_at_the_same_time_under_one_key_do_not_share_values(
    start_router: StartRouter, cloud: Upstream
) -> None:
    router = await masking(start_router, cloud)
    cloud.default = lambda exchange: answers.completion("[EMAIL_1] [EMAIL_2]", after_s=0.05)

    async def ask(session: str, mail: str) -> str:
        async with router.ask(f"mail {mail}", headers={"x-session-id": session}) as response:
            return str((await response.json())["choices"][0]["message"]["content"])

    mails = [f"user{n}@example.org" for n in range(6)]
    said = await asyncio.gather(*(ask(f"s{n}", mail) for n, mail in enumerate(mails)))
    assert said == [f"{mail} [EMAIL_2]" for mail in mails]
    assert {text_of(e.body) for e in cloud.exchanges} == {"mail [EMAIL_1]"}


async def test_placeholders_are_stable_within_a_session_and_unknown_to_others(
    start_router: StartRouter, cloud: Upstream
) -> None:
    router = await masking(start_router, cloud)
    sent = [
        (f"mail {MAIL}", "a"),
        (f"card {CARD} mail eve@example.org", "a"),
        (f"again {MAIL}", "a"),
        ("mail x@example.org", "b"),
    ]
    for text, session in sent:
        cloud.script(answers.completion("[EMAIL_1]"))
        async with router.ask(text, headers={"x-session-id": session}) as response:
            said = (await response.json())["choices"][0]["message"]["content"]
        assert said == (MAIL if session == "a" else "x@example.org")
    assert [text_of(e.body) for e in cloud.exchanges] == [
        "mail [EMAIL_1]", "card [CARD_1] mail [EMAIL_2]", "again [EMAIL_1]", "mail [EMAIL_1]",
    ]  # fmt: skip


async def test_numbers_stay_as_they_are_while_a_conversation_grows(start_router: StartRouter, cloud: Upstream) -> None:
    """Without a session id, the order of appearance keeps placeholders stable; new messages come last."""
    router = await masking(start_router, cloud)
    turn = [{"role": "user", "content": f"I am {MAIL}"}]
    later = [*turn, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "and eve@example.org"}]
    for messages in (turn, later):
        async with router.ask(messages=messages, user="carl@example.org") as response:
            assert response.status == 200
    first, second = (orjson.loads(e.body) for e in cloud.exchanges)
    assert first["user"] == second["user"] == "[EMAIL_1]"
    assert first["messages"][0]["content"] == second["messages"][0]["content"] == "I am [EMAIL_2]"
    assert second["messages"][2]["content"] == "and [EMAIL_3]"


_UNMASKABLE = {
    "over two messages": {"messages": [{"role": "user", "content": c} for c in ("4111 1111 ", "1111 1111")]},
    "a key over two parts, of which the first is one by itself": {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "key sk-proj-" + "a1B2c3D4e5F6g7H8i9J0"},
        {"type": "text", "text": "k1L2m3N4o5P6q7R8s9T0"},
    ]}]},
    "in a key": {"messages": [{"role": "user", "content": "x"}], "metadata": {CARD: "x"}},
    "as a number": {"messages": [{"role": "user", "content": "x"}], "metadata": {"n": 4111111111111111}},
    "in a name of fixed form": {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "f_4111111111111111"}}],
    },
    "beside a picture": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": CARD}, {"type": "image_url", "image_url": {"url": "https://e.org/x.png"}}],
            }
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("case", _UNMASKABLE)
async def test_pv_03_what_cannot_be_masked_as_a_whole_stays_on_the_edge(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, case: str
) -> None:
    router = await masking(start_router, cloud)
    raw = orjson.dumps({"model": MODEL, **_UNMASKABLE[case]})
    async with router.send(raw) as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "privacy_unavailable"
    await router.report(edge)
    async with router.send(raw) as response:
        assert response.headers["x-isthmus-tier"] == "edge"
    assert edge.exchanges[0].body == raw
    await asyncio.sleep(0.05)
    assert cloud.inference_connections == []


async def test_the_edge_gets_the_body_as_it_came_and_the_cloud_after_it_a_masked_one(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    router = await masking(start_router, cloud, policy={"actions": MASKING, "mode": "prefer_edge"})
    await router.report(edge)
    await eventually(lambda: any(b.models for b in router.router.directory.snapshot().backends if b.zone == "cloud"))
    edge.script(answers.failure(500))
    async with router.ask(ASK) as response:
        assert response.headers["x-isthmus-tier"] == "cloud"
    assert text_of(edge.exchanges[0].body) == ASK
    assert "4111" not in text_of(cloud.exchanges[0].body)


async def test_a_key_that_ends_a_turn_is_masked_in_the_turns_after_it(
    start_router: StartRouter, cloud: Upstream
) -> None:
    """The words of the next turn are no piece of it."""
    router = await masking(start_router, cloud)
    turns = ["my key is sk-proj-" + "a1B2c3D4e5" * 4, "I see", f"and mail {MAIL}", "What now", "tell me"]
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)]
    async with router.ask(messages=messages) as response:
        assert response.status == 200 and response.headers["x-isthmus-tier"] == "cloud"
    assert b"a1B2c3" not in cloud.exchanges[0].body


async def test_a_stricter_class_than_was_found_is_not_masked(start_router: StartRouter, cloud: Upstream) -> None:
    """What only the caller knows to be secret, no mask takes out."""
    router = await masking(start_router, cloud)
    async with router.ask("Our merger is on Monday.", headers={"x-isthmus-privacy": "secret"}) as response:
        assert response.status == 503
    assert cloud.inference_connections == []


async def test_a_stream_that_breaks_gives_what_was_held_and_an_error(
    start_router: StartRouter, cloud: Upstream
) -> None:
    router = await masking(start_router, cloud)
    cloud.script(answers.broken_stream("Yes ", "[CARD_", end=answers.End.CLEAN, error=True))
    async with router.ask(ASK, stream=True) as response:
        raw = await response.content.read()
    assert b"[CARD_" in raw and raw.count(b'"error"') == 1 and DONE not in raw


async def test_findings_in_answers_are_replaced_where_that_is_asked_for(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    router = await masking(start_router, cloud, scan={"answers": "all"})
    key = "sk-proj-" + "a1B2c3D4e5" * 4
    said = f"The card is {CARD[:9]}|{CARD[9:]}, key {key[:9]}|{key[9:]} and your [CARD_1]."
    cloud.script(answers.stream(*said.split("|")), answers.completion(said.replace("|", "")))
    expected = f"The card is [CARD], key [OPENAI_KEY] and your {CARD}."
    content, _ = await streamed(router, f"my card {CARD}")
    assert content == expected
    async with router.ask(f"my card {CARD}") as response:
        assert (await response.json())["choices"][0]["message"]["content"] == expected
    assert router.metric("isthmus_router_answer_findings_total", kind="card") == 2


async def test_a_rule_says_whether_answers_are_scanned(
    start_router: StartRouter, cloud: Upstream, tmp_path: Path
) -> None:
    """The rule wins over the setting, in both directions."""
    path = tmp_path / "policy.yaml"
    path.write_text(
        "rules:\n  - {name: long, match: {prompt_tokens: {at_least: 100}}, act: {scan_answers: true}}\n"
        "  - {name: short, act: {scan_answers: false}}\n"
    )
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}],
        policy={"file": path, "mode": "prefer_cloud"},
        scan={"answers": "cloud"},
    )
    cloud.script(answers.completion(f"It is {MAIL}."), answers.completion(f"It is {MAIL}."))
    for text, said in (("word " * 200, "It is [EMAIL]."), ("word", f"It is {MAIL}.")):
        async with router.ask(text) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == said


async def test_a_session_is_held_to_its_strictest_class(start_router: StartRouter, cloud: Upstream) -> None:
    """A pin tightens later turns, never loosens one, belongs to its session alone, and is audited."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    steps = [("hello", "s", 200), (CARD, "s", 503), ("hello", "s", 503), ("hello", "t", 200), ("hello", None, 200)]
    for text, session, status in steps:
        headers = {"x-session-id": session} if session else {}
        async with router.ask(text, headers=headers) as response:
            assert response.status == status, (text, session)
    records = await router.records(len(steps))
    assert [(r["class"], r["class_found"], r["class_pinned"]) for r in records[:3]] == [
        ("public", "public", "public"), ("personal", "personal", "public"), ("personal", "public", "personal"),
    ]  # fmt: skip
    async with router.send(
        orjson.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}),
        headers={"x-session-id": "s"},
        path="/router/v1/explain",
    ) as response:
        assert (await response.json())["decision"]["class"] == "personal"
