"""Seeded requests: the same bytes for the same seed, lengths as stated, canaries that the scanner must find."""

from __future__ import annotations

import random
import statistics

import orjson
import pytest
from pydantic import ValidationError

from loadtests.workload.arrivals import Shape, due_times, level
from loadtests.workload.canaries import check_digit, leaked_bytes, marker_of
from loadtests.workload.lengths import Lengths
from loadtests.workload.requests import Workload
from loadtests.workload.scenario import Kind, read_scenario, shipped
from router.privacy.scanner import Scanner
from shared.errors import SettingsError
from shared.openai.facts import Endpoint
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass

MARKER = marker_of(1, "a")


def workload(name: str = "mixed", seed: int = 1) -> Workload:
    return Workload(read_scenario(name), model="small", adapters=("small:a", "small:b"), marker=MARKER, seed=seed)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    first = [workload().request(number) for number in range(50)]
    assert first == [workload().request(number) for number in range(50)]
    assert len({planned.body for planned in first}) == 50
    assert first[0].body != workload(seed=2).request(0).body


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_scenario_builds_requests_of_its_kinds(name: str) -> None:
    scenario, built = read_scenario(name), workload(name)
    planned = [built.request(number) for number in range(200)]
    assert {each.kind for each in planned} == {kind for kind, weight in scenario.mix.items() if weight}
    for each in planned:
        body = orjson.loads(each.body)
        assert Endpoint(each.path)
        assert body["model"].startswith("small")
        assert each.streamed is body.get("stream", False)
        assert each.canary is None or each.canary.encode() in each.body
    share = sum(each.canary is not None for each in planned) / len(planned)
    assert 0 < share < 0.75


def test_kinds_have_the_shape_of_their_route() -> None:
    built = workload()
    agent = orjson.loads(built.request(3, Kind.AGENT).body)
    assert [message["role"] for message in agent["messages"]][:3] == ["user", "assistant", "tool"]
    assert agent["tools"]
    assert orjson.loads(built.request(3, Kind.COMPLETIONS).body)["prompt"]
    assert orjson.loads(built.request(3, Kind.EMBEDDINGS).body)["input"]
    assert orjson.loads(built.request(3, Kind.ADAPTERS).body)["model"] in ("small:a", "small:b")
    assert len(built.request(3, Kind.RAG).body) > 3 * len(built.request(3, Kind.CHAT).body)
    assert built.request(3, Kind.PRIVACY).canary


def test_lengths_follow_their_stated_distribution() -> None:
    lengths = Lengths(median=100, sigma=0.5, least=20, most=400)
    drawn = [lengths.draw(random.Random(number)) for number in range(4_000)]
    assert statistics.median(drawn) == pytest.approx(100, rel=0.05)
    assert min(drawn) >= 20
    assert max(drawn) <= 400
    assert Lengths(median=7).draw(random.Random(1)) == 7


@pytest.mark.parametrize(
    "bad", [{"median": 0}, {"median": 5, "least": 6}, {"median": float("nan")}, {"median": 1, "x": 1}]
)
def test_a_distribution_that_cannot_be_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Lengths(**bad)  # type: ignore[arg-type]


def test_canaries_differ_are_valid_and_are_found_however_they_are_written() -> None:
    canaries = [MARKER.canary(random.Random(number)) for number in range(40)]
    assert len(set(canaries)) == 40
    assert {"@" in canary for canary in canaries} == {True, False}
    for canary in canaries:
        assert leaked_bytes(f"so {canary}.".encode(), MARKER) >= 10
        assert leaked_bytes(canary.upper().replace(" ", "-").encode(), MARKER) >= 10
        assert leaked_bytes(canary.encode(), marker_of(1, "b")) == 0
        if "@" not in canary:
            digits = canary.replace(" ", "")
            assert len(digits) == 16
            assert check_digit(digits[:-1]) == digits[-1]
    assert leaked_bytes(b"4111 1111 1111 1111 someone@example.com", MARKER) == 0


def test_the_scanner_finds_every_canary_and_nothing_personal_in_the_rest() -> None:
    """A canary that the scanner does not know would be a leak of the load test's own making."""
    scanner = Scanner()
    for number in range(60):
        planned = workload("privacy").request(number)
        found = scanner.scan([TextPosition("t", planned.body.decode())])
        assert (found.privacy_class is not PrivacyClass.PUBLIC) is (planned.canary is not None), number


@pytest.mark.parametrize("shape", Shape)
def test_a_level_is_above_nothing_and_at_most_all(shape: Shape) -> None:
    levels = [level(shape, part / 100) for part in range(-5, 106)]
    assert min(levels) > 0
    assert max(levels) == pytest.approx(1.0)


def test_the_moments_of_an_open_loop_are_seeded_and_follow_the_shape() -> None:
    spike = list(due_times(Shape.SPIKE, rate_per_s=200, duration_s=100, seed=1))
    assert spike == list(due_times(Shape.SPIKE, rate_per_s=200, duration_s=100, seed=1))
    assert spike != list(due_times(Shape.SPIKE, rate_per_s=200, duration_s=100, seed=2))
    within = sum(40 <= at_s < 50 for at_s in spike)
    assert within == pytest.approx(2_000, rel=0.1)
    assert len(spike) - within == pytest.approx(200 * 0.25 * 90, rel=0.1)
    assert spike == sorted(spike)
    constant = list(due_times(Shape.CONSTANT, rate_per_s=50, duration_s=100, seed=1))
    assert len(constant) == pytest.approx(5_000, rel=0.06)


@pytest.mark.parametrize(
    "text",
    [
        "mix: {}",
        "mix: {chat: 0}",
        "mix: {chat: -1, rag: 2}",
        "mix: {poetry: 1}",
        "a: 1",
        "- 1",
        "mix: {chat: .nan}",
        "{",
    ],
)
def test_a_scenario_file_that_says_nothing_is_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("scenario") / "own.yaml"
    path.write_text(f"about: own\n{text}\n")
    with pytest.raises(SettingsError):
        read_scenario(str(path))
