"""Registered adapters: versions that are whole, signatures that count, loads that follow the current version."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cloud.adapters.manifest import MANIFEST_FILE, SIGNATURE_FILE
from cloud.adapters.peft import WEIGHTS_FILE
from cloud.adapters.resident import EngineAdapters, ResidentAdapters
from cloud.adapters.store import AdapterStore, BaseModel
from cloud.adapters.trust import Signer, Trust
from cloud.render import REQUEST_TIMEOUT_S
from shared.errors import (
    AdapterRejected,
    DigestMismatch,
    InvalidRequest,
    NotFound,
    SettingsError,
    SignatureInvalid,
    Unsigned,
    UntrustedKey,
)
from tests.cloud.adapters.peft_files import BASE, write_peft

MODEL = BaseModel("smol", BASE, "sha256:" + "a" * 64)


def key_pair(folder: Path, name: str) -> Path:
    """A private key's file; its public half lies in `folder/trust`."""
    key = Ed25519PrivateKey.generate()
    trust = folder / "trust"
    trust.mkdir(exist_ok=True)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (trust / f"{name}.pub").write_bytes(public)
    path = folder / f"{name}.key"
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@pytest.fixture
def store(tmp_path: Path) -> AdapterStore:
    return AdapterStore(tmp_path / "store", "smol", Trust({}))


def test_an_adapter_is_installed_whole_and_a_new_version_takes_its_place(store: AdapterStore, tmp_path: Path) -> None:
    first = store.register(write_peft(tmp_path / "a", seed=1), "tone", MODEL, rank_limit=16)
    assert store.names() == ("tone",)
    second = store.register(write_peft(tmp_path / "b", seed=2), "tone", MODEL, rank_limit=16)
    assert store.current("tone").folder == second.folder != first.folder
    assert store.digests() == {"tone": second.manifest.digest}
    for version in (first, second):
        store.verify(version, MODEL, rank_limit=16)
    again = store.register(tmp_path / "a", "tone", MODEL, rank_limit=16)
    assert again.manifest == first.manifest
    assert store.current("tone").folder == first.folder


def test_what_is_refused_changes_nothing(store: AdapterStore, tmp_path: Path) -> None:
    """LR-05: it is not listed either."""
    with pytest.raises(AdapterRejected):
        store.register(write_peft(tmp_path / "a", rank=64), "tone", MODEL, rank_limit=16)
    assert store.names() == ()
    assert list((tmp_path / "store" / "smol").iterdir()) == []
    kept = store.register(write_peft(tmp_path / "b"), "tone", MODEL, rank_limit=16)
    with pytest.raises(AdapterRejected):
        store.register(tmp_path / "a", "tone", MODEL, rank_limit=16)
    assert store.current("tone").folder == kept.folder


@pytest.mark.parametrize("name", ["", "..", "a/b", "../../etc", "a" * 65, "a:b", "-a", "a\n"])
def test_names_stay_names(store: AdapterStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest):
        store.register(write_peft(tmp_path / "a"), name, MODEL, rank_limit=16)
    for ask in (store.has, store.current, store.remove):
        with pytest.raises(InvalidRequest):
            ask(name)


def test_links_in_the_folder_are_not_followed(store: AdapterStore, tmp_path: Path) -> None:
    folder = write_peft(tmp_path / "a")
    (folder / WEIGHTS_FILE).rename(tmp_path / "elsewhere")
    (folder / WEIGHTS_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AdapterRejected, match="no plain file"):
        store.register(folder, "tone", MODEL, rank_limit=16)


def test_bytes_that_change_later_are_found_before_the_engine_sees_them(store: AdapterStore, tmp_path: Path) -> None:
    adapter = store.register(write_peft(tmp_path / "a"), "tone", MODEL, rank_limit=16)
    with (adapter.folder / WEIGHTS_FILE).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    with pytest.raises(DigestMismatch):
        store.verify(adapter, MODEL, rank_limit=16)


def test_another_base_or_a_lower_limit_refuses_it_at_load(store: AdapterStore, tmp_path: Path) -> None:
    adapter = store.register(write_peft(tmp_path / "a"), "tone", MODEL, rank_limit=16)
    with pytest.raises(AdapterRejected, match="another version"):
        store.verify(adapter, BaseModel("smol", BASE, "sha256:" + "b" * 64), rank_limit=16)
    with pytest.raises(AdapterRejected, match="rank 8; at most rank 4"):
        store.verify(adapter, MODEL, rank_limit=4)


def test_removed_and_unknown_adapters_are_not_found(store: AdapterStore, tmp_path: Path) -> None:
    store.register(write_peft(tmp_path / "a"), "tone", MODEL, rank_limit=16)
    store.remove("tone")
    for ask in (store.current, store.remove):
        with pytest.raises(NotFound) as caught:
            ask("tone")
        assert caught.value.code == "adapter_not_found"
    assert not store.has("tone")


def test_once_a_key_is_trusted_nothing_else_is_taken(tmp_path: Path) -> None:
    own = key_pair(tmp_path, "own")
    other = key_pair(tmp_path, "other")
    (tmp_path / "trust" / "other.pub").unlink()
    trusting = AdapterStore(tmp_path / "store", "smol", Trust.in_folder(tmp_path / "trust"))
    folder = write_peft(tmp_path / "a")
    with pytest.raises(Unsigned):
        trusting.register(folder, "tone", MODEL, rank_limit=16)
    with pytest.raises(UntrustedKey):
        trusting.register(folder, "tone", MODEL, rank_limit=16, signer=Signer(other))
    assert trusting.names() == ()
    adapter = trusting.register(folder, "tone", MODEL, rank_limit=16, signer=Signer(own))
    trusting.verify(adapter, MODEL, rank_limit=16)
    raw = (adapter.folder / MANIFEST_FILE).read_bytes()
    (adapter.folder / MANIFEST_FILE).write_bytes(raw.replace(b'"alpha":16', b'"alpha":99'))
    with pytest.raises(SignatureInvalid):
        trusting.verify(trusting.current("tone"), MODEL, rank_limit=16)
    (adapter.folder / SIGNATURE_FILE).write_bytes(b"{}")
    with pytest.raises(SignatureInvalid):
        trusting.verify(trusting.current("tone"), MODEL, rank_limit=16)


def test_keys_that_are_none_stop_everything(tmp_path: Path) -> None:
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "a.pub").write_text("no key")
    with pytest.raises(SettingsError):
        Trust.in_folder(tmp_path / "trust")
    open_key = key_pair(tmp_path, "open")
    open_key.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        Signer(open_key)


class Engine:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.loads = 0
        self.gate, self.entered = asyncio.Event(), asyncio.Event()
        self.gate.set()

    def adapters(self) -> EngineAdapters:
        return EngineAdapters(self._load, self._unload)

    async def _load(self, name: str, folder: str) -> None:
        assert (Path(folder) / WEIGHTS_FILE).is_file()
        assert name not in self.names  # vLLM refuses a name that it has
        if not self.gate.is_set():
            self.entered.set()
            await self.gate.wait()
        self.names.append(name)
        self.loads += 1

    async def _unload(self, name: str) -> None:
        self.names.remove(name)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def resident(store: AdapterStore, engine: Engine) -> ResidentAdapters:
    """Room for two."""
    return ResidentAdapters(store, MODEL, engine.adapters(), count=2, rank_limit=16)


async def engine_name(resident: ResidentAdapters, name: str) -> str:
    async with resident.used(name) as used:
        return used


async def test_each_version_has_a_name_of_its_own_in_the_engine(
    store: AdapterStore, tmp_path: Path, engine: Engine, resident: ResidentAdapters
) -> None:
    """Cached blocks are found by that name, so the old version's are never met again."""
    store.register(write_peft(tmp_path / "a", seed=1), "tone", MODEL, rank_limit=16)
    first = await engine_name(resident, "tone")
    assert await engine_name(resident, "tone") == first
    assert engine.loads == 1
    store.register(write_peft(tmp_path / "b", seed=2), "tone", MODEL, rank_limit=16)
    second = await engine_name(resident, "tone")
    assert first != second
    assert engine.names == [second]
    assert resident.resident() == store.digests()
    store.remove("tone")
    with pytest.raises(NotFound):
        await engine_name(resident, "tone")


async def test_the_one_used_longest_ago_makes_room(
    store: AdapterStore, tmp_path: Path, engine: Engine, resident: ResidentAdapters
) -> None:
    for number, name in enumerate("abc"):
        store.register(write_peft(tmp_path / name, seed=number), name, MODEL, rank_limit=16)
    for name in ("a", "b", "a", "c"):
        await resident.load(name)
    assert list(resident.resident()) == ["a", "c"]
    assert len(engine.names) == 2


async def test_an_adapter_that_is_unloaded_stays_registered_and_loads_again(
    store: AdapterStore, tmp_path: Path, engine: Engine, resident: ResidentAdapters
) -> None:
    store.register(write_peft(tmp_path / "a"), "tone", MODEL, rank_limit=16)
    name = await engine_name(resident, "tone")
    await resident.unload("tone")
    assert (engine.names, resident.resident(), store.names()) == ([], {}, ("tone",))
    await resident.unload("tone")  # what is not loaded is as it shall be
    assert await engine_name(resident, "tone") == name
    assert engine.loads == 2
    store.remove("tone")
    await resident.unload("tone")  # it is still in the engine
    assert engine.names == []
    with pytest.raises(NotFound):
        await resident.unload("tone")


async def test_what_requests_run_with_is_not_taken_from_them(
    store: AdapterStore, tmp_path: Path, engine: Engine, resident: ResidentAdapters
) -> None:
    """LR-03: more adapters at once than there is room for; one is unloaded and one replaced under its requests."""
    for number, name in enumerate("abcd"):
        store.register(write_peft(tmp_path / name, seed=number), name, MODEL, rank_limit=16)
    async with contextlib.AsyncExitStack() as running:
        used = {name: await running.enter_async_context(resident.used(name)) for name in "abcd"}
        assert set(engine.names) == set(used.values())
        await resident.unload("a")
        assert used["a"] in engine.names
        store.register(write_peft(tmp_path / "e", seed=9), "b", MODEL, rank_limit=16)
        async with resident.used("b") as newer:
            assert newer != used["b"]
            assert {newer, used["b"]} <= set(engine.names)
        # Asked for again while its last request still runs: the engine has it, and would refuse it twice.
        async with resident.used("a") as again:
            assert again == used["a"]
        assert engine.loads == 5
    assert len(engine.names) == len(resident.resident()) == 2
    current = {f"smol:{name}@{store.current(name).manifest.fingerprint}" for name in resident.resident()}
    assert set(engine.names) == current


async def test_nobody_waits_for_anothers_adapter(
    store: AdapterStore, tmp_path: Path, engine: Engine, resident: ResidentAdapters
) -> None:
    """Loading hashes every byte: requests for an adapter that is there go on meanwhile, and end."""
    for number, name in enumerate("ab"):
        store.register(write_peft(tmp_path / name, seed=number), name, MODEL, rank_limit=16)
    await resident.load("a")
    engine.gate.clear()
    loading = asyncio.ensure_future(resident.load("b"))
    async with asyncio.timeout(30):
        await engine.entered.wait()
        await resident.load("a")
    assert not loading.done()
    engine.gate.set()
    await loading


def test_a_version_outlives_the_requests_that_may_run_with_it(store: AdapterStore, tmp_path: Path) -> None:
    """An engine with more adapters than places reads a running one again, and ends if it is gone."""
    first = store.register(write_peft(tmp_path / "a", seed=1), "tone", MODEL, rank_limit=16)
    second = store.register(write_peft(tmp_path / "b", seed=2), "tone", MODEL, rank_limit=16)
    store.remove("tone")
    assert (first.folder / WEIGHTS_FILE).is_file()
    assert (second.folder / WEIGHTS_FILE).is_file()
    assert (store.names(), store.has("tone")) == ((), False)
    for folder in (first.folder, second.folder):
        os.utime(folder, (0, time.time() - REQUEST_TIMEOUT_S - 60))
    kept = store.register(tmp_path / "b", "other", MODEL, rank_limit=16)
    assert not first.folder.exists()
    assert not second.folder.exists()
    store.verify(kept, MODEL, rank_limit=16)
    # The one in service stays, however old it is.
    os.utime(kept.folder, (0, 0))
    store.register(tmp_path / "a", "tone", MODEL, rank_limit=16)
    assert (kept.folder / WEIGHTS_FILE).is_file()


def test_what_is_over_a_limit_that_was_lowered_is_not_offered(tmp_path: Path) -> None:
    """LR-05: it is not listed; asked for by name, both numbers."""
    wide = AdapterStore(tmp_path / "store", "smol", Trust({}), rank_limit=64)
    wide.register(write_peft(tmp_path / "a", rank=64), "high", MODEL, rank_limit=64)
    wide.register(write_peft(tmp_path / "b", rank=8), "low", MODEL, rank_limit=64)
    narrow = AdapterStore(tmp_path / "store", "smol", Trust({}), rank_limit=16)
    assert list(wide.digests()) == ["high", "low"]
    assert list(narrow.digests()) == ["low"]
    with pytest.raises(AdapterRejected, match="rank 64; at most rank 16"):
        narrow.served("high")
