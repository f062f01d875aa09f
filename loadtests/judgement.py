"""Judges a good answer by who gave it: personal data that the cloud answered, and a tier that nobody asked for."""

from __future__ import annotations

from dataclasses import replace

from loadtests.streaming import Failure, Outcome


def judged(outcome: Outcome, *, canary: bool, route: str | None, masked: bool = False) -> Outcome:
    """The outcome, failed if the answering tier must not have seen the prompt, or is not the one asked for.

    `canary` says that the prompt holds personal data, `masked` that policy lets it travel masked. A privacy violation
    outweighs whatever else went wrong: the bytes have left.
    """
    if canary and not masked and outcome.tier == "cloud":
        return replace(outcome, failure=Failure.PRIVACY_VIOLATION)
    if outcome.failure is None and route in ("edge", "cloud") and outcome.tier not in (None, route):
        return replace(outcome, failure=Failure.WRONG_TIER)
    return outcome
