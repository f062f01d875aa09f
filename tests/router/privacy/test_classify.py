"""The classifier answers whatever happens to the scanner, and never calls a body clean that was not read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from router.privacy.classify import INLINE_BYTES, Classifier, TextScanner
from router.privacy.model import Classification, Entity
from router.privacy.scanner import Scanner
from shared.clock import SystemClock
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass
from shared.testing.clock import ManualClock
from tests.router.privacy.specimens import CARD

SMALL, LARGE = 100, INLINE_BYTES + 1
PUBLIC = Classification(PrivacyClass.PUBLIC, (), complete=True)
Scan = Callable[[Iterable[TextPosition], Callable[[], bool]], Any]


class _Scripted:
    """A scanner that does what a test says."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def scan(self, texts: Iterable[TextPosition], *, expired: Callable[[], bool] | None = None) -> Classification:
        assert expired is not None
        return cast("Classification", self._scan(texts, expired))


def _body(text: str = "hello") -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


@contextmanager
def _classifier(scanner: TextScanner | Scan, causes: list[str] | None = None, **options: Any) -> Iterator[Classifier]:
    port = _Scripted(scanner) if callable(scanner) else scanner
    values: dict[str, Any] = {"timeout_s": 30.0, "workers": 1, **options}
    on_incomplete = (causes if causes is not None else []).append
    clock = values.pop("clock", None) or SystemClock()
    classifier = Classifier(port, clock, on_incomplete=on_incomplete, **values)
    try:
        yield classifier
    finally:
        classifier.close()


@pytest.mark.parametrize("size_bytes", [SMALL, LARGE])
async def test_the_real_scanner_inline_and_in_the_pool(scanner: Scanner, size_bytes: int) -> None:
    causes: list[str] = []
    with _classifier(scanner, causes) as classifier:
        assert (await classifier.classify(_body(), size_bytes=size_bytes)) == PUBLIC
        found = await classifier.classify(_body(CARD), size_bytes=size_bytes)
    assert found.privacy_class is PrivacyClass.PERSONAL
    assert found.entities[0].position == "messages[0].content"
    assert causes == []


def _raises(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Any:
    raise ValueError("the text was: secret")


def _answers(value: Any) -> Scan:
    return lambda texts, expired: value


@pytest.mark.parametrize("size_bytes", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("scan", "cause"),
    [
        (_raises, "error"),
        (_answers(None), "error"),
        (_answers({"class": "public"}), "error"),
        (_answers(Classification(PrivacyClass.PUBLIC, (), complete=False)), "error"),
        (_answers(Classification(PrivacyClass.PUBLIC, (), complete=False, cause="overflow")), "overflow"),
        (_answers(Classification(PrivacyClass.PUBLIC, (), complete=True, cause="truncated")), "error"),
        (_answers(Classification(PrivacyClass.UNKNOWN, (), complete=True)), "error"),
        (_answers(Classification(PrivacyClass.PUBLIC, (), complete=False, cause="my own words")), "error"),
        (_answers(Classification(cast("PrivacyClass", "clean"), (), complete=True)), "error"),
    ],
)
async def test_pi_11_a_scanner_that_fails_or_answers_nonsense_gives_unknown(
    scan: Scan, cause: str, size_bytes: int
) -> None:
    causes: list[str] = []
    with _classifier(scan, causes) as classifier:
        found = await classifier.classify(_body(), size_bytes=size_bytes)
    assert (found.privacy_class, found.complete, found.cause) == (PrivacyClass.UNKNOWN, False, cause)
    assert causes == [cause]


async def test_pi_11_a_scan_that_hangs_times_out_and_its_worker_comes_back() -> None:
    causes: list[str] = []
    blocked = threading.Event()

    def hang(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Classification:
        blocked.wait(30)
        return PUBLIC

    with _classifier(hang, causes, timeout_s=0.05, waiting_limit=0) as classifier:
        found = await classifier.classify(_body(), size_bytes=LARGE)
        assert (found.privacy_class, found.cause) == (PrivacyClass.UNKNOWN, "timeout")
        assert (await classifier.classify(_body(), size_bytes=LARGE)).cause == "overflow"
        blocked.set()
        await _until_clean(classifier)
    assert causes[:2] == ["timeout", "overflow"]


async def _until_clean(classifier: Classifier) -> None:
    for _ in range(1_000):
        if (await classifier.classify(_body(), size_bytes=LARGE)).complete:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the worker did not come back")


async def test_pi_11_a_full_pool_gives_unknown_at_once_and_no_answer_is_lost() -> None:
    blocked = threading.Event()

    def wait(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Classification:
        blocked.wait(30)
        return PUBLIC

    with _classifier(wait, workers=2, waiting_limit=3) as classifier:
        tasks = [asyncio.create_task(classifier.classify(_body(), size_bytes=LARGE)) for _ in range(12)]
        refused, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        while len(refused) < 7:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused |= more
        blocked.set()
        served = await asyncio.gather(*waiting)
    assert [task.result().cause for task in refused] == ["overflow"] * 7
    assert served == [PUBLIC] * 5


async def test_the_scanner_is_told_when_its_time_is_over() -> None:
    clock = ManualClock()

    def scan(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Classification:
        first = expired()
        asyncio.run_coroutine_threadsafe(clock.advance(2), loop).result(30)
        return Classification(
            PrivacyClass.UNKNOWN, (), complete=False, cause="timeout" if expired() > first else "error"
        )

    loop = asyncio.get_running_loop()
    with _classifier(scan, clock=clock, timeout_s=2.0) as classifier:
        assert (await classifier.classify(_body(), size_bytes=LARGE)).cause == "timeout"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f"}},
    ],
)
async def test_pi_11_media_that_no_scanner_reads_is_unknown_and_keeps_the_findings(
    scanner: Scanner, part: dict[str, Any]
) -> None:
    causes: list[str] = []
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": CARD}, part]}]}
    with _classifier(scanner, causes) as classifier:
        found = await classifier.classify(body, size_bytes=SMALL)
    assert (found.privacy_class, found.complete, found.cause) == (PrivacyClass.UNKNOWN, False, "undecodable")
    assert Entity("card", "messages[0].content[0].text", 0, 19) in found.entities
    assert causes == ["undecodable"]


async def test_a_caller_that_leaves_is_not_answered_and_frees_its_place() -> None:
    blocked = threading.Event()

    def wait(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Classification:
        blocked.wait(30)
        return PUBLIC

    with _classifier(wait, waiting_limit=0) as classifier:
        task = asyncio.create_task(classifier.classify(_body(), size_bytes=LARGE))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        blocked.set()
        await _until_clean(classifier)


async def test_a_closed_classifier_answers_unknown() -> None:
    with _classifier(_answers(PUBLIC)) as classifier:
        pass
    assert (await classifier.classify(_body(), size_bytes=LARGE)).cause == "error"


async def test_a_body_too_deep_to_walk_is_unknown(scanner: Scanner) -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = [deep]
    with _classifier(scanner) as classifier:
        found = await classifier.classify({"messages": deep}, size_bytes=SMALL)
    assert (found.privacy_class, found.cause) == (PrivacyClass.UNKNOWN, "error")
