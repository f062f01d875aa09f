"""Recognisers from elsewhere: their contract, and that none of them reaches the network or another process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest

from router.privacy.classify import Classifier
from router.privacy.offline import NetworkUsed, OfflineGuard
from router.privacy.plugins import libraries, own
from router.privacy.plugins.libraries import GlinerPlugin, PresidioPlugin, SpacyPlugin
from router.privacy.plugins.model import Finding, GuardedPlugin
from router.privacy.scanner import Scanner
from shared.clock import SystemClock
from shared.errors import SettingsError
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass
from tests.router.privacy.specimens import FOUND, NOTHING


@pytest.fixture(scope="module")
def guard() -> OfflineGuard:
    return OfflineGuard()


class _Names:
    """Finds one name."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._name = str(options.get("name", "Ada Lovelace"))

    def find(self, text: str) -> Iterable[Finding]:
        at = text.find(self._name)
        return [Finding("person", at, at + len(self._name), 0.9)] if at >= 0 else []


class _Does:
    """Runs something instead of reading."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action

    def find(self, text: str) -> Iterable[Finding]:
        self._action()
        return []


def _guarded(plugin: Any, guard: OfflineGuard, **values: Any) -> GuardedPlugin:
    settings: dict[str, Any] = {"classes": {}, "otherwise": PrivacyClass.PERSONAL, "least_score": 0.5, **values}
    return GuardedPlugin(plugin, guard, **settings)


def test_findings_become_entities_with_their_score(guard: OfflineGuard) -> None:
    scanner = Scanner([], plugins=[_guarded(_Names({}), guard, classes={"person": PrivacyClass.SECRET})])
    [entity] = scanner.scan([TextPosition("t", "by Ada Lovelace")]).entities
    assert (entity.kind, entity.start, entity.end, entity.score) == ("person", 3, 15, 0.9)
    assert scanner.scan([TextPosition("t", "by Ada Lovelace")]).privacy_class is PrivacyClass.SECRET
    for values in ({"least_score": 0.95}, {"otherwise": None}):
        quiet = Scanner([], plugins=[_guarded(_Names({}), guard, **values)])
        assert quiet.scan([TextPosition("t", "by Ada Lovelace")]).entities == ()


async def test_pi_11_a_plugin_that_fails_or_lies_makes_the_body_unknown(guard: OfflineGuard) -> None:
    def fails() -> None:
        raise RuntimeError("Ada Lovelace")

    lies = SimpleNamespace(find=lambda text: [Finding("person", 0, len(text) + 1, 1.0)])
    for plugin in (_Does(fails), lies):
        classifier = Classifier(Scanner([], plugins=[_guarded(plugin, guard)]), SystemClock(), timeout_s=5, workers=1)
        found = await classifier.classify({"messages": [{"role": "user", "content": "x"}]}, size_bytes=10)
        classifier.close()
        assert (found.privacy_class, found.cause) == (PrivacyClass.UNKNOWN, "error")


_REACHES: dict[str, Callable[[int], Any]] = {
    "connect": lambda port: socket.create_connection(("127.0.0.1", port), timeout=1),
    "send": lambda port: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)),
    "name": lambda port: socket.getaddrinfo("localhost", port),
    "process": lambda port: subprocess.run([sys.executable, "-c", "pass"], check=False),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("way", _REACHES)
def test_a_plugin_that_reaches_for_the_network_is_stopped_before_it_does(guard: OfflineGuard, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        with pytest.raises(NetworkUsed):
            list(_guarded(_Does(lambda: _REACHES[way](port)), guard).read("text", lambda: None))
        with pytest.raises(TimeoutError):
            server.accept()
        # The same thread may again once it reads no more.
        socket.create_connection(("127.0.0.1", port), timeout=1).close()


_PROOF = """
import json
import sys
used = []
def hook(event, args):
    processes = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn")
    if event.startswith("socket.") or event in processes:
        used.append(event)
        raise RuntimeError(event)
sys.addaudithook(hook)
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition
scanner = Scanner()
kinds = set()
for text in json.load(sys.stdin):
    found = scanner.scan([TextPosition("t", text)])
    assert found.complete
    kinds |= found.kinds
assert used == [], used
print(len(kinds))
"""


def test_no_built_in_recogniser_uses_the_network() -> None:
    """In a process in which each use of a socket and each new process raises, the recognisers work."""
    texts = json.dumps([entry[1] for entry in (*FOUND, *NOTHING)])
    done = subprocess.run(
        [sys.executable, "-c", _PROOF], input=texts, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert int(done.stdout) > 80


def _offer(monkeypatch: pytest.MonkeyPatch, name: str, target: Any) -> None:
    point = SimpleNamespace(name=name, load=lambda: target)
    monkeypatch.setattr(own, "entry_points", lambda group: [point])


def _load(guard: OfflineGuard, plugin: str, **options: Any) -> GuardedPlugin:
    return own.load_plugin(plugin, options, guard, classes={}, otherwise=PrivacyClass.PERSONAL, least_score=0.5)


def test_plugins_come_from_entry_points(guard: OfflineGuard, monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, "names", _Names)
    plugin = _load(guard, "names", name="Grace")
    assert [f.kind for f, _ in plugin.read("Grace", lambda: None)] == ["person"]
    with pytest.raises(SettingsError, match="Did you mean names"):
        _load(guard, "name")


@pytest.mark.parametrize("fault", ["network", "error"])
def test_a_plugin_that_cannot_be_built_is_one_clear_line(
    guard: OfflineGuard, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def build(options: Mapping[str, Any]) -> Any:
        if fault == "network":
            socket.getaddrinfo("localhost", 80)
        raise ValueError("4111 1111 1111 1111")

    _offer(monkeypatch, "names", build)
    with pytest.raises(SettingsError) as caught:
        _load(guard, "names")
    assert "4111" not in caught.value.message
    assert ("network" in caught.value.message) == (fault == "network")


def test_the_adapters_are_offered_by_this_distribution() -> None:
    for name in ("PresidioPlugin", "SpacyPlugin", "GlinerPlugin"):
        point = EntryPoint(name, f"router.privacy.plugins.libraries:{name}", "isthmus.recognisers")
        assert callable(point.load())


def test_adapters_read_what_the_libraries_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "by Ada Lovelace"
    presidio = SimpleNamespace(
        AnalyzerEngine=lambda: SimpleNamespace(
            analyze=lambda text, language: [SimpleNamespace(entity_type="PERSON", start=3, end=15, score=0.85)]
        )
    )
    spans = [
        SimpleNamespace(label_="PERSON", start_char=3, end_char=15),
        SimpleNamespace(label_="ORG", start_char=0, end_char=2),
    ]
    spacy = SimpleNamespace(load=lambda model: lambda text: SimpleNamespace(ents=spans))
    predicted = [{"label": "date of birth", "start": 3, "end": 15, "score": 0.7}]
    model = SimpleNamespace(predict_entities=lambda text, labels, threshold: predicted)
    gliner = SimpleNamespace(GLiNER=SimpleNamespace(from_pretrained=lambda name, local_files_only: model))
    modules = {"presidio_analyzer": presidio, "spacy": spacy, "gliner": gliner}
    monkeypatch.setattr(libraries, "_library", modules.__getitem__)
    options = {"model": "m"}
    assert list(PresidioPlugin({}).find(text)) == [Finding("person", 3, 15, 0.85)]
    assert list(SpacyPlugin(options).find(text)) == [Finding("person", 3, 15, 0.75)]
    assert list(GlinerPlugin(options).find(text)) == [Finding("date_of_birth", 3, 15, 0.7)]
    with pytest.raises(SettingsError):
        SpacyPlugin({})


def test_a_library_that_is_missing_is_named() -> None:
    with pytest.raises(SettingsError, match="no_such_library"):
        libraries._library("no_such_library")
