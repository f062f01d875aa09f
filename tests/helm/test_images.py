"""The images that the chart runs: linted, without root, without a moving base, and what the chart says about them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helm.manifests import CHART, Rendered, default_values, read

ROOT = CHART.parents[1]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))

by_name = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name.partition(".")[0])


def _instructions(path: Path) -> list[tuple[str, str]]:
    """Instruction and arguments of each step, comments dropped and continued lines joined."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


def _arguments(path: Path, name: str) -> list[str]:
    return [arguments for instruction, arguments in _instructions(path) if instruction == name]


def test_there_is_an_image_for_each_tier() -> None:
    assert [path.name for path in DOCKERFILES] == ["cloud.Dockerfile", "edge.Dockerfile", "router.Dockerfile"]


@by_name
def test_hadolint_has_nothing_to_say(hadolint: Path, path: Path) -> None:
    done = subprocess.run(
        [str(hadolint), "--no-color", str(path)], capture_output=True, check=False, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@by_name
def test_bases_are_arguments_with_a_fixed_default(path: Path) -> None:
    """No registry host: the builder's own default or mirror serves; no `latest`: a rebuild must not change the base."""
    defaults = dict(argument.split("=", 1) for argument in _arguments(path, "ARG") if "=" in argument)
    base = defaults["PYTHON_IMAGE"]
    assert re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[a-z-]+", base), "name and full version, no host"
    assert defaults["PYTHON_DIGEST"] == "", "a placeholder: who builds says which bytes"
    pinned = "${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}"
    stages: set[str] = set()
    for source in _arguments(path, "FROM"):
        image, *named = source.split()
        assert image == pinned or image in stages or image == "packages-${ACCELERATOR}", source
        stages |= {named[1]} if named else set()
    assert "latest" not in path.read_text("utf-8")


@by_name
def test_the_last_stage_is_small_and_runs_without_root(path: Path) -> None:
    steps = _instructions(path)
    last = steps[max(number for number, (name, _) in enumerate(steps) if name == "FROM") :]
    assert [arguments for name, arguments in last if name == "USER"] == ["10001:10001"]
    copies = [arguments for name, arguments in last if name == "COPY"]
    assert copies and all(copy.startswith("--from=") for copy in copies), "no source tree in the image"
    assert not any("pip install" in arguments for _, arguments in last)
    (labels,) = (arguments for name, arguments in last if name == "LABEL")
    assert 'isthmus.dev/sbom="/usr/local/share/isthmus/packages.json"' in labels, "where the list of packages lies"
    assert 'org.opencontainers.image.base.digest="${PYTHON_DIGEST}"' in labels


@by_name
def test_any_user_of_group_0_can_write_where_the_program_writes(path: Path) -> None:
    """OpenShift chooses the user; it is in no user database, so that HOME would be `/`."""
    (made,) = (step for step in _arguments(path, "RUN") if "useradd" in step)
    home = re.search(r"--home-dir (\S+)", made)
    assert home and re.search(rf"chgrp (-R )?0 {home[1]} ", made) and re.search(rf"chmod (-R )?g=u {home[1]}", made)
    assert any(f"HOME={home[1]}" in variables.split() for variables in _arguments(path, "ENV"))


@by_name
def test_every_file_that_is_copied_exists_and_is_sent_to_the_builder(path: Path) -> None:
    ignore = Path(f"{path}.dockerignore").read_text("utf-8").splitlines()
    sent = {line.removeprefix("!").rstrip("/") for line in ignore if line.startswith("!")}
    assert "*" in ignore
    for copy in _arguments(path, "COPY"):
        if not copy.startswith("--from="):
            for source in copy.split()[:-1]:
                assert source.split("/")[0] in sent
                assert (ROOT / source).exists(), source


def test_the_chart_runs_these_images(of_ci: Callable[[str], Rendered]) -> None:
    """Names, user and versions on both sides."""
    values = default_values()
    version = read(CHART / "Chart.yaml")["appVersion"]
    for tier in ("router", "cloud"):
        path = ROOT / "docker" / f"{tier}.Dockerfile"
        assert values[tier]["image"]["repository"] == f"isthmus-{tier}"
        assert f"VERSION={version}" in _arguments(path, "ARG")
        assert f"-t isthmus-{tier}:{version}" in path.read_text("utf-8")
    uids = {t["spec"]["securityContext"]["runAsUser"] for _, t in of_ci("small-cpu").pod_templates()}
    assert uids == {10001}
    assert f"RAY_VERSION={values['cloud']['ray']['version']}" in _arguments(ROOT / "docker" / "cloud.Dockerfile", "ARG")


def test_versions_are_those_of_the_distribution() -> None:
    """Chart, images and Python package are one release; Ray in the chart is the Ray that is installed."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    chart = read(CHART / "Chart.yaml")
    assert f'version = "{chart["appVersion"]}"' in project
    assert f"ray[serve]=={default_values()['cloud']['ray']['version']}" in project


def test_operators_tools_are_in_the_cloud_image() -> None:
    """KubeRay's probe of workers is `bash -c "wget …"`."""
    installed = next(step for step in _arguments(ROOT / "docker" / "cloud.Dockerfile", "RUN") if "apt-get" in step)
    assert {"ca-certificates", "wget", "g++", "libgomp1"} <= set(installed.split())
