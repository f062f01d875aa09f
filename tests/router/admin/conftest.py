"""A real Chromium, one for all tests of the console, and pages in it that note whatever goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_STARTED = re.compile(rb"DevTools listening on (ws://\S+)")


@pytest.fixture(scope="session")
def browser_address() -> Iterator[str]:
    """Where the browser is spoken to (Chrome DevTools Protocol)."""
    pytest.importorskip("playwright.async_api", reason="the package playwright is not installed; see make test-console")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine; see make test-console")
    with tempfile.TemporaryDirectory() as profile:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        options = ["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", *sandbox]
        browser = subprocess.Popen(
            [found, *options, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": profile},
        )
        assert browser.stderr is not None
        address = next((told[1].decode() for line in browser.stderr if (told := _STARTED.search(line))), None)
        assert address is not None, "the browser did not start"
        yield address
        browser.terminate()
        browser.wait(10)
        browser.stderr.close()


class Watched:
    """A page, and what the browser complained about or fetched from elsewhere."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page = page
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._folder = folder
        page.on("console", lambda said: self.faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    async def picture(self, name: str) -> None:
        """Keep how the page looks, to be looked at."""
        self._folder.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=self._folder / f"{name}.png", full_page=True)


OpenPage = Callable[..., Awaitable[Watched]]


@pytest.fixture
async def open_page(browser_address: str, request: pytest.FixtureRequest) -> AsyncIterator[OpenPage]:
    """Open pages, each in a context of its own; `scheme` is light or dark."""
    from playwright.async_api import async_playwright

    folder = request.config.rootpath / "build" / "console"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(browser_address)
        contexts = []

        async def open_(*, width: int = 1280, scheme: str = "light") -> Watched:
            context = await browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
            contexts.append(context)
            context.set_default_timeout(15_000)
            return Watched(await context.new_page(), folder)

        yield open_
        for context in contexts:
            await context.close()
        await browser.close()
