"""The console in a real Chromium, before a live router with scripted backends: every view, by keyboard, on a phone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from shared.fleet import ServedModel
from shared.keys import generate, hashed
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.admin.conftest import OpenPage, Watched
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter

pytestmark = [pytest.mark.console, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
ADMIN, READER = generate(), generate()
KEYS = [
    {"name": "admin", "sha256": hashed(ADMIN), "scopes": ["admin", "inference", "fleet:report"]},
    {"name": "reader", "sha256": hashed(READER), "scopes": ["admin:read"]},
]
VIEWS = ("live", "fleet", "decisions", "policy", "playground")
SCRIPT = '<script>document.title="owned"</script><img src=x onerror=document.title="owned">'
UNLABELLED = """() => [...document.querySelectorAll('button, input, select, textarea, a')]
  .filter((each) => each.checkVisibility() && !each.labels?.length && !each.getAttribute('aria-label')
    && !each.textContent.trim()).map((each) => each.outerHTML)"""


class Stack:
    """A router, a cloud, and an edge agent that reports `fields` twice a second, however busy the machine is."""

    def __init__(self, router: RunningRouter, edge: Upstream) -> None:
        self.router = router
        self.fields: dict[str, Any] = {"temperature_c": 41.0, "slots_total": 2, "slots_busy": 0, "queue_limit": 8}
        self._edge = edge

    async def report(self, **fields: Any) -> None:
        """Report now, and these fields from here on."""
        self.fields |= fields
        assert await self.router.report(self._edge, **self.fields) == 204

    async def run(self) -> None:
        while True:
            await self.report()
            await asyncio.sleep(0.5)


StartStack = Callable[..., Awaitable[Stack]]


@pytest.fixture
async def start_stack(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> AsyncIterator[StartStack]:
    tasks = []

    async def start(**settings: Any) -> Stack:
        router = await start_router(**({"clouds": [{"id": "cloud-1", "url": cloud.url}]} | settings))
        if "keys" in settings:
            router.session.headers["Authorization"] = f"Bearer {ADMIN}"
        stack = Stack(router, edge)
        await stack.report()
        tasks.append(asyncio.create_task(stack.run()))
        return stack

    yield start
    for task in tasks:
        task.cancel()


async def _enter(watched: Watched, router: RunningRouter, view: str, key: str | None = None) -> Any:
    page = watched.page
    await page.goto(f"{router.url}/console/#/{view}")
    if key is not None:
        await page.get_by_label("API key").fill(key)
        await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("heading", level=1, name=view.capitalize()).wait_for()
    return page


async def test_every_view_shows_the_live_stack(start_stack: StartStack, open_page: OpenPage) -> None:
    router = (await start_stack()).router
    watched = await open_page()
    page = await _enter(watched, router, "live")
    for text in ("Hello", PERSONAL_TEXT):
        async with router.ask(text, stream=True) as answer:
            await answer.read()
    async with router.ask(headers={"x-isthmus-route": "cloud"}, stream=True) as answer:
        await answer.read()
    await page.get_by_text("67 % / 33 %").wait_for()
    shown = {
        "live": page.locator("[data-backend='edge-1']", has_text="41.0 °C"),
        "fleet": page.get_by_role("article", name="cloud-1"),
        "decisions": page.locator("tr.pick", has_text="privacy_requires_edge"),
        "policy": page.locator("#digest", has_text="sha256:"),
        "playground": page.get_by_label("Message"),
    }
    for view in VIEWS:
        await page.get_by_role("link", name=view.capitalize()).click()
        await shown[view].first.wait_for()
        assert await page.evaluate(UNLABELLED) == []
        await watched.picture(view)
    assert {url.split("/")[2] for url in watched.requests} == {router.url.split("/")[2]}
    assert watched.faults == []


async def test_a_device_that_grows_hot_is_seen_within_two_seconds(start_stack: StartStack, open_page: OpenPage) -> None:
    stack = await start_stack()
    watched = await open_page()
    page = await _enter(watched, stack.router, "fleet")
    card = page.get_by_role("article", name="edge-1")
    await card.get_by_text("nominal").wait_for()
    began_s = time.monotonic()
    await stack.report(temperature_c=88.5, level="hot", derate_ratio=0.6, seconds_to_throttle=7.0)
    await card.get_by_text("88.5 °C").wait_for(timeout=2_000)
    await card.get_by_text("hot", exact=True).wait_for(timeout=2_000)
    assert time.monotonic() - began_s < 2 + 2  # the promise, and what a busy machine takes to look
    await watched.picture("fleet-hot")
    assert watched.faults == []


async def test_markup_in_names_stays_text(start_stack: StartStack, cloud: Upstream, open_page: OpenPage) -> None:
    named = SCRIPT.replace(" ", "/")
    clouds = [{"id": "cloud-1", "url": cloud.url, "models": [{"id": named}]}]
    stack = await start_stack(clouds=clouds, aliases={MODEL: named})
    router = stack.router
    await stack.report(models=(ServedModel(model_id=SCRIPT, context_tokens=2048),), speculation=SCRIPT[:60])
    async with router.ask(headers={"x-request-id": "<script>alert(1)</script>"}) as answer:
        await answer.read()
    watched = await open_page()
    page = await _enter(watched, router, "fleet")
    await page.get_by_text("<script>").first.wait_for()
    for view in VIEWS:
        await page.goto(f"{router.url}/console/#/{view}")
        await page.get_by_role("heading", level=1, name=view.capitalize()).wait_for()
        if view == "decisions":
            await page.get_by_role("button", name="Explain").first.click()
            await page.get_by_text("<script>alert(1)</script>").wait_for()
        assert "owned" not in await page.title()
        assert await page.locator("main script, main img, dialog script").count() == 0
    await watched.picture("markup")
    assert watched.faults == []


async def test_a_decision_is_explained_and_corrected_in_two_clicks(
    start_stack: StartStack, edge: Upstream, open_page: OpenPage
) -> None:
    router = (await start_stack(keys=KEYS)).router
    async with router.ask(PERSONAL_TEXT) as answer:
        await answer.read()
    watched = await open_page()
    page = await _enter(watched, router, "decisions", ADMIN)
    await page.locator("tr.pick").first.click()
    dialog = page.get_by_role("dialog", name="Why it went there")
    await dialog.get_by_text("It must stay on the edge.").wait_for()
    await dialog.get_by_text("no: privacy").wait_for()
    await dialog.get_by_text("messages[0].content").wait_for()
    assert "4111 1111" not in await page.content()
    await watched.picture("decision")
    await dialog.get_by_label("The class should have been").select_option("public")
    await dialog.get_by_role("button", name="Keep this correction").click()
    await dialog.get_by_text("personal should have been public").wait_for()
    await page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")
    await page.locator("select[name=class]").select_option("secret")
    await page.get_by_text("No request is like that.").wait_for()
    assert watched.faults == []


async def test_a_reader_sees_all_and_changes_nothing(start_stack: StartStack, open_page: OpenPage) -> None:
    router = (await start_stack(keys=KEYS)).router
    watched = await open_page()
    page = await _enter(watched, router, "fleet", READER)
    card = page.get_by_role("article", name="edge-1")
    assert await card.get_by_role("button", name="Drain").is_disabled()
    assert await page.get_by_role("button", name="Invite a device").is_disabled()
    assert await page.evaluate("document.cookie") == ""
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("API key").fill("isk-wrong")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("alert").get_by_text("not known").wait_for()


async def test_an_administrator_drains_and_uses_again(start_stack: StartStack, open_page: OpenPage) -> None:
    router = (await start_stack()).router
    watched = await open_page()
    page = await _enter(watched, router, "fleet")
    card = page.get_by_role("article", name="edge-1")
    await card.get_by_role("button", name="Drain").click()
    await card.get_by_text("draining").wait_for()
    async with router.ask() as answer:
        assert answer.headers["x-isthmus-tier"] == "cloud"
    await card.get_by_role("button", name="Use again").click()
    await card.get_by_text("ready").wait_for()
    await page.get_by_role("button", name="Invite a device").click()
    await page.get_by_role("dialog").get_by_text("isthmus edge join").wait_for()
    assert watched.faults == []


async def test_the_playground_says_where_an_answer_came_from_and_why(
    start_stack: StartStack, edge: Upstream, cloud: Upstream, open_page: OpenPage
) -> None:
    router = (await start_stack(keys=KEYS)).router
    watched = await open_page()
    page = await _enter(watched, router, "playground", ADMIN)
    await page.get_by_label("Message").fill("What is the capital of France?")
    await page.keyboard.press("Enter")
    answer = page.locator(".said.assistant").first
    await answer.get_by_text("Paris.").wait_for()
    await answer.get_by_text("preferred_tier").wait_for()
    await page.get_by_label("route").select_option("cloud")
    await page.get_by_label("Message").fill(PERSONAL_TEXT)
    await page.get_by_role("button", name="Send").click()
    refused = page.locator(".said.assistant").nth(1)
    await refused.get_by_text("privacy_unavailable").wait_for()
    await refused.get_by_role("button", name="Why?").click()
    await page.get_by_role("dialog").get_by_text("It must stay on the edge.").wait_for()
    await watched.picture("playground-why")
    assert len(cloud.exchanges) == 0


async def test_a_text_is_tried_without_being_sent(
    start_stack: StartStack, edge: Upstream, cloud: Upstream, open_page: OpenPage
) -> None:
    router = (await start_stack()).router
    watched = await open_page(scheme="dark")
    page = await _enter(watched, router, "policy")
    await page.get_by_label("What a user would write").fill(PERSONAL_TEXT)
    await page.get_by_role("button", name="What would happen?").click()
    verdict = page.locator("#verdict")
    await verdict.get_by_text("It must stay on the edge.").wait_for()
    await watched.picture("policy-dark")
    assert edge.exchanges == cloud.exchanges == []
    assert watched.faults == []


async def test_the_keyboard_reaches_everything(start_stack: StartStack, open_page: OpenPage) -> None:
    router = (await start_stack()).router
    async with router.ask() as answer:
        await answer.read()
    watched = await open_page()
    page = await _enter(watched, router, "live")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
    for name in ("Live", "Fleet", "Decisions"):
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == name
    await page.keyboard.press("Enter")
    await page.locator("tr.pick").first.wait_for()
    reached = ""
    for _ in range(20):
        await page.keyboard.press("Tab")
        reached = await page.evaluate("document.activeElement.getAttribute('aria-label') ?? ''")
        if reached.startswith("Explain"):
            break
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog", name="Why it went there").wait_for()
    await page.keyboard.press("Escape")
    assert (await page.evaluate("document.activeElement.getAttribute('aria-label')")) == reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_needs_no_sideways_scrolling(start_stack: StartStack, open_page: OpenPage, scheme: str) -> None:
    router = (await start_stack()).router
    async with router.ask(stream=True) as answer:
        await answer.read()
    watched = await open_page(width=390, scheme=scheme)
    for view in VIEWS:
        page = await _enter(watched, router, view)
        await asyncio.sleep(0.3)
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        await watched.picture(f"phone-{scheme}-{view}")
    assert watched.faults == []


async def test_a_router_that_comes_back_is_followed_again(start_stack: StartStack, open_page: OpenPage) -> None:
    router = (await start_stack()).router
    watched = await open_page()
    page = await _enter(watched, router, "live")
    await page.locator("#link", has_text="live").wait_for()
    router.router.lifecycle.draining = True  # ends every stream, as at a shutdown
    await page.locator("#link", has_text="reconnecting").wait_for()
    router.router.lifecycle.draining = False
    await page.locator("#link", has_text="live").wait_for()
