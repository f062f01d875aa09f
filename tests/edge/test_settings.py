"""Settings of the agent: what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from edge.settings import EdgeSettings
from shared import keys
from shared.errors import SettingsError
from shared.settings import load

KEY = {"name": "app", "sha256": keys.hashed("isk-x"), "scopes": ["inference"]}


def _load(**fields: Any) -> EdgeSettings:
    return load(EdgeSettings, "edge", **fields)


def test_defaults_are_safe_and_local(isolated_environment: Path) -> None:
    settings = _load()
    assert (settings.host, settings.port, settings.router.url) == ("127.0.0.1", 8081, None)
    assert settings.thermal.roots == (Path("/sys"),)
    assert settings.store_dir == isolated_environment / "models"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": "0.0.0.0"}, "edge.keys"),
        ({"host": "192.168.1.5"}, "edge.keys"),
        ({"host": "::"}, "edge.keys"),
        ({"keys": [KEY, KEY]}, "same name"),
        ({"keys": [{"name": "a", "sha256": "short"}]}, "sha256"),
        ({"thermal": {"warm_c": 90}}, "warm_c"),
        ({"thermal": {"hysteresis_c": 20}}, "hysteresis_c"),
        ({"router": {"url": "http://user:pass@r"}}, "url"),
        ({"backend_id": "no spaces"}, "backend_id"),
        ({"zone": "cloud"}, "zone"),
        ({"slots": 0}, "slots"),
        ({"slotz": 1}, "slotz"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], named: str) -> None:
    """A listener beyond loopback without keys, above all."""
    with pytest.raises(SettingsError) as caught:
        _load(**fields)
    assert named in caught.value.message


def _numbers(model: type[BaseModel], *path: str) -> Iterator[tuple[str, ...]]:
    """Paths of all settings that are numbers with fractions."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        if float in kinds:
            yield (*path, name)
        for kind in kinds if get_origin(field.annotation) is not tuple else ():
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _numbers(kind, *path, name)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_every_number_has_an_end(value: float) -> None:
    """Not a number is neither below nor above any bound."""
    paths = list(_numbers(EdgeSettings))
    assert {("idle_limit_s",), ("speculation", "margin_ratio"), ("thermal", "levels", "hot", "derate_ratio")} <= {
        *paths
    }
    for first, *rest in paths:
        fields: Any = value
        for name in reversed(rest):
            fields = {name: fields}
        with pytest.raises(SettingsError) as caught:
            _load(**{first: fields})
        assert caught.value.param == ".".join(("edge", first, *rest))


def test_beyond_loopback_with_keys() -> None:
    settings = _load(host="0.0.0.0", keys=[KEY], router={"url": "http://r:8080"}, advertise_url="http://me:8081")
    assert keys.authenticate(["Bearer isk-x"], settings.api_keys).name == "app"


def test_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "isthmus.yaml"
    file.write_text("edge:\n  port: 9000\n  thermal: {warm_c: 60}\n  router: {url: 'http://r:1'}\n")
    monkeypatch.setenv("ISTHMUS__EDGE__THERMAL__ROOTS", '["/sys", "/tmp/s"]')
    settings = load(EdgeSettings, "edge", file, router={"url": "http://r:2"})
    assert (settings.port, settings.thermal.warm_c, settings.router.url) == (9000, 60, "http://r:2")
    assert settings.thermal.roots == (Path("/sys"), Path("/tmp/s"))


def test_the_fleet_id_is_valid_stable_and_its_own(monkeypatch: pytest.MonkeyPatch, isolated_environment: Path) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Ännas Pi_4!.local")
    names = {_load().fleet_id(), _load(port=9).fleet_id()}
    monkeypatch.setenv("ISTHMUS_HOME", str(isolated_environment / "other"))
    names.add(_load().fleet_id())
    assert len(names) == 3
    for name in names:
        assert _load(backend_id=name).fleet_id() == name
