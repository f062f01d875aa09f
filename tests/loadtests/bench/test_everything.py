"""The page of benchmarks: what failed, what is not possible here and what never ran stand on it with their reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from loadtests.bench import catalogue, everything
from loadtests.bench.catalogue import BENCHES, Bench
from loadtests.bench.everything import run_bench
from loadtests.bench.findings import DONE, FAILED, MISSING, Finding, keep, kept
from loadtests.bench.page import page_of, ratios_of
from shared.settings import HOME_VARIABLE

_PLAIN = Bench("A plain one.")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    return tmp_path


def finding(name: str, state: str = DONE, **changes: object) -> Finding:
    """One that went well, but for `changes`."""
    values: dict[str, object] = {
        "name": name,
        "began": "2026-01-02T03:04+00:00",
        "took_s": 12.3,
        "state": state,
        "reason": None,
        "printed": '{"agent_to_bare": {"token_ratio": 1.02}, "rounds": 3, "cpu_share": 0.5, "within": true}',
        "quick": False,
        "load": (0.1, 0.2, 0.3),
        "version": "0",
    } | changes
    return Finding(**values)  # type: ignore[arg-type]


def test_every_benchmark_is_in_the_catalogue_and_takes_its_short_arguments() -> None:
    """A module of the folder that measures something and is left out would never be run by `make bench`."""
    folder = Path(catalogue.__file__).parent
    servants = {"agent", "catalogue", "everything", "findings", "instant", "page", "process", "proxy_floor", "routed"}
    servants |= {"scanner_corpus", "scanner_numbers", "wire_backend", "wire_client", "__init__"}
    assert {path.stem for path in folder.glob("*.py")} - servants == set(BENCHES)
    for name, bench in BENCHES.items():
        text = (folder / f"{name}.py").read_text()
        for option in bench.short:
            word = option.removeprefix("--")
            assert not option.startswith("--") or word in text or word.replace("-", "_") in text, (name, option)


def test_one_that_fails_is_kept_with_its_code_and_last_words() -> None:
    found = run_bench("instant", Bench("x", short=("--no-such-option",)), quick=True)
    assert (found.state, found.reason) == (FAILED, "it ended with code 2")
    assert "no-such-option" in found.printed
    assert str(Path.cwd()) not in found.printed


def test_one_that_does_not_end_is_ended_with_what_it_started() -> None:
    found = run_bench("instant", _PLAIN, quick=False, limit_s=1.0)
    assert (found.state, found.reason) == (FAILED, "it did not end within 1 s")


def test_one_that_needs_what_is_not_here_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "NEEDS", {"redis": lambda: "redis-server is not installed"})
    found = run_bench("no_such_module", Bench("x", needs=("redis",)), quick=False)
    assert (found.state, found.reason) == (MISSING, "redis-server is not installed")


def test_the_page_names_every_state_and_what_was_kept_before() -> None:
    benches = dict.fromkeys(("good", "bad", "lacking", "short", "never"), _PLAIN)
    keep(finding("good"))
    keep(finding("bad", FAILED, reason="it ended with code 7", printed="Traceback: ```boom```"))
    keep(finding("lacking", MISSING, reason="redis-server is not installed", printed=""))
    keep(finding("short", quick=True))
    page = page_of(benches, kept)
    assert (
        "| [good](#good) | done | 2026-01-02 03:04 | 12 | 0.1, 0.2, 0.3 | "
        "agent_to_bare.token_ratio 1.02; cpu_share 0.5 |" in page
    )
    assert "| [bad](#bad) | failed: it ended with code 7 |" in page
    assert "**Not possible here**: redis-server is not installed." in page
    assert "done, cut short" in page
    assert "Not run on this machine: `python -m loadtests.bench.never`." in page
    assert page.count("```text") == page.count("\n```\n"), "what a benchmark prints ends no block"


def test_what_is_fresh_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[str] = []

    def run(name: str, bench: Bench, *, quick: bool) -> Finding:
        ran.append(name)
        return finding(name, began="2026-01-02T03:04+00:00")

    monkeypatch.setattr(everything, "run_bench", run)
    page = tmp_path / "page.md"
    keep(finding("decide"))
    keep(finding("scanner", quick=True))
    keep(finding("audit", FAILED, reason="x"))
    with pytest.raises(typer.Exit) as ended:
        everything.main(page, ["decide", "scanner", "audit"], fresh_h=10**6)
    assert ended.value.exit_code == 0
    assert ran == ["scanner", "audit"]
    assert "| [decide](#decide) | done |" in page.read_text()


def test_ratios_are_those_that_say_so() -> None:
    printed = '{"a": {"x_to_y": 2, "ms": 5}, "cpu_ratio": 0.25, "flag_ratio": true}'
    assert ratios_of(printed) == [("a.x_to_y", 2), ("cpu_ratio", 0.25)]
    assert ratios_of("requests a second: 5") == []
