"""Settings: one file, the environment over it, the command line over both; a wrong name is never silent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import SettingsConfigDict

from shared.errors import SettingsError
from shared.settings import FILE_VARIABLE, SectionSettings, home, load, load_part


class Limits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    body_bytes: int = Field(10, ge=1)
    queue: int = 4


class Sample(SectionSettings, section="router"):
    port: int = Field(8080, ge=0, le=65535)
    mode: Literal["edge", "cloud"] = "edge"
    limits: Limits = Limits()
    names: dict[str, str] = Field(default_factory=dict)
    roots: tuple[str, ...] = ("/sys",)


class Part(SectionSettings, section="router"):
    model_config = SettingsConfigDict(extra="ignore")
    port: int = 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "isthmus.yaml"
    path.write_text("router:\n  port: 9000\n  limits: {body_bytes: 20, queue: 7}\nedge: {port: 1}\n")
    return path


def test_defaults_without_file_and_environment() -> None:
    assert load(Sample, "router") == Sample.model_construct()


def test_the_order_is_default_file_environment_command_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(Sample, "router", file).port == 9000
    monkeypatch.setenv("ISTHMUS__ROUTER__PORT", "9001")
    assert load(Sample, "router", file).port == 9001
    assert load(Sample, "router", file, port=9002).port == 9002
    assert load(Sample, "router", file, port=None).port == 9001


def test_one_nested_field_of_the_environment_leaves_the_others(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__ROUTER__LIMITS__BODY_BYTES", "30")
    assert load(Sample, "router", file).limits == Limits(body_bytes=30, queue=7)


def test_the_file_can_be_named_by_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    assert load(Sample, "router").port == 9000


def test_lists_and_maps_come_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__ROUTER__ROOTS", '["/a", "/b"]')
    monkeypatch.setenv("ISTHMUS__ROUTER__NAMES", '{"gpt-4": "m"}')
    settings = load(Sample, "router")
    assert settings.roots == ("/a", "/b")
    assert settings.names == {"gpt-4": "m"}


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load(Sample, "router").port = 1  # type: ignore[misc]  # that it fails is the test


@pytest.mark.parametrize(
    ("text", "param", "hint"),
    [
        ("router: {prot: 1}", "router.prot", "port"),
        ("router: {limits: {body_byte: 1}}", "router.limits.body_byte", "limits.body_bytes"),
        ("router: {port: 70000}", "router.port", "65535"),
        ("router: {port: high}", "router.port", "integer"),
        ("router: {mode: fog}", "router.mode", "'edge' or 'cloud'"),
        ("router: {limits: {body_bytes: 0}}", "router.limits.body_bytes", "greater"),
        ("rooter: {port: 1}", "rooter", "Unknown section rooter in "),
        ("rooter: {port: 1}", "rooter", "Did you mean router?"),
        ("proxies: {port: 1}", "proxies", "There are up, edge, router, cloud, loadtest."),
        ("router: [1]", "router", "mapping"),
        ("[1]", "config", "mapping"),
        ("router: {port: 1", "config", "line"),
        ("router: {a: &x [*x]}", "router.a", ""),
    ],
)
def test_a_wrong_file_names_the_setting_and_the_nearest_one(tmp_path: Path, text: str, param: str, hint: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(Sample, "router", path)
    assert caught.value.param == param
    assert hint in caught.value.message


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ISTHMUS__ROUTER__PROT", "Did you mean ISTHMUS__ROUTER__PORT?"),
        ("ISTHMUS__ROUTER__LIMITS__QUEU", "Did you mean ISTHMUS__ROUTER__LIMITS__QUEUE?"),
        ("ISTHMUS__ROOTER__PORT", "Did you mean router?"),
        ("ISTHMUS__ROUTER", "ISTHMUS__SECTION__FIELD"),
        ("ISTHMUS_ROUTER__PORT", "Did you mean ISTHMUS__ROUTER__PORT?"),
        ("ISTHMUS__ROUTER__PORT__X", ""),
    ],
)
def test_a_wrong_variable_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, hint: str) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsError) as caught:
        load(Sample, "router")
    assert caught.value.param is not None
    assert hint in caught.value.message


def test_variables_of_other_sections_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__EDGE__WHATEVER", "1")
    monkeypatch.setenv("ISTHMUS_ROUTER_PORT", "tcp://10.0.0.1:80")  # a Kubernetes service named isthmus-router
    assert load(Sample, "router").port == 8080


@pytest.mark.parametrize("name", ["PORT", "NAMES", "LIMITS"])
def test_a_value_is_never_echoed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"ISTHMUS__ROUTER__{name}", "canary-secret{")
    with pytest.raises(SettingsError) as caught:
        load(Sample, "router")
    assert "canary" not in caught.value.message


def test_a_missing_or_unreadable_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        load(Sample, "router", tmp_path / "absent.yaml")
    with pytest.raises(SettingsError, match="cannot be read"):
        load(Sample, "router", tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="cannot be read"):
        load(Sample, "router", tmp_path / "binary.yaml")


def test_yaml_cannot_make_objects(tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text(f"router: !!python/object/apply:os.mkdir [{tmp_path / 'made'}]")
    with pytest.raises(SettingsError):
        load(Sample, "router", path)
    assert not (tmp_path / "made").exists()


def test_one_load_does_not_leak_into_the_next(file: Path) -> None:
    load(Sample, "router", file)
    assert load(Sample, "router").port == 8080


def test_a_part_reads_its_own_fields_and_ignores_the_rest(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_part(Part, "router", file).port == 9000
    monkeypatch.setenv("ISTHMUS__ROUTER__PORT", "5")
    monkeypatch.setenv("ISTHMUS__ROUTER__LIMITS__QUEUE", "5")
    assert load_part(Part, "router", file).port == 5


def test_home_is_the_variable_or_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.setenv("ISTHMUS_HOME", "")
    assert home() == Path.home() / ".isthmus"
