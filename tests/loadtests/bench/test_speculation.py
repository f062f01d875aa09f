"""How the benchmark of speculation judges the controller from gains that are noisy."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests.bench import speculation


def judged(chosen: str, *, simple: list[float], other: list[float], accepted: float | None = 0.5) -> dict[str, Any]:
    return speculation._judged(
        {
            "chosen": chosen,
            "rounds": {"ngram_simple": simple, "ngram_map_k": other},
            "acceptance": {"ngram_simple": accepted, "ngram_map_k": accepted},
        }
    )


def test_the_best_of_all_modes_is_what_the_controller_is_held_against() -> None:
    found = judged("off", simple=[1.2, 1.3, 1.25], other=[1.0, 1.1, 1.0])
    assert (found["best"], found["controller_to_best"], found["within"]) == ("ngram_simple", 0.8, False)
    found = judged("ngram_simple", simple=[2.0, 2.2, 2.1], other=[1.4, 1.5, 1.5])
    assert (found["best"], found["controller_to_best"], found["within"]) == ("ngram_simple", 1.0, True)
    assert found["controller_to_plain"] == 2.1


def test_a_choice_worse_than_plain_decoding_is_found_out() -> None:
    found = judged("ngram_simple", simple=[0.9, 0.92, 0.91], other=[0.8, 0.8, 0.8])
    assert (found["best"], found["within"]) == ("off", False)


@pytest.mark.parametrize(("gains", "contradicted"), [([0.99, 1.054, 1.1], True), ([1.04, 1.054, 1.1], False)])
def test_a_gain_that_a_round_contradicts_is_said_to_be_so_and_counts_all_the_same(
    gains: list[float], contradicted: bool
) -> None:
    found = judged("off", simple=[0.9, 0.9, 0.9], other=gains)
    assert (found["controller_to_best"], found["contradicted"], found["within"]) == (0.949, contradicted, False)


def test_a_mode_that_proposed_nothing_shows_the_noise_and_is_no_rival() -> None:
    found = judged("off", simple=[1.1, 1.1, 1.1], other=[0.95, 1.0, 1.02], accepted=None)
    assert (found["best"], found["within"], found["noise_ratio"]) == ("off", True, 0.1)
