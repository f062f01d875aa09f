"""Registered adapters: versions under one name, refusals that change nothing, signatures, what is in use stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.packages.adapters.adapter import ADAPTER_FILE, AdapterName
from edge.packages.adapters.store import AdapterStore, Registration
from edge.packages.lease import lease
from edge.packages.package import Package
from edge.packages.signing_key import SigningKey, read_public
from edge.packages.staging import Incoming
from edge.packages.trust import Trust, TrustedKey
from shared.errors import AdapterRejected, DigestMismatch, InvalidRequest, NotFound, PackageInUse, Unsigned
from tests.edge.adapter_files import write_adapter


@pytest.fixture
def store(tmp_path: Path) -> AdapterStore:
    return AdapterStore(tmp_path / "adapters")


def registration(path: Path, base: Package, name: str = "a", **fields: object) -> Registration:
    incoming = Incoming(ADAPTER_FILE, path.stat().st_size, lambda: path.open("rb"))
    return Registration(AdapterName(base.name, name), incoming, "test", **{"rank_limit": 16, **fields})  # type: ignore[arg-type]


def test_a_new_version_takes_the_name_and_the_old_one_stays_while_it_is_used(
    store: AdapterStore, tmp_path: Path, installed_model: Package
) -> None:
    old = store.register(
        registration(write_adapter(tmp_path / "1.gguf", seed=1, layers=2), installed_model), installed_model
    )
    with lease(old.folder):
        for seed in (2, 3, 4):
            path = write_adapter(tmp_path / f"{seed}.gguf", seed=seed, layers=2)
            new = store.register(registration(path, installed_model), installed_model)
        assert store.current(new.name) == new
        assert new.digest != old.digest
        assert (old.folder / ADAPTER_FILE).is_file()
        with pytest.raises(PackageInUse):
            store.remove(new.name)
    assert store.remove(new.name) > 0
    with pytest.raises(NotFound):
        store.current(new.name)


def test_a_refused_adapter_changes_nothing(store: AdapterStore, tmp_path: Path, installed_model: Package) -> None:
    good = store.register(registration(write_adapter(tmp_path / "1.gguf", layers=2), installed_model), installed_model)
    bad = write_adapter(tmp_path / "2.gguf", layers=2, rank=17)
    with pytest.raises(AdapterRejected):
        store.register(registration(bad, installed_model), installed_model)
    with pytest.raises(AdapterRejected):
        store.register(registration(bad, installed_model, base_digest="sha256:" + "1" * 64), installed_model)
    assert store.survey() == {good.name: good}
    left = [entry.name for entry in good.folder.parent.parent.iterdir()]
    assert sorted(left) == [".lock", "current", "versions"]


def test_a_changed_manifest_is_found_out(store: AdapterStore, tmp_path: Path, installed_model: Package) -> None:
    made = store.register(registration(write_adapter(tmp_path / "1.gguf", layers=2), installed_model), installed_model)
    manifest = made.folder / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_bytes(manifest.read_bytes().replace(b'"rank": 8', b'"rank": 9'))
    with pytest.raises(DigestMismatch):
        store.current(made.name)
    assert isinstance(store.survey()[made.name], DigestMismatch)


def test_whoever_must_vouch_for_models_must_vouch_for_adapters(tmp_path: Path, installed_model: Package) -> None:
    key = SigningKey.generate()
    private, public = key.write(tmp_path, "owner")
    del private
    trust = Trust("require", {key.key_id: TrustedKey("owner", key.key_id, read_public(public))})
    store = AdapterStore(tmp_path / "adapters", trust)
    path = write_adapter(tmp_path / "1.gguf", layers=2)
    with pytest.raises(Unsigned):
        store.register(registration(path, installed_model), installed_model)
    made = store.register(registration(path, installed_model, signing_key=key), installed_model)
    assert store.current(made.name) == made
    (made.folder / "manifest.sig").unlink()
    with pytest.raises(Unsigned):
        store.current(made.name)


@pytest.mark.parametrize(
    "text", ["", "a", ":a", "a:", "a:b:c", "../x:a", "a:../../b", "a:b/c", "a b:c", "a:" + "x" * 65]
)
def test_names_stay_names(text: str) -> None:
    with pytest.raises(InvalidRequest):
        AdapterName.parse(text)
