"""A settings file says what it says once, and is a mapping or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from router.settings import RouterSettings
from shared.errors import SettingsError
from shared.settings import load
from shared.strict_yaml import strict_yaml


@pytest.mark.parametrize("text", ["a: 1\na: 2", "a: {b: 1, c: 2, b: 1}", "- {x: 1, x: 2}"])
def test_a_name_that_stands_twice_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="stands twice"):
        strict_yaml(text)


@pytest.mark.parametrize("text", ["2026-13-45", "[" * 9000, "!!int abc", "!!float x", "!!timestamp x", "!!bool x"])
def test_what_cannot_be_read_is_no_yaml(text: str, tmp_path: Path) -> None:
    """A day that is none, a number of letters, blocks without end: an error of the file, not of the program."""
    path = tmp_path / "isthmus.yaml"
    path.write_text(f"router:\n  host: {text}\n")
    with pytest.raises(yaml.YAMLError):
        strict_yaml(path.read_text())
    with pytest.raises(SettingsError, match="cannot be read as YAML"):
        load(RouterSettings, "router", path)


def test_the_same_name_in_two_places_is_no_repetition() -> None:
    assert strict_yaml("a: {x: 1}\nb: {x: 2}") == {"a": {"x": 1}, "b": {"x": 2}}
    assert strict_yaml("# nothing") is None


def test_a_repeated_block_of_the_settings_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text("router:\n  policy: {mode: only_edge}\n  policy: {mode: only_cloud}\n")
    with pytest.raises(SettingsError, match=r"line 3\).*policy stands twice"):
        load(RouterSettings, "router", path)


@pytest.mark.parametrize("text", ["[]", "0", "false", "router: []", "router: 0", "router: ''", "router: false"])
def test_what_is_no_mapping_is_refused_also_when_it_is_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match="must be a mapping"):
        load(RouterSettings, "router", path)


@pytest.mark.parametrize("text", ["", "# only a comment", "router:", "edge: {}"])
def test_nothing_said_means_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "isthmus.yaml"
    path.write_text(text)
    assert load(RouterSettings, "router", path) == load(RouterSettings, "router")
