"""Which optional parts of the distribution are installed, read from the distribution's own metadata."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

DISTRIBUTION = "isthmus"
COMMAND_GROUP = "isthmus.commands"
"""Entry points by which tiers and others contribute sub-commands."""
ENGINES = {"edge": "xllamacpp", "router": "google-re2", "cloud": "ray", "loadtest": "locust"}
"""The requirement of each extra that tells whether the extra was meant to be here: what the tier is built on. Its
other requirements are often present for another reason."""
TIER_EXTRAS = tuple(ENGINES)
FEATURES = {"otel": "opentelemetry-exporter-otlp-proto-http"}
"""Extras that any tier takes beside its own, and the requirement that tells whether one was meant to be here."""
SHORT_COMMANDS = {"chat": "router", "run": "router", "pull": "edge", "list": "edge", "ps": "edge", "rm": "edge"}
"""Commands that stand beside the tiers, and the tier that each belongs to."""


@dataclass(frozen=True, slots=True)
class Installed:
    """One requirement and the version found here; `version` is None when it is absent."""

    requirement: str
    name: str
    version: str | None
    fits: bool


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra and its requirements."""

    name: str
    requirements: tuple[Installed, ...]

    @property
    def is_installed(self) -> bool:
        """Whether this tier, or this feature, was meant to be here."""
        told_by = (ENGINES | FEATURES)[self.name]
        return any(each.name == told_by and each.version is not None for each in self.requirements)

    @property
    def missing(self) -> tuple[Installed, ...]:
        """Requirements that are absent or of another version."""
        return tuple(each for each in self.requirements if not each.fits)

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        if self.name == "cloud":  # the engine is no requirement that pip could resolve
            return f"pip install --no-deps -r {cloud_list()}"
        return f"pip install '{DISTRIBUTION}[{self.name}]'"


def cloud_list() -> Path:
    """The pinned list of the cloud tier for machines without GPU: of the checkout, else as the wheel brought it."""
    checkout = Path(__file__).parents[1] / "requirements" / "cloud-cpu.txt"
    installed = Path(sysconfig.get_path("data")) / "share" / DISTRIBUTION / "cloud-cpu.txt"
    return checkout if checkout.is_file() else installed


def extra_of(name: str) -> Extra:
    """The extra `name`; without requirements when the distribution is not installed or does not have it."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        declared = []
    parsed = (Requirement(text) for text in declared)
    return Extra(name, tuple(_installed(each) for each in parsed if _belongs(each, name)))


def core() -> Extra:
    """What every part needs, as an extra without a name."""
    return extra_of("")


def _belongs(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    if marker is None:
        return extra == ""
    if extra == "":
        return marker.evaluate({"extra": ""})
    return marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _installed(requirement: Requirement) -> Installed:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    stated = f"{requirement.name}{extras}{requirement.specifier}"
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Installed(stated, requirement.name, None, fits=False)
    fits = requirement.specifier.contains(version, prereleases=True)
    return Installed(stated, requirement.name, version, fits=fits)
